"""The one structure that every statistic reads: seeds x tasks x points of each method.

``Scores.runs[method, task]`` holds that cell's seeds in order of seed. A ``Run`` is one finished trial: the mean
of the task's metric over the episodes of each evaluation (points [P]), and over the episodes of the final evaluation
of its best policy (the absolute metric, Gorsane et al. 2022), one number. Episodes are averaged here and nowhere
else: from here on the seed is the unit.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import pandas as pd

from harness.analysis import energy
from harness.analysis.bootstrap import Array
from harness.errors import UserError, unknown
from harness.store import Results

Level = Literal["info", "warning"]
OUTCOME_BOUNDS = (0.0, 1.0)
OVERSHOOT = 1.02
"""Budgets no further apart than this factor are the same."""


@dataclass(frozen=True)
class Notice:
    """Something a reader of the numbers must know."""

    level: Level
    topic: str
    """Which guard spoke, e.g. "seeds", "budget", "engine"."""
    text: str
    """One sentence or two."""


@dataclass(frozen=True)
class TaskInfo:
    """A task as its trials recorded it."""

    suite: str
    name: str
    metric: str
    low: float
    high: float
    references: Mapping[str, float] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """suite/name, unique in a report."""
        return f"{self.suite}/{self.name}"

    def normalise(self, values: Array) -> Array:
        """``values`` of the metric on the scale where the declared bounds are 0 and 1 (not clipped)."""
        return (np.asarray(values, float) - self.low) / (self.high - self.low)

    @property
    def label(self) -> str:
        """The metric in words, for an axis."""
        if self.metric == "won":
            return "win rate"
        return self.metric.replace("_", " ")


@dataclass(frozen=True)
class Run:
    """One seed of one method on one task. What it took by each point is None where that was not recorded."""

    trial: str
    algorithm: str
    task: str
    seed: int
    engine: str
    record: Mapping[str, Any]
    steps: NDInt
    """[P] environment steps of the evaluations, increasing."""
    values: Array
    """[P] mean of the metric over the evaluation's episodes."""
    updates: Array | None = None
    """[P] gradient updates done by then."""
    seconds: Array | None = None
    """[P] seconds of wall time in training by then, evaluations left out."""
    cpu_seconds: Array | None = None
    """[P] CPU seconds of training by then, child processes included."""
    joules: Array | None = None
    """[P] energy of training by then, of what ``harness.analysis.energy.scope`` says."""
    final: float | None = None
    """Mean of the metric over the final evaluation's episodes."""
    final_episodes: int = 0
    final_steps: int | None = None
    """Environment steps at which the best policy was found."""
    trained: str = ""
    """A sum over everything it logged in training, to the last digit; empty where nothing was."""
    measured: str = ""
    """A digest of every number of every episode of its evaluations and of its final one; empty where it has none."""

    @property
    def last(self) -> float | None:
        """The metric at its last evaluation; None for a run that has none."""
        return float(self.values[-1]) if len(self.values) else None

    def until(self, step: float | None) -> Run:
        """The same run with its evaluations up to ``step`` alone; all of them for None."""
        if step is None:
            return self
        n = int(np.searchsorted(self.steps, step * (1 + 1e-9), side="right"))
        axes = ("updates", "seconds", "cpu_seconds", "joules")
        cut: dict[str, Any] = {name: None if (x := getattr(self, name)) is None else x[:n] for name in axes}
        return replace(self, steps=self.steps[:n], values=self.values[:n], **cut)

    @property
    def budget(self) -> int:
        """Environment steps it trained for: as set where it is complete, else as far as it was evaluated."""
        last = int(self.steps[-1]) if len(self.steps) else 0
        if self.record.get("status") != "complete":
            return last
        settings = self.record.get("settings") or {}
        return int((settings.get("budget") or {}).get("env_steps") or self.record.get("env_steps") or last)


NDInt = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True)
class Scores:
    """Runs by method and task, tasks and methods in a fixed order (by name), and what the guards had to say."""

    tasks: tuple[TaskInfo, ...]
    algorithms: tuple[str, ...]
    runs: Mapping[tuple[str, str], tuple[Run, ...]]
    notices: tuple[Notice, ...] = ()
    unfinished: tuple[Mapping[str, Any], ...] = ()
    """Records of trials that are not complete."""

    def cell(self, algorithm: str, task: TaskInfo) -> tuple[Run, ...]:
        """The seeds of one method on one task, perhaps none."""
        return self.runs.get((algorithm, task.key), ())

    def present(self, task: TaskInfo) -> tuple[str, ...]:
        """Methods that have runs on ``task``."""
        return tuple(a for a in self.algorithms if self.cell(a, task))

    def common_step(self, task: TaskInfo) -> int | None:
        """The environment steps that all runs on ``task`` were trained for, where some were trained for more; None
        where all had the same budget (whole episodes overshoot one by a little)."""
        spent = [r.budget for a in self.present(task) for r in self.cell(a, task)]
        return None if max(spent) <= OVERSHOOT * min(spent) else min(spent)

    def all_runs(self) -> Iterable[Run]:
        """Every run."""
        for cell in self.runs.values():
            yield from cell

    def with_notices(self, *notices: Notice) -> Scores:
        """The same scores with more notices."""
        return replace(self, notices=self.notices + notices)


