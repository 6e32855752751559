"""StarCraft II battles through the interface of ``smac`` and ``smacv2`` (Samvelyan et al. 2019, Ellis et al. 2023).

Used of it: ``get_env_info``, ``reset``, ``step``, ``get_obs``, ``get_state``, ``get_avail_actions``, ``close``; of the
info of a step ``battle_won`` and ``episode_limit``.
"""

from __future__ import annotations

import copy
import importlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from suites.adapters.single import Array, Layout, Lost, Moment


class StarCraft:
    """A ``Single`` over one game. The outcome is ``won``: the battle's own result, never a guess from the return."""

    def __init__(self, path: str, arguments: Mapping[str, Any]) -> None:
        """``path`` "module:class", built with ``arguments`` and ``seed``. The game is launched at the first reset."""
        module, _, name = path.partition(":")
        self._class = getattr(importlib.import_module(module), name)
        # Copied for every game: the package writes into the dictionaries it is given.
        self._arguments = dict(arguments)
        self._env = self._class(**copy.deepcopy(self._arguments))
        info = self._env.get_env_info()
        self._launched, self._relaunches = False, 0
        self.layout = Layout(
            info["n_agents"],
            int(info["obs_shape"]),
            int(info["state_shape"]),
            info["episode_limit"],
            n_actions=info["n_actions"],
            outcomes=("won",),
        )

    def reset(self, seed: int) -> Moment:
        """Begin a battle. Teams and start positions follow ``seed``. The game's own random numbers follow the seed of
        the first reset, at which it is launched, and whatever was played since: the game cannot be reseeded.
        """
        if not self._launched:
            self._env.close()
            self._env = self._class(seed=seed & 0x7FFFFFFF, **copy.deepcopy(self._arguments))
            self._launched = True
        for index, owner in enumerate(_owners_of_generators(self._env)):
            owner.rng = np.random.default_rng([seed, index])
        self._env.reset()
        self._raise_if_relaunched()
        return self._moment(0.0, False, False, False)

    def step(self, action: Array) -> Moment:
        """Play ``action`` [N] int64. Raises ``Lost`` when the game died under it."""
        reward, over, info = self._env.step([int(a) for a in action])
        self._raise_if_relaunched()
        if over and "battle_won" not in info:
            raise Lost("the connection to StarCraft II broke; the package began a new game in the middle of an episode")
        cut = bool(over and info.get("episode_limit", False))
        return self._moment(float(reward), bool(over) and not cut, cut, bool(info.get("battle_won", False)))

    def close(self) -> None:
        """Close the game."""
        self._env.close()

    def _raise_if_relaunched(self) -> None:
        count = int(getattr(self._env, "force_restarts", 0))
        if count > self._relaunches:
            self._relaunches = count
            raise Lost("StarCraft II stopped answering and was launched again by the package")

    def _moment(self, reward: float, terminated: bool, truncated: bool, won: bool) -> Moment:
        avail = np.asarray(self._env.get_avail_actions(), np.bool_)
        # Action 0 is the no-op, legal for the dead and for nobody else.
        alive = ~avail[:, 0]
        obs = np.asarray(self._env.get_obs(), np.float32)
        state = np.asarray(self._env.get_state(), np.float32).ravel()
        return Moment(obs, state, avail, alive, reward, terminated, truncated, (float(won),))


def _owners_of_generators(env: Any) -> Iterator[Any]:
    """The objects that draw teams and positions, in a fixed order. Each makes itself a generator that nobody seeds."""
    pending = list(getattr(env, "env_key_to_distribution_map", {}).values())
    while pending:
        owner = pending.pop(0)
        if isinstance(getattr(owner, "rng", None), np.random.Generator):
            yield owner
        pending += [part for part in vars(owner).values() if type(part).__name__.endswith("Distribution")]
