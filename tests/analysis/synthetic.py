"""Made-up results with known truth, written as a trial writes its own: through ``TrialFolder``."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from harness.store import TrialFolder

METHODS: Mapping[str, tuple[float, float]] = {
    "facmac": (0.72, 0.30), "ippo": (0.55, 0.55), "mcem": (0.90, 0.22), "qmix": (0.86, 0.28), "vdn": (0.74, 0.33),
}  # fmt: skip
"""Method -> (where it ends, share of the budget at which it is half way there)."""
TASKS = ("3m", "8m", "2s3z", "3s5z", "5m_vs_6m", "10m_vs_11m", "3s_vs_5z", "MMM2", "corridor", "27m_vs_30m")


@dataclass
class Made:
    """Knobs of ``write``."""

    root: Path
    experiment: str = "made"
    suite: str = "smac"
    tasks: Sequence[str] = ("3m",)
    methods: Mapping[str, tuple[float, float]] = field(default_factory=lambda: dict(METHODS))
    seeds: Sequence[int] = tuple(range(10))
    env_steps: int = 2_000_000
    points: int = 41
    eval_episodes: int = 32
    final_episodes: int = 320
    metric: str = "won"
    bounds: tuple[float, float] = (0.0, 1.0)
    references: Mapping[str, float] = field(default_factory=lambda: {"scripted": 0.52})
    engine: str = "smax 0.2.0"
    spread: float = 0.06
    record: Mapping[str, Any] = field(default_factory=dict)
    """Merged into every trial.json."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Merged into every method's settings."""
    metrics_rows: int = 0
    """Rows of metrics.csv a point."""

    @property
    def path(self) -> Path:
        """The experiment's folder."""
        return self.root / self.experiment


def write(made: Made) -> Path:
    """Write every trial; the experiment's folder."""
    for t, task in enumerate(made.tasks):
        for m, method in enumerate(made.methods):
            for seed in made.seeds:
                trial(made, task, method, seed, np.random.default_rng([t, m, seed]))
    return made.path


def trial(made: Made, task: str, method: str, seed: int, rng: np.random.Generator, status: str = "complete") -> Path:
    """One trial's folder; one that is not complete stops half way and has no final evaluation."""
    folder = TrialFolder(made.path / made.suite / task / method / f"seed_{seed}")
    end, half = made.methods[method]
    difficulty = 0.25 * (made.tasks.index(task) / max(1, len(made.tasks) - 1)) if task in made.tasks else 0.0
    end = min(0.99, max(0.02, end - difficulty + made.spread * rng.standard_normal()))
    half = max(0.05, half * (1 + 0.25 * rng.standard_normal()))
    steps = np.linspace(0, made.env_steps, made.points).round().astype(int)
    done = made.points if status == "complete" else made.points // 2
    rates = [end / (1 + math.exp(-10 * (s / made.env_steps - half))) for s in steps[:done]]
    columns = ("env_steps", "episode", "return", "length", "won")
    best = int(np.argmax(rates))
    rows = [row for s, p in zip(steps, rates) for row in _episodes(made, int(s), p, made.eval_episodes, rng)]
    folder.append("evaluations.csv", columns, rows)
    if status == "complete":
        folder.append("final.csv", columns, _episodes(made, int(steps[best]), rates[best], made.final_episodes, rng))
    speed = 9_000 + 1_500 * len(method)
    folder.append("timings.csv", ("env_steps", "updates", "seconds"),
                  [(int(s), int(s) // 60, float(s / speed)) for s in steps[:done]])  # fmt: skip
    if made.metrics_rows:
        names = [f"critic/metric_{k}" for k in range(made.metrics_rows)]
        folder.append("metrics.csv", ("env_steps", "metric", "value"),
                      [(int(s), n, float(rng.standard_normal())) for s in steps[:done] for n in names])  # fmt: skip
    folder.update(**{**_record(made, task, method, seed, status, int(steps[done - 1]), speed), **made.record})
    return folder.path


def _episodes(made: Made, step: int, rate: float, n: int, rng: np.random.Generator) -> list[tuple[Any, ...]]:
    won = (rng.random(n) < rate).astype(int)
    low, high = made.bounds if made.metric == "return" else (0.0, 20.0)
    returns = np.clip(
        low + (high - low) * (0.15 + 0.8 * rate) + 0.05 * (high - low) * rng.standard_normal(n), low, high
    )
    return [(step, k, float(r), 30, int(w)) for k, (r, w) in enumerate(zip(returns, won))]


def _record(made: Made, task: str, method: str, seed: int, status: str, reached: int, speed: float) -> dict[str, Any]:
    settings = {
        "algorithm": {"gamma": 0.99, "lr": 5e-4, "hidden": 64, "num_envs": 8, **made.settings},
        "suite": {"engine": "auto"},
        "budget": {"env_steps": made.env_steps, "eval_every": made.env_steps // (made.points - 1),
                   "eval_episodes": made.eval_episodes, "final_episodes": made.final_episodes},
        "engine": made.engine,
    }  # fmt: skip
    return {
        "experiment": made.experiment, "suite": made.suite, "task": task, "algorithm": method, "seed": seed,
        "status": status, "engine": made.engine, "settings": settings, "metric": made.metric,
        "bounds": list(made.bounds), "references": dict(made.references),
        "parameters": {"agent": 27_000 + 10 * len(method), "mixer": 18_000 if method in ("qmix", "mcem") else 0},
        "num_envs": 8, "env_steps": reached, "updates": reached // 60, "samples_per_update": 1_920.0,
        "wall_seconds": reached / speed, "peak_memory_bytes": 900 * 2**20 + 2**24 * len(method), "device": "cpu",
        "versions": {"harness": "0.1.0", "torch": "2.13.0", "numpy": "2.4.1"}, "commit": "a" * 40,
        "machine": {"cpu": "made-up", "cores": 2}, "started": "2025-01-01T00:00:00+00:00",
        "finished": "2025-01-01T01:00:00+00:00", "reason": None,
    }  # fmt: skip
