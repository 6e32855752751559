"""Multi-Agent Particle Environments (Lowe et al. 2017): the cooperative ones, as the package ``mpe2`` has them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, NamedTuple

import torch

from harness.errors import unknown
from harness.suite import Budget, Task, VecEnv
from harness.types import Spec
from suites.adapters.packages import versions
from suites.adapters.pettingzoo import PettingZooEnv, build
from suites.adapters.vectorise import Stepping, spec, vectorise

CONTINUOUS = "_continuous"


class _Game(NamedTuple):
    module: str
    random: float  # mean return of uniform random play, discrete actions
    scripted: float  # mean return of a script that knows everything, discrete actions
    doc: str


GAMES: Mapping[str, _Game] = {
    "simple_spread": _Game("mpe2.simple_spread_v3", -79.9, -25.2, "3 agents cover 3 landmarks without colliding"),
    "simple_reference": _Game("mpe2.simple_reference_v3", -56.6, -15.4, "2 agents tell each other where to go"),
    "simple_speaker_listener": _Game("mpe2.simple_speaker_listener_v4", -79.0, -14.9, "one speaks, the other walks"),
}
"""Source of the figures: ``python -m benchmarks.environments bounds mpe``, 1,000 episodes each."""


@dataclass(frozen=True)
class MPE:
    """Multi-Agent Particle Environments: small cooperative games on a plane, discrete and continuous."""

    stepping: Stepping = "inline"
    """Environments in a loop in the trial's process ("inline") or each in a process of its own ("process")."""

    name: ClassVar[str] = "mpe"
    budgets: ClassVar[Mapping[str, Budget]] = {
        "smoke": Budget(env_steps=4_000, eval_every=2_000, eval_episodes=8, final_episodes=16, seeds=2),
        "quick": Budget(env_steps=200_000, eval_every=20_000, eval_episodes=32, final_episodes=128, seeds=3),
        "paper": Budget(env_steps=2_000_000, eval_every=50_000, eval_episodes=32, final_episodes=320, seeds=10),
    }
    algorithms: ClassVar[tuple[str, ...]] = ("mcem", "vdn", "qmix", "facmac", "ippo")
    default_tasks: ClassVar[tuple[str, ...]] = ("simple_spread",)

    def tasks(self) -> Mapping[str, Task]:
        """Each game with discrete actions and, under its name with "_continuous", with continuous ones."""
        found = {}
        for game, data in GAMES.items():
            for name, action in ((game, "discrete"), (game + CONTINUOUS, "continuous")):
                found[name] = Task(
                    name,
                    action,
                    bounds=(data.random, data.scripted),
                    references={"random": data.random, "scripted": data.scripted},
                    doc=data.doc,
                )
        return found

    def engine_version(self) -> str:
        """Versions of the packages that compute the physics."""
        return versions("mpe", "mpe2", "pettingzoo")

    def make(self, task: str, num_envs: int, device: torch.device) -> VecEnv:
        """The environments of one task. Raises ``UserError`` for an unknown task or a missing package."""
        return vectorise(self._single(task), num_envs, device, f"mpe {task}", self.stepping)

    def spec(self, task: str) -> Spec:
        """What methods may know of ``task``."""
        return spec(self._single(task))

    def _single(self, task: str) -> partial[PettingZooEnv]:
        if task not in self.tasks():
            raise unknown("task of suite mpe", task, self.tasks())
        self.engine_version()
        game = task.removesuffix(CONTINUOUS)
        arguments = {"max_cycles": LIMIT, "continuous_actions": task != game}
        path = f"{GAMES[game].module}:parallel_env"
        return partial(build, path, arguments, reward="sum", episode_limit=LIMIT)


LIMIT = 25
"""Steps an episode, the package's default and the papers'."""
