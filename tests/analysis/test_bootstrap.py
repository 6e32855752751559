from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from statsmodels.stats.proportion import proportion_confint

from harness.analysis import bootstrap as b

finite = st.floats(-50, 50, allow_nan=False)


def test_statistics_by_hand() -> None:
    x = np.array([0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 100.0])
    assert b.iqm(x) == pytest.approx((2 + 3 + 4 + 5) / 4)
    assert b.mean(x) == pytest.approx(121 / 8)
    assert b.median(x) == 3.5
    tasks = [np.array([0.2, 0.4]), np.array([0.8, 1.2])]
    assert b.pooled_mean(tasks) == pytest.approx(0.65)
    assert b.pooled_median(tasks) == pytest.approx((0.3 + 1.0) / 2)
    # shortfalls .8 .6 .2 0 : what exceeds 1 does not make up for the rest
    assert b.optimality_gap(tasks) == pytest.approx(0.4)
    assert b.pooled_iqm(tasks) == pytest.approx(0.6)


@given(st.lists(finite, min_size=1, max_size=23))
def test_iqm_is_scipys_trimmed_mean(values: list[float]) -> None:
    assert float(b.iqm(np.array(values))) == pytest.approx(stats.trim_mean(values, 0.25), abs=1e-9)


def test_pooled_iqm_weighs_tasks_alike_when_seeds_are_uneven() -> None:
    # 8 runs of task one share half of the weight, 2 of task two the other: the quarters cut 4 runs below and 1 above
    tasks = [np.arange(8.0), np.array([100.0, 200.0])]
    assert float(b.pooled_iqm(tasks)) == pytest.approx(((4 + 5 + 6 + 7) / 4 + 100) / 2)
    even = [np.arange(8.0), np.arange(8.0) + 3]
    assert float(b.pooled_iqm(even)) == pytest.approx(stats.trim_mean(np.concatenate(even), 0.25))


@settings(max_examples=20, deadline=None)
@given(st.lists(finite, min_size=3, max_size=12), st.randoms())
def test_permuting_seeds_changes_nothing_and_bounds_hold(values: list[float], random: object) -> None:
    x = np.array(values)
    y = x.copy()
    random.shuffle(y)  # type: ignore[attr-defined]
    for statistic in b.STATISTICS:
        first, second = (b.one(v, statistic, resamples=200) for v in (x, y))
        assert first == second
        assert first.low is not None
        assert first.high is not None
        assert x.min() - 1e-9 <= first.low <= first.high <= x.max() + 1e-9


def test_too_few_seeds_have_no_interval() -> None:
    assert b.one(np.array([0.4])) == b.Estimate(0.4, None, None, 1)
    assert not b.one(np.array([0.4, 0.6])).estimable
    assert b.one(np.array([0.4, 0.6, 0.5])).estimable
    assert b.aggregate([np.array([0.4, 0.5]), np.array([0.1, 0.2, 0.3])])["iqm"].low is None
    with pytest.raises(ValueError, match="nothing"):
        b.one(np.array([]))


def test_interval_depends_on_the_number_of_seeds() -> None:
    """marl-eval#66: half a width of 1.96 std / sqrt(10) whatever the number of seeds."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=5)
    few, many = b.one(x), b.one(np.tile(x, 8))
    assert few.low is not None
    assert few.high is not None
    assert many.low is not None
    assert many.high is not None
    assert few.high - few.low > 2 * (many.high - many.low)


def test_the_seed_is_the_unit_not_the_episode() -> None:
    """rliable#20: repeating what a seed measured makes its estimate no more certain; repeating seeds would."""
    seeds = np.array([0.2, 0.5, 0.9])
    assert b.one(seeds).n == 3
    assert b.one(np.repeat(seeds, 100)).n == 300  # which is why episodes are averaged before


def test_seeded_and_seed_changes_the_resamples() -> None:
    """rliable: random_state was ignored."""
    x = np.random.default_rng(3).normal(size=9)
    assert b.one(x, seed=1) == b.one(x, seed=1)
    assert b.one(x, seed=1) != b.one(x, seed=2)


def test_percentiles_are_widened_for_few_seeds() -> None:
    assert b.tail([10]) == pytest.approx(stats.norm.cdf(-np.sqrt(10 / 9) * stats.t.ppf(0.975, 9)))
    assert b.tail([10**6]) == pytest.approx(0.025, abs=1e-5)
    assert b.tail([10] * 10) > b.tail([10])
    with pytest.raises(ValueError, match="not estimable"):
        b.tail([1])


@pytest.mark.parametrize("statistic", ["mean", "iqm"])
def test_coverage_at_ten_seeds(statistic: str) -> None:
    """93 to 97% of intervals hold the truth, within the noise of 800 simulations (docs/statistics.md)."""
    rng = np.random.default_rng(0)
    runs, n = 800, 10
    x = rng.normal(size=(runs, n))
    index = rng.integers(0, n, (1_500, n))
    hits = 0
    for row in x:
        low, high = b.percentiles(b.STATISTICS[statistic](row[index]), [n])
        hits += bool(low <= 0 <= high)
    assert 0.92 <= hits / runs <= 0.985


def test_coverage_of_the_aggregate_at_ten_seeds() -> None:
    rng = np.random.default_rng(1)
    hits, runs = 0, 150
    for _ in range(runs):
        strata = [rng.normal(m, 1, 10) for m in (0.0, 1.0, 2.0)]
        e = b.interval(strata, b.pooled_mean, resamples=600)
        assert e.low is not None
        assert e.high is not None
        hits += e.low <= 1.0 <= e.high
    assert hits / runs > 0.88


def test_ten_thousand_resamples_of_ten_by_ten_by_four_take_under_two_seconds() -> None:
    rng = np.random.default_rng(0)
    methods = [[rng.random(10) for _ in range(10)] for _ in range(4)]
    start = time.process_time()  # CPU time: other processes do not count
    for strata in methods:
        b.aggregate(strata)
    assert time.process_time() - start < 2.0


@given(st.integers(1, 400), st.data())
def test_wilson_is_statsmodels(n: int, data: st.DataObject) -> None:
    k = data.draw(st.integers(0, n))
    low, high = b.wilson(k, n)
    expected = proportion_confint(k, n, method="wilson")
    assert (low, high) == pytest.approx(expected, abs=1e-9)
    assert 0 <= low <= k / n <= high <= 1


def test_wilson_of_nothing() -> None:
    with pytest.raises(ValueError, match="no proportion"):
        b.wilson(0, 0)
