"""Rank correlation over methods, resampled over seeds."""

import numpy as np
import pytest

from harness.analysis.association import mean_order, order, spearman, verdict
from harness.analysis.bootstrap import Estimate


def test_spearman_by_hand():
    assert float(spearman(np.array([1.0, 2, 3]), np.array([10.0, 30, 20]))) == pytest.approx(0.5)
    # ranks with a tie: (1.5, 1.5, 3) against (1, 2, 3): cov 1.5, norms sqrt(1.5) sqrt(2)
    assert float(spearman(np.array([5.0, 5, 9]), np.array([1.0, 2, 3]))) == pytest.approx(1.5 / np.sqrt(3))
    assert spearman(np.array([[1.0, 2], [2, 1]]), np.array([[3.0, 4], [3, 4]])).tolist() == [1.0, -1.0]
    assert float(spearman(np.ones(3), np.arange(3.0))) == 0.0


def clear(seeds=20):
    """Four methods, mismatch 0 to 3 with little noise, success falling from all seeds to none."""
    rng = np.random.default_rng(0)
    values = [k + 0.01 * rng.standard_normal(seeds) for k in range(4)]
    success = [(np.arange(seeds) < seeds * (3 - k) / 3).astype(float) for k in range(4)]
    return values, success


def test_a_clear_order_is_shown_with_its_interval():
    found = order(*clear(), resamples=1000)
    assert found.value == pytest.approx(-1.0)
    e = found.estimate
    assert (e.value, e.n) == (-1.0, 20)
    assert -1.0 <= e.low <= e.high < 0
    assert verdict(e) == "negative"
    assert order(*clear(), resamples=1000).draws.tolist() == found.draws.tolist()  # seeded


def test_methods_that_overlap_leave_it_unclear():
    rng = np.random.default_rng(1)
    values = [rng.standard_normal(6) for _ in range(5)]
    success = [(rng.random(6) < 0.5).astype(float) for _ in range(5)]
    e = order(values, success, resamples=1000).estimate
    assert e.low < 0 < e.high
    assert verdict(e) == "unclear"


def test_what_cannot_be_told_is_not():
    values, success = clear()
    assert order(values[:3], success[:3]) is None  # too few methods
    assert order([np.zeros(20)] * 4, success) is None  # all alike
    assert order(values, [np.ones(20)] * 4) is None
    few = [np.where(np.arange(20) < 2, v, np.nan) for v in values]
    assert order([few[0], *values[1:]], success) is None  # two seeds of one have a value: three methods are left
    assert verdict(None) == "unclear"


def test_a_seed_without_a_value_counts_for_success_alone():
    values, success = clear()
    holes = [np.where(np.arange(20) % 2 == 0, v, np.nan) for v in values]
    found = order(holes, success, resamples=500)
    assert found.value == pytest.approx(-1.0)
    assert np.isfinite(found.draws).all()


def test_the_mean_of_tasks_is_resampled_together():
    one, other = order(*clear(), resamples=500), order(*clear()[::1], resamples=500, seed=3)
    against = other._replace(value=1.0, draws=-other.draws)
    assert mean_order([one, against]).value == 0.0
    assert mean_order([one, other]).value == -1.0
    assert mean_order([]) is None


def test_weak_for_certain_is_no_relation():
    assert verdict(Estimate(0.0, -0.2, 0.25, 20)) == "none"
    assert verdict(Estimate(0.0, -0.2, 0.35, 20)) == "unclear"
    assert verdict(Estimate(0.5, 0.1, 0.9, 20)) == "positive"
