"""Point estimates and their intervals. The seed is the unit of resampling, never the episode.

A *stratum* is the seeds of one method on one task, an array [S]. Resampling draws seeds with replacement inside each
stratum, so that every resample holds every task as often as the results do (stratified bootstrap, Agarwal et al.
2021). The interval is the percentile interval with the percentiles widened for small samples (Hesterberg 2015, "What
teachers should know about the bootstrap", section 5.3): the plain one covers 90% where it says 95% with ten seeds.
It is still an interval of resampled values, so a bounded quantity stays in its bounds.

Values are sorted before they are resampled: the order of seeds changes no digit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import special, stats

Array = NDArray[np.float64]
RESAMPLES = 10_000
CONFIDENCE = 0.95
MIN_SEEDS = 3
"""Fewer seeds than this: no interval and no test."""
ENOUGH_SEEDS = 5
"""Fewer seeds than this: a warning."""


class Estimate(NamedTuple):
    """A number with its interval; ``low`` and ``high`` are None where an interval is not estimable."""

    value: float
    low: float | None = None
    high: float | None = None
    n: int = 0
    """Seeds it rests on (the fewest in any stratum)."""

    @property
    def estimable(self) -> bool:
        """There is an interval."""
        return self.low is not None

    def mirrored(self, total: float = 0.0) -> Estimate:
        """``total`` minus this: the same comparison seen from the other side."""
        low = None if self.high is None else total - self.high
        high = None if self.low is None else total - self.low
        return Estimate(total - self.value, low, high, self.n)


# -- statistics of [..., K] over the last axis -----------------------------------------------------------------------


def mean(x: Array) -> Array:
    """Mean over the last axis."""
    return np.asarray(x.mean(-1))


def median(x: Array) -> Array:
    """Median over the last axis."""
    return np.asarray(np.median(x, -1))


def iqm(x: Array) -> Array:
    """Interquartile mean over the last axis: the lowest and the highest ``floor(K/4)`` values are left out.

    Equals ``scipy.stats.trim_mean(x, 0.25)``, the definition of Agarwal et al. 2021.
    """
    k = x.shape[-1]
    cut = k // 4
    if cut == 0:
        return mean(x)
    return np.asarray(np.partition(x, (cut, k - cut - 1), -1)[..., cut : k - cut].mean(-1))


STATISTICS: dict[str, Callable[[Array], Array]] = {"mean": mean, "median": median, "iqm": iqm}
"""Of one task's seeds."""


# -- statistics of several strata ------------------------------------------------------------------------------------


def _task_means(strata: Sequence[Array]) -> Array:
    return np.stack([s.mean(-1) for s in strata], -1)


def pooled_iqm(strata: Sequence[Array]) -> Array:
    """IQM over all seeds of all tasks, each task with the same weight. strata: each [..., S_t] -> [...].

    With equally many seeds a task this is ``iqm`` of everything. Otherwise every run weighs 1/S_t, and the quarter of
    the weight that is left out at each end may cut a run in two.
    """
    sizes = [s.shape[-1] for s in strata]
    x = np.concatenate(list(strata), -1)
    if len(set(sizes)) == 1:
        return iqm(x)
    weights = np.concatenate([np.full(n, 1.0 / n) for n in sizes]) / len(sizes)
    order = np.argsort(x, -1, kind="stable")
    upper = np.cumsum(weights[order], -1)
    inside = np.clip(np.minimum(upper, 0.75) - np.maximum(upper - weights[order], 0.25), 0.0, None)
    return np.asarray((np.take_along_axis(x, order, -1) * inside).sum(-1) / inside.sum(-1))


def pooled_mean(strata: Sequence[Array]) -> Array:
    """Mean over tasks of the mean over seeds."""
    return mean(_task_means(strata))


def pooled_median(strata: Sequence[Array]) -> Array:
    """Median over tasks of the mean over seeds (Agarwal et al. 2021)."""
    return median(_task_means(strata))


def optimality_gap(strata: Sequence[Array]) -> Array:
    """Mean over tasks and seeds of what is missing to 1: ``1 - min(score, 1)``. Lower is better."""
    return 1.0 - mean(_task_means([np.minimum(s, 1.0) for s in strata]))


AGGREGATES: dict[str, Callable[[Sequence[Array]], Array]] = {
    "iqm": pooled_iqm,
    "median": pooled_median,
    "mean": pooled_mean,
    "optimality_gap": optimality_gap,
}
"""Of all tasks' seeds, on the scale where a task's declared bounds are 0 and 1."""


