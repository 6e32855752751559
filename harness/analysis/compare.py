"""Methods against each other: one score a seed at a common point, pairs on each task, everything over tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np

from harness.analysis import energy, twosample
from harness.analysis.bootstrap import RESAMPLES, Array, Estimate, aggregate
from harness.analysis.curves import AXES, Axis, axis_of
from harness.analysis.ranks import Ranks, friedman
from harness.analysis.scores import Run, Scores, TaskInfo
from harness.errors import UserError, unknown

ALPHA = 0.05


@dataclass(frozen=True)
class Endpoint:
    """What a task's methods are compared by: one number a seed."""

    task: TaskInfo
    values: Mapping[str, Array]
    """Method -> [S], in the metric's unit."""
    basis: str
    """In words: the absolute metric, or the evaluation at a common step."""
    absolute: bool
    axis: Axis = "env_steps"
    at: float | None = None

    def strata(self, algorithm: str) -> Array:
        """[S] normalised scores."""
        return self.task.normalise(self.values[algorithm])


def _value_at(run: Run, axis: Axis, at: float) -> float | None:
    """Its last evaluation at or before ``at``."""
    x = axis_of(run, axis)
    if x is None:
        return None
    where = np.flatnonzero(x <= at * (1 + 1e-9))
    return float(run.values[where[-1]]) if len(where) else None


def endpoint(scores: Scores, task: TaskInfo, match: Axis = "env_steps") -> Endpoint:
    """The score of each seed on ``task``: the absolute metric where all had the same budget, else at the common step.

    ``match`` other than env_steps compares at the largest number of updates, seconds, ... that every run reached.
    Raises ``UserError`` where a run did not record that axis, or energies are sums of different things.
    """
    cells = {a: scores.cell(a, task) for a in scores.present(task)}
    runs = [r for cell in cells.values() for r in cell]
    same = scores.common_step(task) is None
    if match == "env_steps" and same and all(r.final is not None for r in runs):
        episodes = sorted({r.final_episodes for r in runs})
        basis = f"absolute metric: best policy, {' or '.join(map(str, episodes))} fresh episodes a seed"
        return Endpoint(task, {a: np.array([r.final for r in c], float) for a, c in cells.items()}, basis, True)
    if match == "joules" and len(scopes := sorted({energy.scope(r.record) for r in runs if r.joules is not None})) > 1:
        raise UserError(f"{task.key}: energies of different things, never compared: {'; '.join(scopes)}")
    reached = []
    for run in runs:
        x = axis_of(run, match)
        if x is None or not len(x):
            raise UserError(f"{run.trial}: no {AXES[match]} recorded with its evaluations; cannot compare by them")
        reached.append(float(x[-1]))
    at = min(reached)
    values = {a: [_value_at(r, match, at) for r in c] for a, c in cells.items()}
    kept = {a: np.array([v for v in vs if v is not None], float) for a, vs in values.items()}
    basis = f"greedy evaluation at {at:,.0f} {AXES[match]}, the most that every run reached"
    return Endpoint(task, {a: v for a, v in kept.items() if len(v)}, basis, False, match, at)


# -- pairs -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Pair:
    """Method ``a`` against ``b`` on one task."""

    task: TaskInfo
    a: str
    b: str
    seeds: tuple[int, int]
    difference: Estimate
    """Of means, in the metric's unit."""
    improvement: Estimate
    """P(a > b)."""
    welch_p: float | None
    mann_whitney_p: float | None
    hedges_g: float | None
    cliff_delta: float
    seeds_needed: int | None = None
    """A method, for 80% power at the level that Holm's procedure holds this comparison against."""
    welch_holm: float | None = None
    mann_whitney_holm: float | None = None

    @property
    def p(self) -> float | None:
        """What the verdict rests on: Welch's adjusted p; Mann-Whitney's where neither method has any spread."""
        return self.welch_holm if self.welch_p is not None else self.mann_whitney_holm

    @property
    def verdict(self) -> str:
        """One of "above", "below", "undecided" (no difference shown), "not estimable"."""
        if self.p is None:
            return "not estimable"
        if self.p >= ALPHA or self.difference.value == 0:
            return "undecided"
        return "above" if self.difference.value > 0 else "below"

    @property
    def no_spread(self) -> bool:
        """Neither method's seeds differ: what more seeds would do is not a matter of power."""
        return self.p is not None and self.welch_p is None

    @property
    def more_seeds(self) -> int | None:
        """Seeds a method beyond those there are, at 80% power; None where it cannot be said."""
        return None if self.seeds_needed is None else max(1, self.seeds_needed - min(self.seeds))


