"""Everything that a report says, computed once: ``study(paths, options) -> Study``."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pandas as pd

from harness.analysis import curves, energy, guards
from harness.analysis.bootstrap import (
    MIN_SEEDS,
    RESAMPLES,
    STATISTICS,
    Estimate,
    one,
    percentiles,
    pooled_iqm,
    resample,
)
from harness.analysis.compare import Endpoint, Overall, Pair, endpoint, overall, pairs
from harness.analysis.curves import Axis, Curve, Reached
from harness.analysis.fairness import Fairness, fairness
from harness.analysis.scores import Scores, TaskInfo, from_results
from harness.errors import UserError, unknown
from harness.store import Results, load


@dataclass(frozen=True)
class Options:
    """What the user may choose of an analysis."""

    match: Axis = "env_steps"
    """Methods are compared at equal env_steps, updates, seconds, cpu_seconds or joules."""
    baseline: str | None = None
    """Compare every method with this one; default: all pairs."""
    statistic: str = "mean"
    """Of the learning curves: mean, iqm or median over seeds."""
    resamples: int = RESAMPLES
    """Bootstrap resamples."""
    seed: int = 0
    """Of the bootstrap."""
    engine: str | None = None
    """Keep the trials of this engine."""
    split: bool = False
    """Show mixed engines or settings apart instead of refusing them."""
    partial: bool = False
    """Draw unfinished trials too, up to the step that all have reached."""
    suites: tuple[str, ...] = ()
    """Keep these suites."""
    tasks: tuple[str, ...] = ()
    """Keep these tasks."""
    algorithms: tuple[str, ...] = ()
    """Keep these methods."""

    @classmethod
    def of(cls, **values: Any) -> Options:
        """Checked. Raises ``UserError`` for a name or a value that is none of these."""
        known = [f.name for f in dataclasses.fields(cls)]
        for name in values:
            if name not in known:
                raise unknown("report option", name, known)
        lists = ("suites", "tasks", "algorithms")
        checked: dict[str, Any] = {k: tuple(v) if k in lists else v for k, v in values.items()}
        options = cls(**checked)
        if options.match not in get_args(Axis):
            raise unknown("match", str(options.match), get_args(Axis))
        if options.statistic not in STATISTICS:
            raise unknown("statistic", options.statistic, STATISTICS)
        if options.resamples < 100:
            raise UserError(f"resamples={options.resamples}: an interval takes at least 100")
        return options


@dataclass(frozen=True)
class Study:
    """All numbers of a report."""

    options: Options
    scores: Scores
    endpoints: tuple[Endpoint, ...]
    finals: Mapping[tuple[str, str], Mapping[str, Estimate]]
    """(method, task key) -> "mean", "median", "iqm" of the endpoint with intervals, in the metric's unit."""
    curves: Mapping[tuple[str, str], Curve]
    """(method, task key) -> the learning curve."""
    pairs: tuple[Pair, ...]
    overall: Overall | None
    profiles: Mapping[str, Curve]
    """Method -> performance profile over tasks."""
    progress: Mapping[str, Curve]
    """Method -> IQM of normalised scores over tasks against the share of the common budget in percent."""
    reached: Mapping[Axis, Mapping[tuple[str, str], tuple[Reached, ...]]]
    """Axis -> (method, task key) -> when it reached 50%, 80% and 95% of the best method's score, on the tasks whose
    runs all recorded that axis; updates only where ``match`` is that."""
    fairness: Fairness
    cdm: pd.DataFrame = field(default_factory=pd.DataFrame)
    """trial, suite, task, algorithm, seed, env_steps, metric, value; empty where nothing was diagnosed."""

    @property
    def tasks(self) -> tuple[TaskInfo, ...]:
        """In the report's order."""
        return self.scores.tasks

    @property
    def algorithms(self) -> tuple[str, ...]:
        """In the report's order."""
        return self.scores.algorithms

    def end(self, task: TaskInfo) -> Endpoint:
        """The endpoint of one task."""
        return next(e for e in self.endpoints if e.task.key == task.key)


def study(paths: Sequence[Path | str], options: Options | None = None) -> Study:
    """Read and analyse all trials at or below ``paths``. Raises ``UserError`` where a number would be wrong."""
    return analyse([load(p) for p in paths], options or Options())


def analyse(results: Sequence[Results], options: Options) -> Study:
    """The study of tables already read."""
    raw = from_results(
        results, partial=options.partial, suites=options.suites, tasks=options.tasks, algorithms=options.algorithms
    )
    scores = guards.guard(raw, engine=options.engine, split=options.split)
    scores = scores.with_notices(*curves.ragged(scores))
    ends = tuple(endpoint(scores, t, options.match) for t in scores.tasks)
    how: dict[str, Any] = {"resamples": options.resamples, "seed": options.seed}
    whole = None if guards.engines_over_tasks(scores) else overall(ends, **how)
    finals = {(a, e.task.key): {s: one(e.values[a], s, **how) for s in STATISTICS} for e in ends for a in e.values}
    return Study(
        options=options,
        scores=scores,
        endpoints=ends,
        finals=finals,
        curves=_curves(scores, options),
        pairs=pairs(ends, baseline=options.baseline, **how),
        overall=whole,
        profiles=_profiles(whole, options),
        progress=_progress(scores, whole, options),
        reached={a: _reached(scores, finals, a, options) for a in curves.AXES if a != "updates" or options.match == a},
        fairness=fairness(scores),
        cdm=_cdm(results, scores),
    )


