"""Learning curves on common steps, sample efficiency, performance profiles."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Literal, NamedTuple

import numpy as np

from harness.analysis.bootstrap import (
    CONFIDENCE,
    MIN_SEEDS,
    RESAMPLES,
    STATISTICS,
    Array,
    Estimate,
    interval,
    percentiles,
    tail,
    wilson,
)
from harness.analysis.scores import NDInt, Notice, Run, Scores, TaskInfo

Axis = Literal["env_steps", "updates", "seconds", "cpu_seconds", "joules"]
AXES: dict[Axis, str] = {
    "env_steps": "environment steps", "updates": "gradient updates", "seconds": "seconds of training",
    "cpu_seconds": "CPU seconds of training", "joules": "joules of training",
}  # fmt: skip
FRACTIONS = (0.5, 0.8, 0.95)


class Curve(NamedTuple):
    """A statistic over seeds at common steps, all [P]; ``low`` and ``high`` are None where not estimable."""

    x: Array
    value: Array
    low: Array | None
    high: Array | None
    seeds: int


# -- common steps ----------------------------------------------------------------------------------------------------


def _grids(runs: Sequence[Run]) -> list[dict[int, float]]:
    """Step -> value of each run. Runs of other systems are evaluated at steps of their own: put on a common grid.

    This harness evaluates on a fixed grid. Where runs share less than half of their points, each point goes to the
    multiple of the median spacing that is nearest (of two points there, the later).
    """
    exact = [dict(zip(r.steps.tolist(), r.values.tolist())) for r in runs]
    fewest = min(len(g) for g in exact)
    if fewest < 2 or 2 * len(set.intersection(*(set(g) for g in exact))) >= fewest:
        return exact
    every = float(np.median(np.concatenate([np.diff(r.steps) for r in runs])))
    return [{round(round(s / every) * every): v for s, v in g.items()} for g in exact]


def align(runs: Sequence[Run]) -> tuple[NDInt, Array, list[str]]:
    """Common steps [P], values [S,P] there, and a sentence for each run that has fewer points than others."""
    grids = _grids(runs)
    common = sorted(set.intersection(*(set(g) for g in grids)))
    every = set[int]().union(*(set(g) for g in grids))
    short = []
    for run, grid in zip(runs, grids):
        if len(grid) < len(every):
            last = f"ends at {max(grid):,}" if grid else "has no evaluation"
            who = f"seed {run.seed} of {run.algorithm} on {run.task}"
            short.append(f"{who} has {len(grid)} of {len(every)} points, {last}")
    values = np.array([[g[s] for s in common] for g in grids], float).reshape(len(grids), len(common))
    return np.array(common, np.int64), values, short


def ragged(scores: Scores) -> list[Notice]:
    """Runs that are cut or thinned to the steps that all seeds of their method have."""
    notices = []
    for cell in scores.runs.values():
        steps, _, short = align(cell)
        if short:
            text = "; ".join(short[:5]) + (f" and {len(short) - 5} more" if len(short) > 5 else "")
            kept = f"the curve holds the {len(steps)} common points" if len(steps) else "no common point, no curve"
            notices.append(Notice("warning", "ragged", f"{text[0].upper()}{text[1:]}: {kept}."))
    return notices


# -- curves ----------------------------------------------------------------------------------------------------------


def curve(
    x: Array,
    values: Array,
    statistic: str = "mean",
    *,
    resamples: int = RESAMPLES,
    confidence: float = CONFIDENCE,
    seed: int = 0,
) -> Curve:
    """``statistic`` of ``values`` [S,P] over seeds with a pointwise bootstrap band.

    Whole seeds are resampled: the points of a seed stay together.
    """
    seeds, points = values.shape
    f = STATISTICS[statistic]
    centre = f(values.T) if seeds and points else np.zeros(points)
    if seeds < MIN_SEEDS or not points:
        return Curve(np.asarray(x, float), centre, None, None, seeds)
    order = np.lexsort(values.T[::-1])  # the order of seeds changes nothing
    index = np.random.default_rng(seed).integers(0, seeds, (resamples, seeds))
    low, high = _band(values[order], index, f, statistic, confidence)
    return Curve(np.asarray(x, float), centre, low, high, seeds)


def _band(values: Array, index: NDInt, f: Any, statistic: str, confidence: float) -> tuple[Array, Array]:
    seeds, points = values.shape
    if statistic == "mean":  # counts instead of copies: [R,S] @ [S,P]
        counts = np.zeros((len(index), seeds))
        np.add.at(counts, (np.arange(len(index))[:, None], index), 1.0 / seeds)
        return _quantiles(counts @ values, tail([seeds], confidence))
    low, high = np.empty(points), np.empty(points)
    for p in range(points):
        low[p], high[p] = percentiles(f(values[:, p][index]), [seeds], confidence)
    return low, high


def _quantiles(draws: Array, p: float) -> tuple[Array, Array]:
    """The p and 1-p quantiles of [R,P] over R."""
    low, high = np.quantile(draws, (p, 1 - p), axis=0)
    return low, high


def axis_of(run: Run, axis: Axis) -> Array | None:
    """[P] where a run's evaluations stand on ``axis``; None where it was not recorded."""
    if axis == "env_steps":
        return np.asarray(run.steps, float)
    found: Array | None = getattr(run, axis)
    return found