def pair(end: Endpoint, a: str, b: str, *, resamples: int = RESAMPLES, seed: int = 0) -> Pair:
    """One comparison, p values not yet adjusted."""
    x, y = np.sort(end.values[a]), np.sort(end.values[b])
    return Pair(
        task=end.task,
        a=a,
        b=b,
        seeds=(len(x), len(y)),
        difference=twosample.difference(x, y, resamples=resamples, seed=seed),
        improvement=twosample.improvement_estimate(x, y),
        welch_p=twosample.welch(x, y),
        mann_whitney_p=twosample.mann_whitney(x, y),
        hedges_g=twosample.hedges_g(x, y),
        cliff_delta=twosample.cliff_delta(x, y),
    )


def pairs(
    ends: Sequence[Endpoint], *, baseline: str | None = None, resamples: int = RESAMPLES, seed: int = 0
) -> tuple[Pair, ...]:
    """All pairs on all tasks, or all against ``baseline``; Holm's adjustment runs over exactly these tests."""
    known = sorted({a for e in ends for a in e.values})
    if baseline is not None and baseline not in known:
        raise unknown("baseline", baseline, known)
    todo = []
    for end in ends:
        for a, b in combinations(sorted(end.values), 2):
            if baseline is None:
                todo.append((end, a, b))
            elif baseline in (a, b):
                todo.append((end, b if a == baseline else a, baseline))
    made = [pair(*what, resamples=resamples, seed=seed) for what in todo]
    welch, ranked = [p.welch_p for p in made], [p.mann_whitney_p for p in made]
    adjusted = zip(twosample.holm(welch), twosample.holm(ranked), twosample.holm_levels(welch))
    return tuple(
        replace(p, welch_holm=w, mann_whitney_holm=m, seeds_needed=_needed(end, a, b, level))
        for p, (end, a, b), (w, m, level) in zip(made, todo, adjusted)
    )


def _needed(end: Endpoint, a: str, b: str, level: float) -> int | None:
    return twosample.seeds_needed(end.values[a], end.values[b], alpha=level)


# -- over tasks ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Overall:
    """Statistics over the tasks that every method has."""

    tasks: tuple[TaskInfo, ...]
    algorithms: tuple[str, ...]
    aggregates: Mapping[str, Mapping[str, Estimate]]
    """Method -> statistic -> estimate, of normalised scores."""
    improvement: Mapping[tuple[str, str], Estimate]
    """(a, b) -> P(a > b), the mean over tasks; both orders."""
    ranks: Ranks | None
    strata: Mapping[str, tuple[Array, ...]]
    """Method -> each task's [S] normalised scores."""


def overall(ends: Sequence[Endpoint], *, resamples: int = RESAMPLES, seed: int = 0) -> Overall | None:
    """Everything over tasks; None with fewer than two tasks that all methods have, or with a task split by engine."""
    algorithms = tuple(sorted({a for e in ends for a in e.values}))
    shared = [e for e in ends if all(a in e.values for a in algorithms)]
    if len(shared) < 2 or any("[" in e.task.name for e in shared):
        return None
    strata = {a: tuple(e.strata(a) for e in shared) for a in algorithms}
    improvement: dict[tuple[str, str], Estimate] = {}
    for a, b in combinations(algorithms, 2):
        made = twosample.improvement_over_tasks(strata[a], strata[b])
        improvement[a, b] = made
        improvement[b, a] = made.mirrored(1.0)
    return Overall(
        tasks=tuple(e.task for e in shared),
        algorithms=algorithms,
        aggregates={a: aggregate(strata[a], resamples=resamples, seed=seed) for a in algorithms},
        improvement=improvement,
        ranks=friedman({a: np.array([s.mean() for s in strata[a]]) for a in algorithms}),
        strata=strata,
    )
