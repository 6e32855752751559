"""What a running trial says of itself: identity and costs in its record, means of its metrics, rows, progress."""

from __future__ import annotations

import contextlib
import math
import resource
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

import psutil
import torch

from harness import registry, variant
from harness.algorithm import Algorithm
from harness.learner import Learner
from harness.provenance import provenance
from harness.suite import Task, VecEnv
from harness.types import Progress, Trial

Tell = Callable[[Progress], None]


def now() -> str:
    """This moment, to the second, in UTC."""
    return datetime.now(UTC).isoformat(timespec="seconds")


# -- trial.json -------------------------------------------------------------------------------------------------------


def identity(trial: Trial, algorithm: Algorithm, task: Task, learner: Learner) -> dict[str, Any]:
    """What trial.json holds of a trial before it has done anything: what, with which settings, on what machine."""
    return {
        "experiment": trial.experiment, "suite": trial.suite, "task": trial.task, "algorithm": trial.algorithm,
        "seed": trial.seed, "settings": dict(trial.settings), "engine": trial.settings["engine"],
        "metric": task.metric, "bounds": list(task.bounds), "references": dict(task.references),
        "device": trial.device, "num_envs": algorithm.num_envs,
        "parameters": {name: sum(p.numel() for p in child.parameters()) for name, child in learner.net.items()},
        "source": {
            "algorithm": registry.source(registry.ALGORITHMS, variant.base(trial.algorithm)),
            "suite": registry.source(registry.SUITES, trial.suite),
        },
        "reason": None, "traceback": None, "status": "running", **provenance(trial.device),
    }  # fmt: skip


def counts(env: VecEnv, before: Mapping[str, Any]) -> dict[str, Any]:
    """What ``env`` has counted (restarts, defects), with what it had before the trial was continued."""
    return _sum(before, getattr(env, "record", dict)())


def _sum(a: Mapping[str, Any], b: Mapping[str, Any]) -> dict[str, Any]:
    """Numbers of both added up, name by name and level by level; anything else as it was last."""
    found = dict(a) | dict(b)
    for name in a.keys() & b.keys():
        if isinstance(a[name], Mapping):
            found[name] = _sum(a[name], b[name])
        elif isinstance(a[name], (int, float)):
            found[name] = a[name] + b[name]
    return found


def costs(learner: Learner, device: torch.device, env_steps: int, transitions: int,
          seconds: tuple[float, float]) -> dict[str, Any]:  # fmt: skip
    """What trial.json holds of what was used so far.

    ``transitions`` went through the gradient steps of the first loss, each as often as it was used again; ``seconds``
    of training and of evaluation.
    """
    training, evaluation = seconds
    return {
        "env_steps": env_steps, "updates": learner.updates, "episodes": learner.episodes,
        "samples_per_update": transitions / learner.updates if learner.updates else None,
        "train_seconds": training, "eval_seconds": evaluation, "wall_seconds": training + evaluation,
        "peak_memory_bytes": _peak_memory(device),
    }  # fmt: skip


def _peak_memory(device: torch.device) -> int:
    """Most bytes held so far: of the device where it is a GPU; else of this process, with what the processes of its
    environments hold of their own now."""
    if device.type == "cuda":
        return int(torch.cuda.max_memory_allocated(device))
    held = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):  # gone meanwhile
            held += child.memory_full_info().uss
    return held


# -- tables -----------------------------------------------------------------------------------------------------------


class Means:
    """Running means of training metrics between two points of the evaluation grid."""

    def __init__(self) -> None:
        self.sums: dict[str, torch.Tensor] = {}
        self.counts: dict[str, int] = {}

    def add(self, metrics: Mapping[str, torch.Tensor]) -> None:
        """Count one more value of each metric; nothing is moved off the device."""
        for name, value in metrics.items():
            value = value.to(torch.float64)
            self.sums[name] = self.sums[name] + value if name in self.sums else value
            self.counts[name] = self.counts.get(name, 0) + 1

    def take(self) -> dict[str, float]:
        """The means so far, by name; begins anew."""
        means = {name: float(total) / self.counts[name] for name, total in sorted(self.sums.items())}
        self.sums, self.counts = {}, {}
        return means

    def state_dict(self) -> dict[str, Any]:
        """For the checkpoint."""
        return {"sums": dict(self.sums), "counts": dict(self.counts)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Put back what ``state_dict`` gave."""
        self.sums, self.counts = state["sums"], state["counts"]


def episode_rows(env_steps: int, found: Mapping[str, list[float]]) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
    """Columns and rows, one an episode, of what ``evaluate.run`` found."""
    episodes = enumerate(zip(*found.values(), strict=True))
    return ("env_steps", "episode", *found), [(env_steps, k, *map(_exact, values)) for k, values in episodes]


def trouble(found: Mapping[str, list[float]], metrics: tuple[str, ...]) -> str | None:
    """Which of ``metrics`` is not finite, in words: "return is NaN in 3 of 32"; None while all is well."""
    for metric in metrics:
        values = found.get(metric, [])
        if wrong := [x for x in values if not math.isfinite(x)]:
            return (
                f"{metric} is {'NaN' if any(map(math.isnan, wrong)) else 'infinite'} in {len(wrong)} of {len(values)}"
            )
    return None


def mean(values: list[float]) -> float:
    """Exactly rounded, whatever the order."""
    return math.fsum(values) / len(values)


def _exact(value: float) -> float | int:
    return int(value) if value.is_integer() else value


# -- progress ---------------------------------------------------------------------------------------------------------


class Voice:
    """Tells the runner where a trial stands: of training at most every half second."""

    def __init__(self, tell: Tell, total: int, metric: str) -> None:
        self.tell, self.total, self.metric = tell, total, metric
        self.last_eval: float | None = None
        self._speed = 0.0
        self._last: Progress | None = None
        self._told = time.monotonic()
        self.heard(0)

    def heard(self, env_steps: int) -> None:
        """Measure the speed from this moment on."""
        self._then, self._before = time.monotonic(), env_steps

    def say(self, phase: str, env_steps: int) -> None:
        """``phase`` is one of ``Progress``'s."""
        passed = time.monotonic() - self._then
        if phase == "training":
            if passed < 0.5:
                return
            recent = (env_steps - self._before) / passed
            self._speed = recent if not self._speed else 0.7 * self._speed + 0.3 * recent
        self.heard(env_steps)
        at = min(env_steps, self.total)
        self._last = Progress(at, self.total, self._speed, phase, self.metric, self.last_eval)
        self._tell()

    def alive(self) -> None:
        """A sign of life within a long stretch, at most one a second: where the trial stands has not changed.

        Whatever can take minutes in all (a round, an evaluation, a round's learning, a measurement) calls it at each of
        its steps, so that a runner hears nothing only where one step hangs.
        """
        if time.monotonic() - self._told > 1:
            self._tell()

    def _tell(self) -> None:
        self._told = time.monotonic()
        if self._last is not None:
            self.tell(self._last)