# -- from tables -----------------------------------------------------------------------------------------------------


def task_info(record: Mapping[str, Any]) -> TaskInfo:
    """What a trial recorded of its task. Bounds that are missing are [0, 1] for outcomes and an error for returns."""
    metric = str(record.get("metric") or "return")
    bounds = record.get("bounds")
    if bounds is None:
        if metric == "return":
            raise UserError(f"{record.get('suite')}/{record.get('task')}: trial.json declares no bounds for the return")
        bounds = OUTCOME_BOUNDS
    low, high = float(bounds[0]), float(bounds[1])
    if not low < high:
        raise UserError(f"{record.get('suite')}/{record.get('task')}: bounds [{low}, {high}] are empty")
    references = {str(k): float(v) for k, v in (record.get("references") or {}).items()}
    return TaskInfo(str(record["suite"]), str(record["task"]), metric, low, high, references)


def _points(table: pd.DataFrame, metric: str) -> pd.DataFrame:
    """Means over episodes by trial and env_steps; columns mean, episodes, missing."""
    if metric not in table:
        return pd.DataFrame(columns=["trial", "env_steps", "mean", "size", "count"])
    grouped = table.groupby(["trial", "env_steps"], sort=True, observed=True)[metric].agg(["mean", "size", "count"])
    return grouped.reset_index()


def _by_trial(table: pd.DataFrame) -> dict[str, pd.DataFrame]:
    if table.empty:
        return {}
    return {str(k): part for k, part in table.groupby("trial", sort=False, observed=True)}


def _at(steps: NDInt, timings: pd.DataFrame | None, column: str) -> Array | None:
    """``column`` of a trial's timings at ``steps``, linear between rows and flat outside."""
    if timings is None or column not in timings or timings[column].isna().any():
        return None
    ordered = timings.sort_values("env_steps", kind="stable")
    return np.asarray(np.interp(steps, ordered["env_steps"].to_numpy(float), ordered[column].to_numpy(float)))


def _sums(metrics: pd.DataFrame) -> dict[str, str]:
    """Trial -> the sum of all its training metrics: two runs that share it to the last digit are one."""
    if metrics.empty or "value" not in metrics:
        return {}
    sums = metrics.groupby("trial", sort=False, observed=True)["value"].sum()
    return {str(trial): repr(float(x)) for trial, x in sums.items()}


def _digests(table: pd.DataFrame) -> dict[str, str]:
    """Trial -> a digest of its rows: everything that was measured of every episode."""
    if table.empty:
        return {}
    columns = {str(c): table[c] for c in table if c != "trial"}
    alike = {c: x.astype(float) if pd.api.types.is_numeric_dtype(x) else x.astype(str) for c, x in columns.items()}
    rows = pd.util.hash_pandas_object(pd.DataFrame(dict(sorted(alike.items()))), index=False)
    sums = rows.groupby(table["trial"], sort=False, observed=True).sum()
    return {str(trial): f"{int(x):x}" for trial, x in sums.items()}