# -- intervals -------------------------------------------------------------------------------------------------------


def tail(sizes: Sequence[int], confidence: float = CONFIDENCE) -> float:
    """Probability left out at each end of the bootstrap distribution, widened for ``sizes`` seeds a stratum.

    The spread of a resampled mean is too small by sqrt((n-1)/n), and a t quantile stands where a normal one would:
    the tail is Phi(-sqrt(n/(n-1)) * t), with as many degrees of freedom as there are seeds less one in each stratum.
    """
    n = min(sizes)
    if n < 2:
        raise ValueError("one seed has no spread: not estimable")
    t = stats.t.ppf(0.5 + confidence / 2, sum(sizes) - len(sizes))
    return float(special.ndtr(-math.sqrt(n / (n - 1)) * t))


def resample(strata: Sequence[Array], resamples: int, rng: np.random.Generator) -> list[Array]:
    """``resamples`` draws with replacement from each stratum: [S_t] -> [R, S_t]."""
    return [np.sort(s)[rng.integers(0, len(s), (resamples, len(s)))] for s in strata]


def percentiles(draws: Array, sizes: Sequence[int], confidence: float = CONFIDENCE) -> tuple[Array, Array]:
    """Widened percentile interval of ``draws`` [R, ...] over the first axis."""
    p = tail(sizes, confidence)
    low, high = np.quantile(draws, (p, 1 - p), axis=0)
    return low, high


def interval(
    strata: Sequence[Array],
    statistic: Callable[[Sequence[Array]], Array],
    *,
    resamples: int = RESAMPLES,
    confidence: float = CONFIDENCE,
    seed: int = 0,
) -> Estimate:
    """``statistic`` of the strata (each [S_t]) with its interval; no interval with fewer than three seeds in any."""
    strata = [np.sort(np.asarray(s, float)) for s in strata]
    sizes = [len(s) for s in strata]
    if not sizes or min(sizes) == 0:
        raise ValueError("nothing to estimate from")
    value = float(statistic(strata))
    if min(sizes) < MIN_SEEDS:
        return Estimate(value, n=min(sizes))
    draws = statistic(resample(strata, resamples, np.random.default_rng(seed)))
    low, high = percentiles(draws, sizes, confidence)
    return Estimate(value, float(low), float(high), min(sizes))


def aggregate(
    strata: Sequence[Array], *, resamples: int = RESAMPLES, confidence: float = CONFIDENCE, seed: int = 0
) -> dict[str, Estimate]:
    """Every statistic of ``AGGREGATES`` with its interval, from one set of resamples."""
    strata = [np.sort(np.asarray(s, float)) for s in strata]
    sizes = [len(s) for s in strata]
    values = {name: float(f(strata)) for name, f in AGGREGATES.items()}
    if min(sizes) < MIN_SEEDS:
        return {name: Estimate(v, n=min(sizes)) for name, v in values.items()}
    draws = resample(strata, resamples, np.random.default_rng(seed))
    ends = {name: percentiles(f(draws), sizes, confidence) for name, f in AGGREGATES.items()}
    return {name: Estimate(v, float(ends[name][0]), float(ends[name][1]), min(sizes)) for name, v in values.items()}


def one(values: Array, statistic: str = "mean", **options: float) -> Estimate:
    """``statistic`` ("mean", "median" or "iqm") of one stratum [S] with its interval."""
    f = STATISTICS[statistic]
    return interval([np.asarray(values, float)], lambda strata: f(strata[0]), **options)  # type: ignore[arg-type]


def wilson(successes: int, n: int, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """Wilson's score interval of a proportion (Wilson 1927), in [0, 1]. Raises ValueError when ``n`` is 0."""
    if n <= 0 or not 0 <= successes <= n:
        raise ValueError(f"{successes} of {n} is no proportion")
    z = float(stats.norm.ppf(0.5 + confidence / 2))
    p, extra = successes / n, z * z / n
    centre = (p + extra / 2) / (1 + extra)
    half = z / (1 + extra) * math.sqrt(p * (1 - p) / n + extra / (4 * n))
    # exact ends, which rounding would miss by 1e-17
    return (0.0 if successes == 0 else max(0.0, centre - half), 1.0 if successes == n else min(1.0, centre + half))
