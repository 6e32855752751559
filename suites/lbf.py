"""Level-Based Foraging (Christianos et al. 2020, Papoudakis et al. 2021)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np
import torch

from harness.errors import unknown
from harness.suite import Budget, Task, VecEnv
from harness.types import Spec
from suites.adapters.packages import versions
from suites.adapters.single import Array
from suites.adapters.tuple_gym import TupleGym, build
from suites.adapters.vectorise import Stepping, spec, vectorise

PATH = "lbforaging.foraging.environment:ForagingEnv"
LIMIT = 50
"""Steps an episode, the package's default and the papers'."""

RANDOM: Mapping[str, float] = {
    "8x8-2p-3f": 0.231,
    "8x8-2p-2f-coop": 0.007,
    "2s-8x8-2p-2f-coop": 0.007,
    "10x10-3p-3f": 0.124,
    "2s-10x10-3p-3f": 0.124,
    "15x15-3p-5f": 0.048,
    "15x15-4p-3f": 0.075,
    "15x15-4p-5f": 0.079,
}
"""Tasks and the mean return of uniform random legal play over 400 episodes.

Source: ``python -m benchmarks.environments bounds lbf --episodes 400``.
"""

_NAME = re.compile(r"(?:(?P<sight>\d+)s-)?(?P<size>\d+)x\d+-(?P<players>\d+)p-(?P<food>\d+)f(?P<coop>-coop)?")


@dataclass(frozen=True)
class LBF:
    """Level-Based Foraging: agents of differing levels load food together, sparse rewards."""

    stepping: Stepping = "inline"
    """Environments in a loop in the trial's process ("inline") or each in a process of its own ("process")."""

    name: ClassVar[str] = "lbf"
    budgets: ClassVar[Mapping[str, Budget]] = {
        "smoke": Budget(env_steps=4_000, eval_every=2_000, eval_episodes=8, final_episodes=16, seeds=2),
        "quick": Budget(env_steps=300_000, eval_every=30_000, eval_episodes=32, final_episodes=128, seeds=3),
        "paper": Budget(env_steps=2_000_000, eval_every=50_000, eval_episodes=32, final_episodes=320, seeds=10),
    }
    algorithms: ClassVar[tuple[str, ...]] = ("mcem", "vdn", "qmix", "facmac", "ippo")
    default_tasks: ClassVar[tuple[str, ...]] = ("8x8-2p-3f",)

    def tasks(self) -> Mapping[str, Task]:
        """The seven tasks of Papoudakis et al. (2021) and a first one to learn. A return of 1 is all the food."""
        return {
            name: Task(name, "discrete", bounds=(0.0, 1.0), references={"random": random}, doc=_doc(name))
            for name, random in RANDOM.items()
        }

    def engine_version(self) -> str:
        """Versions of the packages that compute the game."""
        return versions("lbf", "lbforaging", "gymnasium")

    def make(self, task: str, num_envs: int, device: torch.device) -> VecEnv:
        """The environments of one task. Raises ``UserError`` for an unknown task or a missing package."""
        return vectorise(self._single(task), num_envs, device, f"lbf {task}", self.stepping)

    def spec(self, task: str) -> Spec:
        """What methods may know of ``task``."""
        return spec(self._single(task))

    def _single(self, task: str) -> partial[TupleGym]:
        if task not in RANDOM:
            raise unknown("task of suite lbf", task, RANDOM)
        self.engine_version()
        return partial(
            build,
            PATH,
            _arguments(task),
            episode_limit=LIMIT,
            ended=no_food_left,
            legal=legal_actions,
            forget=forget_places,
        )


def no_food_left(env: Any) -> bool:
    """The true end; the package reports its time limit the same way."""
    return int(env.field.sum()) == 0


def forget_places(env: Any) -> None:
    """Take the players off the board: the package places them anew around where they stood, so that an episode would
    depend on the one before.
    """
    for player in env.players:
        player.position = None


def legal_actions(env: Any) -> Array:
    """[N,6] bool: moves into a wall or food and loading where there is none are not legal (the package's own rule)."""
    legal = np.zeros((len(env.players), 6), np.bool_)
    for i, player in enumerate(env.players):
        legal[i, [action.value for action in env._valid_actions[player]]] = True
    return legal


def _parse(task: str) -> Mapping[str, str | None]:
    match = _NAME.fullmatch(task)
    assert match is not None, task
    return match.groupdict()


def _arguments(task: str) -> dict[str, Any]:
    """Version 3 of the package's registered environments, by its own keywords."""
    named = _parse(task)
    size = int(named["size"] or 0)
    return {
        "players": int(named["players"] or 0),
        "field_size": (size, size),
        "max_num_food": int(named["food"] or 0),
        "sight": int(named["sight"] or size),
        "force_coop": named["coop"] is not None,
        "max_episode_steps": LIMIT,
        "min_player_level": 1,
        "max_player_level": 2,
        "min_food_level": 1,
        "max_food_level": None,
    }


def _doc(task: str) -> str:
    named = _parse(task)
    sight = f", sight {named['sight']}" if named["sight"] else ""
    coop = ", all needed for each" if named["coop"] else ""
    return f"{named['players']} agents, {named['food']} food on {named['size']}x{named['size']}{sight}{coop}"