class _Tables:
    """The tables of a ``Results``, averaged over episodes and split by trial, one metric at a time."""

    def __init__(self, results: Results) -> None:
        self.results = results
        self.timings = _by_trial(results.timings)
        self.trained = _sums(results.metrics)
        self.measured = [_digests(results.evaluations), _digests(results.final)]
        self.cache: dict[tuple[str, str], dict[str, pd.DataFrame]] = {}

    def points(self, table: str, metric: str) -> dict[str, pd.DataFrame]:
        if (table, metric) not in self.cache:
            self.cache[table, metric] = _by_trial(_points(getattr(self.results, table), metric))
        return self.cache[table, metric]

    def run(self, trial: str, record: Mapping[str, Any], info: TaskInfo) -> tuple[Run, list[Notice]]:
        notices = []
        points = self.points("evaluations", info.metric).get(trial)
        if points is None:
            steps, values = np.zeros(0, np.int64), np.zeros(0)
        else:
            whole = points[points["size"] == points["count"]]
            if len(whole) < len(points):
                n = len(points) - len(whole)
                text = f"{trial}: {n} evaluations hold missing values of {info.metric}; left out."
                notices.append(Notice("warning", "missing", text))
            steps, values = whole["env_steps"].to_numpy(np.int64), whole["mean"].to_numpy(float)
        final = self.points("final", info.metric).get(trial)
        last = None if final is None else final.iloc[-1]
        if last is not None and last["size"] != last["count"]:
            text = f"{trial}: the final evaluation holds missing values; left out."
            notices.append(Notice("warning", "missing", text))
            last = None
        timings = self.timings.get(trial)
        run = Run(
            trial=trial,
            algorithm=str(record["algorithm"]),
            task=info.key,
            seed=int(record["seed"]),
            engine=str(record.get("engine") or ""),
            record=record,
            steps=steps,
            values=values,
            updates=_at(steps, timings, "updates"),
            seconds=_at(steps, timings, "seconds"),
            cpu_seconds=_at(steps, timings, "cpu_seconds"),
            joules=_at(steps, energy.joules(timings, record), "joules"),
            final=None if last is None else float(last["mean"]),
            final_episodes=0 if last is None else int(last["size"]),
            final_steps=None if last is None else int(last["env_steps"]),
            trained=self.trained.get(trial, ""),
            measured=" ".join(x[trial] for x in self.measured if trial in x),
        )
        return run, notices


def from_results(
    results: Sequence[Results],
    *,
    partial: bool = False,
    suites: Sequence[str] = (),
    tasks: Sequence[str] = (),
    algorithms: Sequence[str] = (),
) -> Scores:
    """All finished trials of ``results``; ``partial`` takes unfinished ones too (curves only). No guard is applied yet.

    Raises ``UserError`` when nothing is left, or when one task is recorded with two metrics or two pairs of bounds.
    """
    runs: dict[tuple[str, str], list[Run]] = {}
    infos: dict[str, TaskInfo] = {}
    notices: list[Notice] = []
    unfinished: list[Mapping[str, Any]] = []
    there: dict[str, set[str]] = {"task": set(), "algorithm": set()}
    for part in results:
        tables = _Tables(part)
        damaged = (f"Could not be read and is left out: {why}." for _, why in part.damaged)
        notices += [Notice("warning", "damaged", text) for text in damaged]
        for trial, record in zip(part.trials["trial"], part.trials["record"]):
            there["task"].add(str(record["task"]))
            there["algorithm"].add(str(record["algorithm"]))
            if not (_wanted(record["suite"], suites) and _wanted(record["task"], tasks)):
                continue
            if not _wanted(record["algorithm"], algorithms):
                continue
            if record.get("status") != "complete":
                unfinished.append(record)
                if not partial or record.get("bounds") is None:  # it had not come as far as its task
                    continue
            info = task_info(record)
            _same_task(infos.setdefault(info.key, info), info)
            run, found = tables.run(str(trial), record, info)
            notices += found
            runs.setdefault((run.algorithm, info.key), []).append(run)
    _check_names("task", tasks, there["task"])
    _check_names("algorithm", algorithms, there["algorithm"])
    if not runs:
        raise UserError(_nothing(unfinished))
    names = sorted({a for a, _ in runs})
    with_runs = {t for _, t in runs}
    return Scores(
        tasks=tuple(infos[k] for k in sorted(infos, key=_natural) if k in with_runs),
        algorithms=tuple(names),
        runs={k: tuple(sorted(v, key=lambda r: (r.seed, r.trial))) for k, v in sorted(runs.items())},
        notices=tuple(notices),
        unfinished=tuple(unfinished),
    )


def _wanted(name: str, names: Sequence[str]) -> bool:
    return not names or name in names


def _check_names(what: str, asked: Sequence[str], known: Iterable[str]) -> None:
    known = list(known)
    for name in asked:
        if name not in known:
            raise unknown(what, name, known)


def _natural(key: str) -> tuple[object, ...]:
    """Sort key in which 3m stands before 10m and penalty_25 before penalty_100."""
    suite, _, name = key.partition("/")
    parts = re.split(r"(\d+)", name)
    return suite, tuple(int(p) if k % 2 else p for k, p in enumerate(parts))


def _same_task(first: TaskInfo, other: TaskInfo) -> None:
    for what in ("metric", "low", "high"):
        a, b = getattr(first, what), getattr(other, what)
        if a != b:
            raise UserError(f"{first.key}: trials disagree about the task's {what} ({a} and {b}); report them apart")


def _nothing(unfinished: Sequence[Mapping[str, Any]]) -> str:
    if not unfinished:
        return "no trial matches"
    counts = pd.Series([str(r.get("status")) for r in unfinished]).value_counts()
    states = ", ".join(f"{n} {status}" for status, n in counts.items())
    return f"no complete trial ({states}); finish them with the same `harness run` command, or pass --partial"
