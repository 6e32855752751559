"""Two samples of seeds against each other: x [n] and y [m] are one method's seeds and another's on one task."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy import optimize, stats

from harness.analysis.bootstrap import CONFIDENCE, MIN_SEEDS, RESAMPLES, Array, Estimate, percentiles, resample

MOST_SEEDS = 1000
"""``seeds_needed`` says nothing beyond this."""


def enough(x: Array, y: Array) -> bool:
    """Both have the seeds that a test or an interval takes."""
    return min(len(x), len(y)) >= MIN_SEEDS


def improvement(x: Array, y: Array) -> float:
    """P(X > Y) + P(X = Y)/2 over all pairs of seeds: the Mann-Whitney U over nm."""
    return float(_improvement(x, y))


def _improvement(x: Array, y: Array) -> Array:
    """[..., n], [..., m] -> [...]."""
    a, b = x[..., :, None], y[..., None, :]
    return np.asarray((np.greater(a, b) + 0.5 * np.equal(a, b)).mean((-1, -2)))


def improvement_estimate(x: Array, y: Array, confidence: float = CONFIDENCE) -> Estimate:
    """P(X > Y) on one task with Newcombe's score interval (2006, method 5); fewer than three seeds: no interval.

    A bootstrap would give an interval of no width where the samples do not overlap, whatever their size; this one
    stays in [0, 1] and has a width there.
    """
    return improvement_over_tasks([x], [y], confidence)


def improvement_over_tasks(xs: Sequence[Array], ys: Sequence[Array], confidence: float = CONFIDENCE) -> Estimate:
    """Mean over tasks of P(X > Y) (Agarwal et al. 2021) with a score interval.

    Newcombe's variance of each task is taken at the mean of all tasks, where it is largest for a given mean: the
    interval is stratified by task, and too wide rather than too narrow where the tasks differ.
    """
    sizes = [(len(x), len(y)) for x, y in zip(xs, ys)]
    theta, fewest = float(np.mean([improvement(x, y) for x, y in zip(xs, ys)])), min(map(min, sizes))
    if fewest < MIN_SEEDS:
        return Estimate(theta, n=fewest)
    z2 = float(stats.norm.ppf(0.5 + confidence / 2)) ** 2

    def excess(t: float) -> float:
        """(theta - t)^2 - z^2 Var(t): its roots are the ends."""
        spread = (1 - t) / (2 - t) + t / (1 + t)
        variances = (t * (1 - t) * (1 + ((n + m) / 2 - 1) * spread) / (n * m) for n, m in sizes)
        return (theta - t) ** 2 - z2 * sum(variances) / len(sizes) ** 2

    # the ends are roots away from theta, which is itself one where it is 0 or 1
    low = 0.0 if theta == 0 else float(optimize.brentq(excess, 0.0, theta - 1e-9 * theta))
    high = 1.0 if theta == 1 else float(optimize.brentq(excess, theta + 1e-9 * (1 - theta), 1.0))
    return Estimate(theta, low, high, fewest)


def difference(
    x: Array, y: Array, *, resamples: int = RESAMPLES, confidence: float = CONFIDENCE, seed: int = 0
) -> Estimate:
    """mean(x) - mean(y) with its bootstrap interval."""
    value = float(np.mean(x) - np.mean(y))
    if not enough(x, y):
        return Estimate(value, n=min(len(x), len(y)))
    a, b = resample([x, y], resamples, np.random.default_rng(seed))
    low, high = percentiles(a.mean(-1) - b.mean(-1), (len(x), len(y)), confidence)
    return Estimate(value, float(low), float(high), min(len(x), len(y)))


# -- tests -----------------------------------------------------------------------------------------------------------


def welch(x: Array, y: Array) -> float | None:
    """Two-sided p of Welch's t test; None with too few seeds, or where neither sample has a spread."""
    if not enough(x, y) or (np.ptp(x) == 0 and np.ptp(y) == 0):
        return None
    (mx, sx), (my, sy) = ((float(np.mean(v)), float(np.std(v, ddof=1))) for v in (x, y))
    return float(stats.ttest_ind_from_stats(mx, sx, len(x), my, sy, len(y), equal_var=False).pvalue)


