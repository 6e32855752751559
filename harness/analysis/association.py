"""Whether two measures of methods go together: rank correlation over methods, its interval over seeds.

The methods are those of the study and stay; the seeds of each are resampled. The interval therefore says how sure the
order of *these* methods is, not what other methods would do.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy import stats

from harness.analysis.bootstrap import MIN_SEEDS, RESAMPLES, Array, Estimate, percentiles

MIN_METHODS = 4
"""Fewer methods have too few orders: with three, one in six is in perfect agreement by chance."""
WEAK = 0.3
"""A rank correlation whose whole interval is nearer to 0 than this is no relation."""


class Order(NamedTuple):
    """Of one task: the rank correlation over methods and its bootstrap distribution."""

    value: float
    draws: Array
    """[R]"""
    sizes: tuple[int, ...]
    """Seeds a method."""

    @property
    def estimate(self) -> Estimate:
        """With its interval over seeds."""
        return _estimate(self.value, self.draws, self.sizes)


def spearman(x: Array, y: Array) -> Array:
    """Spearman's rank correlation over the last axis, [..., K] -> [...]; 0 where either side is constant."""
    ranks = [stats.rankdata(np.round(v, 12), axis=-1) for v in (x, y)]
    a, b = (r - r.mean(-1, keepdims=True) for r in ranks)
    size = np.sqrt((a**2).sum(-1) * (b**2).sum(-1))
    return np.asarray(np.where(size > 0, (a * b).sum(-1) / np.where(size > 0, size, 1.0), 0.0))


def order(
    values: Sequence[Array], success: Sequence[Array], *, resamples: int = RESAMPLES, seed: int = 0
) -> Order | None:
    """Rank correlation over methods of the mean of ``values`` with the mean of ``success``, each [S_m], same seeds.

    A seed without a value (NaN) counts for success alone. None where it cannot be told: too few methods, too few
    seeds, or all methods alike on either side.
    """
    chosen = [(v, s) for v, s in zip(values, success, strict=True) if np.isfinite(v).sum() >= MIN_SEEDS]
    if len(chosen) < MIN_METHODS:
        return None
    x = np.array([np.nanmean(v) for v, _ in chosen])
    y = np.array([s.mean() for _, s in chosen])
    if np.ptp(np.round(x, 12)) == 0 or np.ptp(np.round(y, 12)) == 0:
        return None
    rng = np.random.default_rng(seed)
    xs, ys = (np.empty((resamples, len(chosen))) for _ in range(2))
    for m, (v, s) in enumerate(chosen):
        drawn = rng.integers(0, len(s), (resamples, len(s)))
        there = np.isfinite(v)
        total = np.where(there, v, 0.0)[drawn].sum(-1)
        count = there[drawn].sum(-1)
        xs[:, m] = np.where(count > 0, total / np.maximum(count, 1), x[m])
        ys[:, m] = s[drawn].mean(-1)
    return Order(float(spearman(x, y)), spearman(xs, ys), tuple(len(s) for _, s in chosen))


def mean_order(orders: Sequence[Order]) -> Estimate | None:
    """The mean of several tasks' rank correlations, resampled together; None of none."""
    if not orders:
        return None
    value = float(np.mean([o.value for o in orders]))
    return _estimate(value, np.mean([o.draws for o in orders], 0), [n for o in orders for n in o.sizes])


def _estimate(value: float, draws: Array, sizes: Sequence[int]) -> Estimate:
    low, high = percentiles(draws, sizes)
    return Estimate(value, float(low), float(high), min(sizes))


def verdict(e: Estimate | None) -> str:
    """ "negative", "positive", "none" (shown to be weak) or "unclear"."""
    if e is None or e.low is None or e.high is None:
        return "unclear"
    if e.high < 0:
        return "negative"
    if e.low > 0:
        return "positive"
    return "none" if max(-e.low, e.high) < WEAK else "unclear"
