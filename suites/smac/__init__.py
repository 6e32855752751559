"""SMAC and SMACv2 battles (Samvelyan et al. 2019, Ellis et al. 2023), on SMAX or the real StarCraft II."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from importlib.metadata import PackageNotFoundError, version
from typing import ClassVar, Literal

import torch

from harness.errors import UserError, unknown
from harness.suite import Budget, Task, VecEnv
from harness.types import Spec
from suites.smac import smacv2
from suites.smac.maps import MAPS, Map


@dataclass(frozen=True)
class SMAC:
    """SMAC and SMACv2: a team of units against a scripted enemy, scored by battles won."""

    engine: Literal["auto", "smax", "smacv2"] = "auto"
    """What plays the battles: "smax" (embedded), "smacv2" (StarCraft II) or "auto": StarCraft II where installed."""
    see_enemy_actions: bool = True
    """Observations hold the last move and the last target of visible enemies (SMAX)."""
    walls_cause_death: bool = True
    """A unit that touches the edge of the map dies (SMAX)."""
    attack_mode: Literal["closest", "random"] = "closest"
    """Which unit in range the scripted enemy attacks (SMAX)."""
    reward_scale: float = 10.0
    """Factor on SMAX's reward, whose win is worth 2: at 10 a win returns 20, StarCraft II SMAC's own scale."""

    name: ClassVar[str] = "smac"
    budgets: ClassVar[Mapping[str, Budget]] = {
        "smoke": Budget(env_steps=20_000, eval_every=10_000, eval_episodes=8, final_episodes=16, seeds=2),
        "quick": Budget(env_steps=200_000, eval_every=20_000, eval_episodes=32, final_episodes=128, seeds=5),
        "paper": Budget(env_steps=2_000_000, eval_every=10_000, eval_episodes=32, final_episodes=320, seeds=10),
    }
    algorithms: ClassVar[tuple[str, ...]] = ("mcem", "vdn", "qmix", "facmac", "ippo")
    default_tasks: ClassVar[tuple[str, ...]] = ("3m", "2s3z")

    def tasks(self) -> Mapping[str, Task]:
        """Every battle of the engine by name, scored by "won" in [0,1]."""
        if self._engine() == "smacv2":
            return smacv2.tasks()
        known = self.walls_cause_death and self.attack_mode == "closest"
        return {name: _task(name, scenario, known) for name, scenario in MAPS.items()}

    def engine_version(self) -> str:
        """The engine in use and its version, e.g. "smax 0.2.0". Raises ``UserError`` when it is not installed."""
        if self._engine() == "smacv2":
            self._refuse_smax_settings()
            return smacv2.engine_version()
        try:
            return f"smax {version('jaxmarl')}"
        except PackageNotFoundError as error:
            raise UserError(
                "engine smax needs the package jaxmarl, which is not installed; pip install jaxmarl==0.2.0"
            ) from error

    def make(self, task: str, num_envs: int, device: torch.device) -> VecEnv:
        """Battles of ``task``. Raises ``UserError`` for an unknown task or a missing engine."""
        tasks = self.tasks()
        if task not in tasks:
            raise unknown("task of suite smac", task, tasks)
        self.engine_version()
        if self._engine() == "smacv2":
            return smacv2.make(task, num_envs, device)
        from suites.smac.smax import SMAXVecEnv  # JAX is heavy

        return SMAXVecEnv(
            task,
            num_envs,
            device,
            see_enemy_actions=self.see_enemy_actions,
            walls_cause_death=self.walls_cause_death,
            attack_mode=self.attack_mode,
            reward_scale=self.reward_scale,
        )

    def spec(self, task: str) -> Spec | None:
        """Sizes of ``task`` without starting it; None for StarCraft II, which tells them only once it runs."""
        return None if self._engine() == "smacv2" else MAPS[task].spec()

    def _engine(self) -> Literal["smax", "smacv2"]:
        """``engine`` with "auto" resolved: StarCraft II where package and game are."""
        if self.engine != "auto":
            return self.engine
        return "smax" if smacv2.missing() else "smacv2"

    def _refuse_smax_settings(self) -> None:
        """StarCraft II has none of them; taking one and doing nothing would be a lie in the results."""
        changed = [
            field.name
            for field in fields(self)
            if field.name != "engine" and getattr(self, field.name) != field.default
        ]
        if changed:
            raise UserError(
                f"{', '.join(changed)}: a setting of SMAX that StarCraft II lacks; leave it out or use engine=smax"
            )


def _task(name: str, scenario: Map, known: bool) -> Task:
    references = {"random": scenario.random, "scripted": scenario.scripted} if known else {}
    doc = f"{scenario.allies} against {scenario.enemies}: {scenario.units}"
    return Task(name, action="discrete", metric="won", bounds=(0.0, 1.0), references=references, doc=doc)
