"""What a suite of tasks is, and a vectorised environment. A suite is data and a constructor."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Protocol, runtime_checkable

import torch
from torch import Tensor

from harness.errors import UserError, unknown
from harness.types import Spec, Step


@dataclass(frozen=True)
class Budget:
    """How much a trial may use and how it is measured (Gorsane et al. 2022)."""

    env_steps: int
    """Environment steps of training, summed over parallel environments; idle steps are not counted."""
    eval_every: int
    """Environment steps between evaluations; the first is at 0, the last at ``env_steps``."""
    eval_episodes: int = 32
    """Greedy episodes an evaluation."""
    final_episodes: int = 320
    """Fresh greedy episodes of the best policy, for the absolute metric."""
    checkpoint_every: int = 50_000
    """Environment steps between checkpoints."""
    seeds: int = 10
    """Seeds when the user names none."""


@dataclass(frozen=True)
class Task:
    """One task of a suite, as data."""

    name: str
    action: str
    """"discrete" or "continuous"."""
    metric: str = "return"
    """What an episode is scored by: "return" or one of the spec's outcomes."""
    bounds: tuple[float, float] = (0.0, 1.0)
    """Values of ``metric`` that count as 0 and 1 when tasks are aggregated; declared, never taken from results."""
    references: Mapping[str, float] = field(default_factory=dict)
    """Known values of ``metric`` to draw beside the curves, e.g. ``{"random": 0.0, "scripted": 0.52}``."""
    doc: str = ""

    def __post_init__(self) -> None:
        """Raises ``UserError`` for bounds that no value lies between, or an action kind that there is not."""
        if not self.bounds[0] < self.bounds[1]:
            raise UserError(f"task {self.name}: bounds {self.bounds}: the first must be below the second")
        if self.action not in ("discrete", "continuous"):
            raise unknown(f"action kind of task {self.name}:", self.action, ("discrete", "continuous"))

    def score(self, value: float) -> float:
        """``value`` of ``metric`` on the scale where the bounds are 0 and 1 (not clipped)."""
        low, high = self.bounds
        return (value - low) / (high - low)


class EpisodeVoid(Exception):
    """Raised by ``VecEnv.step`` when an environment had to be restarted in the middle of an episode.

    What was played since ``reset`` counts for nothing; ``reset`` (with another seed) begins a new round. How often this
    may happen is bounded by the environment, which raises another error in the end.
    """


@runtime_checkable
class VecEnv(Protocol):
    """E environments stepped together, all tensors on one device.

    Optional: ``record() -> dict[str, Any]``, JSON values about the episodes begun so far that a reader of the results
    must know (a known defect's count, say), kept with the trial.

    Optional: ``scene(index: int, action: Tensor) -> harness.scene.Scene | None``, what environment ``index`` looks like
    now, for ``harness replay``; ``action`` [N] int64 | [N,U] float32 is what its agents have chosen at this moment, or
    the last they did once its episode is over. None: this one cannot be drawn. It changes nothing in the environment.
    """

    spec: Spec
    num_envs: int

    def reset(self, seed: int) -> Step:
        """Begin E new episodes. They depend on ``seed`` (any 63-bit int) and the actions alone: no other state."""
        ...

    def step(self, action: Tensor) -> Step:
        """Play ``action`` [E,N] int64 | [E,N,U] float32 in every environment that is not finished; the others idle."""
        ...

    def close(self) -> None:
        """Free whatever is held. Safe to call twice."""
        ...


@runtime_checkable
class Suite(Protocol):
    """A frozen dataclass: its fields are settings of the command line (``engine=smax``), its class attributes data.

    The docstring's first line is what ``harness list suites`` prints.
    """

    name: ClassVar[str]
    budgets: ClassVar[Mapping[str, Budget]]
    """By budget name: at least "smoke" (seconds), "quick" (minutes) and "paper" (published protocol)."""
    algorithms: ClassVar[tuple[str, ...]]
    """Names of the methods run when the user names none, where their action kind allows."""
    default_tasks: ClassVar[tuple[str, ...]]
    """Tasks run when the user names none."""

    def tasks(self) -> Mapping[str, Task]:
        """Every task by name. Cheap: no heavy import."""
        ...

    def engine_version(self) -> str:
        """What computes the physics, with its version, e.g. "smax 0.2.0"; results of two engines are never pooled.

        Raises ``harness.errors.UserError`` when the engine asked for is not installed.
        """
        ...

    # A suite that knows a task's sizes without starting it also has ``spec(task) -> Spec | None``, from which the plan
    # estimates the replay's memory.

    def make(self, task: str, num_envs: int, device: torch.device) -> VecEnv:
        """The environments of one task, in this process. Heavy imports happen here."""
        ...
