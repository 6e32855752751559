"""Multi-Robot Warehouse (Papoudakis et al. 2021): robots fetch requested shelves, rewards very sparse."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import torch

from harness.errors import unknown
from harness.suite import Budget, Task, VecEnv
from harness.types import Spec
from suites.adapters.packages import versions
from suites.adapters.tuple_gym import TupleGym, build, never
from suites.adapters.vectorise import Stepping, spec, vectorise

LIMIT = 500
"""Steps an episode, the package's default and the papers'."""

UPPER: Mapping[str, float] = {
    "tiny-2ag": 25.0,
    "tiny-4ag": 50.0,
    "small-4ag": 30.0,
    "tiny-2ag-easy": 40.0,
    "tiny-2ag-hard": 20.0,
}
"""Tasks and the deliveries that count as 1: declared round numbers, not measured. 0 counts as 0."""

_SHELVES = {"tiny": (1, 3), "small": (2, 3), "medium": (2, 5), "large": (3, 5)}
_REQUESTS = {"-easy": 2.0, "": 1.0, "-hard": 0.5}
_NAME = re.compile(r"(?P<size>[a-z]+)-(?P<agents>\d+)ag(?P<difficulty>-easy|-hard|)")


@dataclass(frozen=True)
class RWARE:
    """Multi-Robot Warehouse: robots bring requested shelves, one reward a delivery."""

    stepping: Stepping = "inline"
    """Environments in a loop in the trial's process ("inline") or each in a process of its own ("process")."""

    name: ClassVar[str] = "rware"
    budgets: ClassVar[Mapping[str, Budget]] = {
        "smoke": Budget(env_steps=4_000, eval_every=2_000, eval_episodes=2, final_episodes=4, seeds=2),
        "quick": Budget(env_steps=500_000, eval_every=50_000, eval_episodes=8, final_episodes=32, seeds=3),
        "paper": Budget(env_steps=20_000_000, eval_every=500_000, eval_episodes=32, final_episodes=320, seeds=10),
    }
    algorithms: ClassVar[tuple[str, ...]] = ("mcem", "vdn", "qmix", "facmac", "ippo")
    default_tasks: ClassVar[tuple[str, ...]] = ("tiny-2ag",)

    def tasks(self) -> Mapping[str, Task]:
        """The three tasks of Papoudakis et al. (2021), and the smallest with more and fewer requests."""
        return {
            name: Task(name, "discrete", bounds=(0.0, upper), references={"random": 0.0}, doc=_doc(name))
            for name, upper in UPPER.items()
        }

    def engine_version(self) -> str:
        """Versions of the packages that compute the game."""
        return versions("rware", "rware", "gymnasium")

    def make(self, task: str, num_envs: int, device: torch.device) -> VecEnv:
        """The environments of one task. Raises ``UserError`` for an unknown task or a missing package."""
        return vectorise(self._single(task), num_envs, device, f"rware {task}", self.stepping)

    def spec(self, task: str) -> Spec:
        """What methods may know of ``task``."""
        return spec(self._single(task))

    def _single(self, task: str) -> partial[TupleGym]:
        if task not in UPPER:
            raise unknown("task of suite rware", task, UPPER)
        self.engine_version()
        return partial(build, "rware.warehouse:Warehouse", _arguments(task), episode_limit=LIMIT, ended=never)


def _parse(task: str) -> re.Match[str]:
    match = _NAME.fullmatch(task)
    assert match is not None, task
    return match


def _arguments(task: str) -> dict[str, Any]:
    """Version 2 of the package's registered environments, by its own keywords."""
    from rware.warehouse import RewardType

    named = _parse(task)
    rows, columns = _SHELVES[named["size"]]
    agents = int(named["agents"])
    return {
        "n_agents": agents,
        "shelf_rows": rows,
        "shelf_columns": columns,
        "column_height": 8,
        "msg_bits": 0,
        "sensor_range": 1,
        "request_queue_size": int(agents * _REQUESTS[named["difficulty"]]),
        "max_inactivity_steps": None,
        "max_steps": LIMIT,
        "reward_type": RewardType.INDIVIDUAL,
    }


def _doc(task: str) -> str:
    named = _parse(task)
    agents = int(named["agents"])
    requests = int(agents * _REQUESTS[named["difficulty"]])
    return f"{agents} robots, {requests} shelves requested at a time, {named['size']} warehouse"
