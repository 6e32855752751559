"""Gymnasium environments whose actions, observations and rewards are one an agent (Level-Based Foraging, RWARE)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from suites.adapters.pettingzoo import load
from suites.adapters.single import Array, Layout, Moment

Ended = Callable[[Any], bool]
Legal = Callable[[Any], Array]


class TupleGym:
    """A ``Single`` over such an environment. The team's reward is the sum over agents."""

    def __init__(
        self,
        env: Any,
        *,
        episode_limit: int,
        ended: Ended,
        legal: Legal | None = None,
        forget: Callable[[Any], None] | None = None,
    ) -> None:
        """``ended(env)``: whether an episode that is over truly ended; otherwise it was cut by its time limit, which
        these environments do not tell apart. ``legal(env)`` [N,A] bool; all actions where there is none.
        ``forget(env)``: called before a reset, for what would reach from one episode into the next.
        """
        self._env, self._ended, self._legal, self._forget = env, ended, legal, forget
        n = len(env.action_space)
        obs_dim = max(math.prod(space.shape) for space in env.observation_space)
        self.layout = Layout(n, obs_dim, n * obs_dim, episode_limit, n_actions=max(int(a.n) for a in env.action_space))

    def reset(self, seed: int) -> Moment:
        """Begin an episode."""
        if self._forget:
            self._forget(self._env)
        observations, _ = self._env.reset(seed=seed)
        return self._moment(observations, 0.0, False, False)

    def step(self, action: Array) -> Moment:
        """Play ``action`` [N] int64."""
        observations, rewards, done, truncated, _ = self._env.step([int(a) for a in action])
        over = bool(done) or bool(truncated)
        ended = over and self._ended(self._env)
        return self._moment(observations, math.fsum(map(float, rewards)), ended, over and not ended)

    def close(self) -> None:
        """Close the environment."""
        self._env.close()

    def _moment(self, observations: Any, reward: float, terminated: bool, truncated: bool) -> Moment:
        obs = np.stack([np.asarray(o, np.float32).ravel() for o in observations])
        n = self.layout.n_agents
        avail = self._legal(self._env) if self._legal else np.ones((n, self.layout.n_actions), np.bool_)
        return Moment(obs, obs.ravel(), avail, np.ones(n, np.bool_), reward, terminated, truncated)


def never(env: Any) -> bool:
    """For tasks without an end: every episode is cut by its time limit, though the package reports an end."""
    return False


def build(path: str, arguments: Mapping[str, Any], **options: Any) -> TupleGym:
    """``TupleGym`` of "module:factory"; picklable as a partial, so that worker processes can build it."""
    return TupleGym(load(path)(**arguments), **options)