def _curves(scores: Scores, options: Options) -> dict[tuple[str, str], Curve]:
    found = {}
    for key, runs in scores.runs.items():
        steps, values, _ = curves.align(runs)
        if len(steps):
            found[key] = curves.curve(
                steps.astype(float), values, options.statistic, resamples=options.resamples, seed=options.seed
            )
    return found


def _profiles(whole: Overall | None, options: Options) -> dict[str, Curve]:
    if whole is None:
        return {}
    highest = max(float(s.max()) for strata in whole.strata.values() for s in strata)
    lowest = min(float(s.min()) for strata in whole.strata.values() for s in strata)
    taus = np.linspace(min(0.0, lowest), max(1.0, highest), 101)
    return {a: curves.profile(s, taus, seed=options.seed) for a, s in whole.strata.items()}


def _progress(scores: Scores, whole: Overall | None, options: Options) -> dict[str, Curve]:
    """Each run's normalised curve, held between evaluations, at 41 shares of its task's common budget."""
    if whole is None:
        return {}
    shares = np.linspace(0.0, 1.0, 41)
    found = {}
    ends = {t.key: min(r.budget for a in whole.algorithms for r in scores.cell(a, t)) for t in whole.tasks}
    for a in whole.algorithms:
        strata = []  # each [P, S_t]
        for task in whole.tasks:
            runs = [r for r in scores.cell(a, task) if len(r.steps)]
            if not runs:
                return {}
            held = [_held(r.steps, task.normalise(r.values), shares * ends[task.key]) for r in runs]
            strata.append(np.sort(np.array(held).T, -1))
        found[a] = _pooled_curve(100 * shares, strata, options.seed)
    return found


def _held(steps: Any, values: Any, at: Any) -> Any:
    """The last evaluation at or before each of ``at`` (before the first: the first)."""
    return values[np.clip(np.searchsorted(steps, at * (1 + 1e-9), side="right") - 1, 0, None)]


def _pooled_curve(x: Any, strata: Sequence[Any], seed: int, resamples: int = 1_000) -> Curve:
    sizes = [s.shape[-1] for s in strata]
    value = pooled_iqm(strata)
    if min(sizes) < MIN_SEEDS:
        return Curve(x, value, None, None, min(sizes))
    low, high = np.empty(len(x)), np.empty(len(x))
    for p in range(len(x)):
        draws = pooled_iqm(resample([s[p] for s in strata], resamples, np.random.default_rng(seed)))
        low[p], high[p] = percentiles(draws, sizes)
    return Curve(x, value, low, high, min(sizes))


def _reached(
    scores: Scores, finals: Mapping[tuple[str, str], Mapping[str, Estimate]], axis: Axis, options: Options
) -> dict[tuple[str, str], tuple[Reached, ...]]:
    found = {}
    how = {"resamples": options.resamples, "seed": options.seed}
    for task in scores.tasks:
        methods = [a for a in scores.present(task) if (a, task.key) in finals]
        runs = [r for a in methods for r in scores.cell(a, task)]
        if any(curves.axis_of(r, axis) is None for r in runs):
            continue
        if axis == "joules" and len({energy.scope(r.record) for r in runs}) > 1:
            continue  # sums of different things
        best = max(finals[a, task.key]["mean"].value for a in methods)
        if best <= task.low:
            continue  # nobody left the lower bound: there is nothing to reach
        common = scores.common_step(task) if options.match == "env_steps" else None
        for a in methods:
            cell = [r.until(common) for r in scores.cell(a, task)]
            found[a, task.key] = tuple(curves.reach(cell, task, best, f, axis=axis, **how) for f in curves.FRACTIONS)
    return found


def _cdm(results: Sequence[Results], scores: Scores) -> pd.DataFrame:
    """CDM rows of the trials in the report."""
    parts = [r.cdm for r in results if len(r.cdm)]
    runs = {r.trial: r for r in scores.all_runs()}
    if not parts or not runs:
        return pd.DataFrame()
    table = pd.concat(parts, ignore_index=True)
    table = table[table["trial"].isin(list(runs))].copy()
    table["task"] = [runs[t].task for t in table["trial"]]
    table["algorithm"] = [runs[t].algorithm for t in table["trial"]]
    table["seed"] = [runs[t].seed for t in table["trial"]]
    return table.reset_index(drop=True)
