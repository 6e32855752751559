"""One environment at a time, as numpy arrays: what ``subprocess`` and ``inline`` make a ``VecEnv`` of.

Nothing here imports torch: a worker process holds an environment and numpy, no more.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from harness.scene import Scene

Array = NDArray[Any]
Make = Callable[[], "Single"]
"""Builds one environment, in whichever process it will live in; picklable."""


class Layout(NamedTuple):
    """What ``harness.types.Spec`` says, in plain numbers. ``n_actions`` is A, or 0 where actions are continuous."""

    n_agents: int
    obs_dim: int
    state_dim: int
    episode_limit: int
    n_actions: int = 0
    low: float = 0.0
    high: float = 0.0
    size: int = 0
    outcomes: tuple[str, ...] = ()


class Moment(NamedTuple):
    """One environment after ``reset`` or ``step``; ``harness.types.Step`` without the leading E."""

    obs: Array  # [N,O]
    state: Array  # [G]
    avail: Array | None  # [N,A] bool; None for continuous actions
    alive: Array  # [N] bool
    reward: float = 0.0  # the team's
    terminated: bool = False
    truncated: bool = False
    outcome: tuple[float, ...] = ()  # in the order of ``Layout.outcomes``


class Single(Protocol):
    """One environment, one episode at a time.

    Optional: ``scene(action) -> harness.scene.Scene | None``, as ``harness.suite.VecEnv`` has it, of ``action`` [N] |
    [N,U].
    """

    layout: Layout

    def reset(self, seed: int) -> Moment:
        """Begin a new episode, which depends on ``seed`` and the actions alone."""
        ...

    def step(self, action: Array) -> Moment:
        """Play ``action`` [N] int64 | [N,U] float32. Not called after the end."""
        ...

    def close(self) -> None:
        """Free whatever is held."""
        ...


class Lost(Exception):
    """The episode cannot go on through no fault of the agents (a game server died); what was played of it is void."""


class IllegalMoment(Exception):
    """An environment broke its own contract: no legal action, or a number that is none. Never repaired silently."""


def check(moment: Moment, name: str, step: int) -> Moment:
    """``moment`` itself. Raises ``IllegalMoment`` naming environment, agent and step if an agent has no legal action
    or an observation, state or reward is not finite.
    """
    if moment.avail is not None and not moment.avail.any(-1).all():
        agents = np.flatnonzero(~moment.avail.any(-1)).tolist()
        raise IllegalMoment(f"{name}: no legal action for agent {_listed(agents)} at step {step}: its mask is all zero")
    if not np.isfinite(moment.obs).all():
        agents = np.flatnonzero(~np.isfinite(moment.obs).all(-1)).tolist()
        raise IllegalMoment(f"{name}: observation of agent {_listed(agents)} at step {step} is not finite")
    if not np.isfinite(moment.state).all() or not np.isfinite(moment.reward):
        raise IllegalMoment(f"{name}: state or reward at step {step} is not finite")
    return moment


def scene_of(env: Single, action: Array) -> Scene | None:
    """What ``env`` looks like with ``action`` chosen in it; None where its kind does not say."""
    look: Callable[[Array], Scene | None] | None = getattr(env, "scene", None)
    return None if look is None else look(action)


def _listed(agents: list[int]) -> str:
    return ", ".join(map(str, agents))


def seeds(seed: int, count: int) -> list[int]:
    """``count`` 63-bit seeds, one an environment; no two (seed, environment) pairs share a stream."""
    branches = np.random.SeedSequence(seed).spawn(count)
    return [int(branch.generate_state(1, np.uint64)[0] >> np.uint64(1)) for branch in branches]


def seed_globals(seed: int) -> None:
    """Seed python's and numpy's global generators, for environments that draw from them."""
    random.seed(seed)
    np.random.seed([seed & 0xFFFFFFFF, seed >> 32])  # noqa: NPY002  (the legacy generator is the one third parties read)