def mann_whitney(x: Array, y: Array) -> float | None:
    """Two-sided p of the Mann-Whitney U test; exact without ties, else normal with tie correction."""
    if not enough(x, y):
        return None
    if np.ptp(np.concatenate([x, y])) == 0:
        return 1.0
    return float(stats.mannwhitneyu(x, y, alternative="two-sided").pvalue)


def holm(p: Sequence[float | None]) -> list[float | None]:
    """Holm's step-down adjusted p values (Holm 1979); tests that could not be made stay None and count for nothing."""
    adjusted: list[float | None] = [None] * len(p)
    highest = 0.0
    for i, factor in _steps(p):
        highest = max(highest, min(1.0, factor * (p[i] or 0.0)))
        adjusted[i] = highest
    return adjusted


def holm_levels(p: Sequence[float | None], alpha: float = 0.05) -> list[float]:
    """What each p is held against in Holm's procedure: alpha over the tests from its place on; alpha where not made."""
    levels = [alpha] * len(p)
    for i, factor in _steps(p):
        levels[i] = alpha / factor
    return levels


def _steps(p: Sequence[float | None]) -> list[tuple[int, int]]:
    """(index, how many tests are left) from the smallest p to the largest."""
    made = sorted((v, i) for i, v in enumerate(p) if v is not None)
    return [(i, len(made) - rank) for rank, (_, i) in enumerate(made)]


# -- sizes -----------------------------------------------------------------------------------------------------------


def cohen_d(x: Array, y: Array) -> float | None:
    """Difference of means over the pooled standard deviation; None where there is no spread or too few seeds."""
    n, m = len(x), len(y)
    if min(n, m) < 2:
        return None
    pooled = math.sqrt(((n - 1) * np.var(x, ddof=1) + (m - 1) * np.var(y, ddof=1)) / (n + m - 2))
    return float((np.mean(x) - np.mean(y)) / pooled) if pooled > 0 else None


def hedges_g(x: Array, y: Array) -> float | None:
    """Cohen's d without its bias in small samples (Hedges 1981, the exact factor)."""
    d = cohen_d(x, y)
    if d is None:
        return None
    df = len(x) + len(y) - 2
    log_factor = math.lgamma(df / 2) - math.lgamma((df - 1) / 2) - 0.5 * math.log(df / 2)
    return d * math.exp(log_factor)


def cliff_delta(x: Array, y: Array) -> float:
    """P(X > Y) - P(X < Y)."""
    return 2 * improvement(x, y) - 1


def power(d: float, n: int, alpha: float = 0.05) -> float:
    """Power of the two-sided two-sample t test with ``n`` seeds each at standardised difference ``d``."""
    df, shift = 2 * n - 2, abs(d) * math.sqrt(n / 2)
    critical = stats.t.ppf(1 - alpha / 2, df)
    return float(stats.nct.sf(critical, df, shift) + stats.nct.cdf(-critical, df, shift))


def seeds_needed(x: Array, y: Array, *, alpha: float = 0.05, target: float = 0.8) -> int | None:
    """Seeds a method that would show the observed difference with probability ``target``.

    None where it cannot be said: no difference, no spread, too few seeds, or more than ``MOST_SEEDS``. The observed
    difference is itself uncertain: an order of magnitude, not a promise.
    """
    d = cohen_d(x, y) if enough(x, y) else None
    if d is None or d == 0 or power(d, MOST_SEEDS, alpha) < target:
        return None
    low, high = 1, 2
    while power(d, high, alpha) < target:
        low, high = high, high * 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if power(d, middle, alpha) < target else (low, middle)
    return high
