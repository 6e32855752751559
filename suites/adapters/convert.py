"""From numpy to the shapes of ``harness.types``."""

from __future__ import annotations

import torch
from torch import Tensor

from harness.types import Continuous, Discrete, Spec, Step
from suites.adapters.memory import Views
from suites.adapters.single import Array, Layout


def spec_of(layout: Layout) -> Spec:
    """``layout`` as methods know it."""
    discrete = layout.n_actions > 0
    action = Discrete(layout.n_actions) if discrete else Continuous(layout.low, layout.high, layout.size)
    return Spec(layout.n_agents, layout.obs_dim, layout.state_dim, layout.episode_limit, action, layout.outcomes)


def step_of(arrays: Views, layout: Layout, device: torch.device) -> Step:
    """A copy of ``arrays`` on ``device``."""

    def tensor(x: Array) -> Tensor:
        return torch.from_numpy(x.copy()).to(device)

    return Step(
        obs=tensor(arrays.obs),
        state=tensor(arrays.state),
        avail=tensor(arrays.avail) if layout.n_actions else None,
        alive=tensor(arrays.alive),
        reward=tensor(arrays.reward),
        terminated=tensor(arrays.terminated),
        truncated=tensor(arrays.truncated),
        outcome={name: tensor(arrays.outcome[:, k]) for k, name in enumerate(layout.outcomes)},
    )
