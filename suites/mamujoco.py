"""Multi-Agent MuJoCo (Peng et al. 2021): one robot's joints divided among agents, as in Gymnasium-Robotics."""

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

PATH = "suites.adapters.mujoco:parallel_env"
LIMIT = 1000
"""Steps an episode, Gymnasium's time limit."""


class _Robot(NamedTuple):
    scenario: str
    partition: str
    random: float  # mean return of uniform random play
    upper: float  # a round number that counts as 1; declared, not measured
    doc: str


ROBOTS: Mapping[str, _Robot] = {
    "halfcheetah_2x3": _Robot("HalfCheetah", "2x3", -304.9, 6000.0, "front leg and back leg"),
    "hopper_3x1": _Robot("Hopper", "3x1", 19.7, 3000.0, "one joint an agent"),
    "ant_2x4": _Robot("Ant", "2x4", -63.3, 4000.0, "two legs an agent"),
    "walker2d_2x3": _Robot("Walker2d", "2x3", 1.7, 4000.0, "right leg and left leg"),
    "humanoid_9_8": _Robot("Humanoid", "9|8", 116.5, 5000.0, "upper body (9 joints) and lower body (8)"),
}
"""Source of the lower figures: ``python -m benchmarks.environments bounds mamujoco``, 100 episodes each."""


@dataclass(frozen=True)
class MaMuJoCo:
    """Multi-Agent MuJoCo: the joints of one robot divided among agents, continuous."""

    obsk: int = 1
    """How many joints away an agent sees beyond its own; 0: its own only."""
    stepping: Stepping = "inline"
    """Environments in a loop in the trial's process ("inline") or each in a process of its own ("process")."""

    name: ClassVar[str] = "mamujoco"
    budgets: ClassVar[Mapping[str, Budget]] = {
        "smoke": Budget(env_steps=4_000, eval_every=2_000, eval_episodes=2, final_episodes=2, seeds=2),
        "quick": Budget(env_steps=200_000, eval_every=20_000, eval_episodes=8, final_episodes=16, seeds=3),
        "paper": Budget(env_steps=2_000_000, eval_every=40_000, eval_episodes=10, final_episodes=100, seeds=10),
    }
    algorithms: ClassVar[tuple[str, ...]] = ("mcem", "vdn", "qmix", "facmac", "ippo")
    default_tasks: ClassVar[tuple[str, ...]] = ("halfcheetah_2x3",)

    def tasks(self) -> Mapping[str, Task]:
        """Every robot with its division."""
        return {
            name: Task(
                name,
                "continuous",
                bounds=(robot.random, robot.upper),
                references={"random": robot.random},
                doc=f"{robot.scenario} {robot.partition}: {robot.doc}",
            )
            for name, robot in ROBOTS.items()
        }

    def engine_version(self) -> str:
        """Versions of the packages that compute the physics."""
        return versions("mamujoco", "gymnasium-robotics", "gymnasium", "mujoco")

    def make(self, task: str, num_envs: int, device: torch.device) -> VecEnv:
        """The environments of one task. Raises ``UserError`` for an unknown task or a missing package."""
        return vectorise(self._single(task), num_envs, device, f"mamujoco {task}", self.stepping)

    def spec(self, task: str) -> Spec:
        """What methods may know of ``task``."""
        return spec(self._single(task))

    def _single(self, task: str) -> partial[PettingZooEnv]:
        if task not in ROBOTS:
            raise unknown("task of suite mamujoco", task, ROBOTS)
        self.engine_version()
        robot = ROBOTS[task]
        arguments = {"scenario": robot.scenario, "agent_conf": robot.partition, "agent_obsk": self.obsk}
        # Every agent is given the robot's reward: their mean is the team's.
        return partial(build, PATH, arguments, reward="mean", episode_limit=LIMIT)