# -- sample efficiency -----------------------------------------------------------------------------------------------


class Reached(NamedTuple):
    """When the seeds of a method first reached a level of the metric."""

    fraction: float
    level: float
    reached: int
    """Seeds that reached it at all."""
    seeds: int
    share: tuple[float, float]
    """Wilson interval of the share of seeds that reach it."""
    steps: Estimate | None
    """Median over seeds, in the axis' unit; None where at most half of the seeds reached it."""


def first_reach(run: Run, level: float, axis: Axis = "env_steps") -> float:
    """Where on ``axis`` the first evaluation at or above ``level`` stands, the untrained policy's at step 0 left out;
    infinity where there is none."""
    where = np.flatnonzero((run.values >= level - 1e-12) & (run.steps > 0))
    x = axis_of(run, axis)
    return float(x[where[0]]) if len(where) and x is not None else float("inf")


def upper_median(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Median over the last axis, the upper of the two middle values, so that infinity (never) needs no arithmetic."""
    return np.asarray(np.sort(x, -1)[..., x.shape[-1] // 2])


def reach(
    runs: Sequence[Run],
    task: TaskInfo,
    best: float,
    fraction: float,
    *,
    axis: Axis = "env_steps",
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Reached:
    """When these seeds reach ``fraction`` of the way from the task's lower bound to ``best``."""
    level = task.low + fraction * (best - task.low)
    x = np.array([first_reach(r, level, axis) for r in runs])
    n = int(np.isfinite(x).sum())
    share = wilson(n, len(x))
    middle = float(upper_median(x))
    if not np.isfinite(middle):
        return Reached(fraction, level, n, len(x), share, None)
    if len(x) < MIN_SEEDS:
        return Reached(fraction, level, n, len(x), share, Estimate(middle, n=len(x)))
    low, high = np.sort(x)[list(_median_ends(len(x), resamples, seed))]
    return Reached(fraction, level, n, len(x), share, Estimate(middle, float(low), float(high), len(x)))


@lru_cache
def _median_ends(n: int, resamples: int, seed: int) -> tuple[int, int]:
    """Which of ``n`` sorted values end the upper median's interval: resampled are places, the same for all values."""
    draws = np.sort(upper_median(np.random.default_rng(seed).integers(0, n, (resamples, n))))
    p = tail([n])
    return int(draws[int(p * (resamples - 1))]), int(draws[int(np.ceil((1 - p) * (resamples - 1)))])


# -- profiles --------------------------------------------------------------------------------------------------------


def profile(
    strata: Sequence[Array], taus: Array, *, resamples: int = 2_000, confidence: float = CONFIDENCE, seed: int = 0
) -> Curve:
    """Performance profile: the share of runs with a normalised score above each tau (Agarwal et al. 2021), tasks alike.

    strata: each [S_t]; taus [P].
    """
    strata = [np.sort(np.asarray(s, float)) for s in strata]
    sizes = [len(s) for s in strata]
    above = [(s[:, None] > taus).astype(float) for s in strata]  # [S_t,P]
    value = np.mean([a.mean(0) for a in above], 0)
    if min(sizes) < MIN_SEEDS:
        return Curve(taus, value, None, None, min(sizes))
    rng = np.random.default_rng(seed)
    draws = np.zeros((resamples, len(taus)))
    for a in above:
        counts = rng.multinomial(len(a), np.full(len(a), 1 / len(a)), size=resamples) / len(a)
        draws += counts @ a / len(above)
    low, high = percentiles(draws, sizes, confidence)
    return Curve(taus, value, low, high, min(sizes))


def mean_interval(values: Array, **options: Any) -> Estimate:
    """Mean of [S] with its interval."""
    return interval([values], lambda s: np.asarray(s[0].mean(-1)), **options)
