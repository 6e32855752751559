"""Any cooperative PettingZoo environment: ``suite=pettingzoo env=module:factory``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from importlib.metadata import packages_distributions
from typing import Any, ClassVar, Literal

import torch

from harness.errors import UserError, unknown
from harness.suite import Budget, Task, VecEnv
from harness.types import Spec
from suites.adapters.packages import versions
from suites.adapters.pettingzoo import PettingZooEnv, Reward, State, build
from suites.adapters.vectorise import Stepping, spec, vectorise

TASK = "environment"


@dataclass(frozen=True)
class PettingZoo:
    """Any cooperative PettingZoo environment, Parallel or AEC, named by env=module:factory."""

    env: str = ""
    """"module:factory", e.g. "mpe2.simple_spread_v3:parallel_env"; it returns a Parallel or AEC environment."""
    args: str = "{}"
    """Its keyword arguments as JSON, e.g. '{"N": 5, "max_cycles": 50}'."""
    action: Literal["discrete", "continuous"] = "discrete"
    """Which actions it has with these arguments."""
    limit: int = 500
    """Steps after which an episode is cut (truncated) if the environment has not ended it before."""
    reward: Reward = "sum"
    """The team's reward: the sum of the agents' rewards, or their mean over all agents."""
    state: State = "auto"
    """The state: the environment's own ``state()`` if it has one ("auto"), or all observations ("concat")."""
    low: float = 0.0
    """Return that counts as 0 when tasks are aggregated."""
    high: float = 1.0
    """Return that counts as 1 when tasks are aggregated."""
    stepping: Stepping = "process"
    """Each environment in a process of its own ("process"), or all in a loop in the trial's ("inline")."""

    name: ClassVar[str] = "pettingzoo"
    budgets: ClassVar[Mapping[str, Budget]] = {
        "smoke": Budget(env_steps=4_000, eval_every=2_000, eval_episodes=4, final_episodes=8, seeds=2),
        "quick": Budget(env_steps=200_000, eval_every=20_000, eval_episodes=16, final_episodes=64, seeds=3),
        "paper": Budget(env_steps=2_000_000, eval_every=50_000, eval_episodes=32, final_episodes=320, seeds=10),
    }
    algorithms: ClassVar[tuple[str, ...]] = ("mcem", "vdn", "qmix", "facmac", "ippo")
    default_tasks: ClassVar[tuple[str, ...]] = (TASK,)

    def tasks(self) -> Mapping[str, Task]:
        """One task, "environment": what ``env`` names."""
        return {TASK: Task(TASK, self.action, bounds=(self.low, self.high), doc=self.env or "what env= names")}

    def engine_version(self) -> str:
        """The environment, its arguments, and the versions of its packages: all that sets its results apart."""
        arguments = json.dumps(self._arguments(), sort_keys=True)
        own = packages_distributions().get(self._path().split(".")[0].split(":")[0], [])
        return f"{self.env} {arguments}, {versions('pettingzoo', *sorted({'pettingzoo', *own}))}"

    def make(self, task: str, num_envs: int, device: torch.device) -> VecEnv:
        """The environments. Raises ``UserError`` naming what is missing or cannot be played."""
        env = vectorise(self._single(task), num_envs, device, f"pettingzoo {self.env}", self.stepping)
        if env.spec.action.kind != self.action:
            env.close()
            raise UserError(f"env={self.env} has {env.spec.action.kind} actions; set action={env.spec.action.kind}")
        return env

    def spec(self, task: str) -> Spec:
        """What methods may know of ``task``."""
        return spec(self._single(task))

    def _single(self, task: str) -> partial[PettingZooEnv]:
        if task != TASK:
            raise unknown("task of suite pettingzoo", task, [TASK])
        self.engine_version()
        if self.limit < 1:
            raise UserError(f"limit={self.limit}: an episode has at least one step")
        return partial(
            build, self._path(), self._arguments(), reward=self.reward, episode_limit=self.limit, state=self.state
        )

    def _path(self) -> str:
        if not self.env:
            raise UserError("suite pettingzoo needs env=module:factory, e.g. env=mpe2.simple_spread_v3:parallel_env")
        return self.env

    def _arguments(self) -> dict[str, Any]:
        try:
            found = json.loads(self.args)
        except json.JSONDecodeError as error:
            raise UserError(f"args={self.args!r} is not JSON: {error}; e.g. args='{{\"N\": 5}}'") from error
        if not isinstance(found, dict):
            raise UserError(f"args={self.args!r} is not a JSON object; e.g. args='{{\"N\": 5}}'")
        return found
