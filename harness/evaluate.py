"""Greedy episodes in environments of their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from harness.algorithm import Algorithm
from harness.collect import episodes
from harness.suite import VecEnv
from harness.types import Action, Step


def run(
    env: VecEnv, algorithm: Algorithm, net: nn.ModuleDict, env_steps: int, count: int, seed: Callable[[int], int],
    alive: Callable[[], None] = lambda: None,
) -> dict[str, list[float]]:  # fmt: skip
    """``count`` greedy episodes: {"return": [...], "length": [...], each outcome: [...]}, one value an episode.

    Rounds of one episode an environment, the ``k``-th seeded by ``seed(k)``; each environment has the same share. Of a
    last round that is not needed whole the first environments count, which says nothing about how long their episodes
    are. ``alive`` is called at every step.
    """

    def act(step: Step, memory: Any, played: int) -> Action:
        alive()
        return algorithm.act(net, step, memory, env_steps, None)

    found: dict[str, list[float]] = {"return": [], "length": [], **{name: [] for name in env.spec.outcomes}}
    for k in range(-(-count // env.num_envs)):
        result, _ = episodes(env, act, seed(k), keep=False)
        for name, values in {"return": result.returns, "length": result.length, **result.outcome}.items():
            found[name] += values.to(torch.float64).tolist()
    return {name: values[:count] for name, values in found.items()}
