from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.power import TTestIndPower

from harness.analysis import twosample as t

scores = st.lists(st.integers(0, 20).map(float), min_size=3, max_size=10).map(np.array)


def test_improvement_by_hand() -> None:
    # 1 beats none of (1, 2) but ties one; 3 beats both; 2 beats 1 and ties 2
    assert t.improvement(np.array([1.0, 3.0, 2.0]), np.array([1.0, 2.0])) == pytest.approx((0.5 + 2 + 1.5) / 6)


@given(scores, scores)
def test_improvement_is_mann_whitneys_u(x: np.ndarray, y: np.ndarray) -> None:
    assert t.improvement(x, y) == pytest.approx(stats.mannwhitneyu(x, y).statistic / (len(x) * len(y)))
    assert t.improvement(x, y) + t.improvement(y, x) == pytest.approx(1)
    assert t.cliff_delta(x, y) == pytest.approx(2 * t.improvement(x, y) - 1)


@settings(deadline=None)
@given(scores)
def test_a_duplicated_method_improves_with_probability_one_half(x: np.ndarray) -> None:
    e = t.improvement_estimate(x, x)
    assert e.value == pytest.approx(0.5)
    assert e.low is not None
    assert e.high is not None
    assert e.low < 0.5 < e.high
    assert t.improvement_over_tasks([x, x], [x, x]).value == pytest.approx(0.5)
    assert t.difference(x, x, resamples=100).value == 0


@settings(deadline=None)
@given(scores, scores)
def test_improvement_interval_is_in_bounds_and_mirrors(x: np.ndarray, y: np.ndarray) -> None:
    e, mirrored = t.improvement_estimate(x, y), t.improvement_estimate(y, x)
    assert e.low is not None
    assert e.high is not None
    assert mirrored.high is not None
    assert 0 <= e.low <= e.value <= e.high <= 1
    assert e.low == pytest.approx(1 - mirrored.high, abs=1e-7)


def test_separated_samples_are_not_certain() -> None:
    """The bootstrap would say [1, 1], of three seeds as of thirty."""
    three = t.improvement_estimate(np.arange(3.0) + 10, np.arange(3.0))
    thirty = t.improvement_estimate(np.arange(30.0) + 100, np.arange(30.0))
    assert three.value == thirty.value == 1.0
    assert three.low is not None
    assert thirty.low is not None
    assert three.low < 0.6 < 0.85 < thirty.low < 1
    over = t.improvement_over_tasks([np.arange(5.0) + 10] * 4, [np.arange(5.0)] * 4)
    assert over.low is not None
    assert 0.6 < over.low < 1
    assert over.high == 1


def test_coverage_of_the_improvement_interval() -> None:
    rng = np.random.default_rng(0)
    shift = 2.0
    truth = float(stats.norm.cdf(shift / np.sqrt(2)))
    hits = 0
    for _ in range(300):
        e = t.improvement_estimate(rng.normal(shift, 1, 10), rng.normal(0, 1, 10))
        assert e.low is not None
        assert e.high is not None
        hits += e.low <= truth <= e.high
    assert 0.91 <= hits / 300 <= 0.99


def test_too_few_seeds_have_no_test() -> None:
    x, y = np.array([1.0, 2.0]), np.array([1.0, 2.0, 3.0])
    assert t.welch(x, y) is None
    assert t.mann_whitney(x, y) is None
    assert t.seeds_needed(x, y) is None
    assert not t.difference(x, y).estimable
    assert not t.improvement_estimate(x, y).estimable
    assert not t.improvement_over_tasks([x, y], [y, y]).estimable


def test_no_spread() -> None:
    ones, zeros = np.ones(5), np.zeros(5)
    assert t.welch(ones, zeros) is None
    assert t.cohen_d(ones, zeros) is None
    assert t.mann_whitney(ones, zeros) == pytest.approx(stats.mannwhitneyu(ones, zeros).pvalue)
    assert t.mann_whitney(ones, ones) == 1.0


@given(scores, scores)
def test_tests_are_scipys(x: np.ndarray, y: np.ndarray) -> None:
    if np.ptp(x) and np.ptp(y):
        assert t.welch(x, y) == pytest.approx(stats.ttest_ind(x, y, equal_var=False).pvalue)


@pytest.mark.filterwarnings("error")
def test_seeds_that_are_equal_but_for_rounding_warn_of_nothing() -> None:
    """Games in which every seed ends alike printed scipy's warning of lost precision over the report."""
    flat = np.array([0.1 + 0.2, 0.3, 0.3, 0.3, 0.3])
    p = t.welch(flat, np.array([0.5, 0.4, 0.6, 0.5, 0.55]))
    assert p is not None
    assert p < 0.01


@pytest.mark.parametrize("seed", range(12))
def test_holm_is_statsmodels(seed: int) -> None:
    p = (np.random.default_rng(seed).random(seed + 1) ** 3).round(2).tolist()  # some small, some equal
    adjusted = t.holm(p)
    assert adjusted == pytest.approx(list(multipletests(p, method="holm")[1]))
    levels = t.holm_levels(p)
    rejected = multipletests(p, alpha=0.05, method="holm")[0]
    assert all(value <= level for value, level, r in zip(p, levels, rejected) if r)


def test_holm_by_hand_and_without_tests_that_were_not_made() -> None:
    assert t.holm([0.01, None, 0.04, 0.03]) == [pytest.approx(0.03), None, pytest.approx(0.06), pytest.approx(0.06)]
    assert t.holm_levels([0.01, None, 0.04, 0.03]) == pytest.approx([0.05 / 3, 0.05, 0.05, 0.025])


def test_effect_sizes_by_hand() -> None:
    x, y = np.array([1.0, 2.0, 3.0]), np.array([3.0, 4.0, 5.0])
    assert t.cohen_d(x, y) == pytest.approx(-2.0)
    assert t.hedges_g(x, y) == pytest.approx(-2.0 * 0.7979, abs=1e-3)  # the exact factor for 4 degrees of freedom
    assert t.cliff_delta(x, y) == pytest.approx(-8 / 9)


@pytest.mark.parametrize(("d", "alpha"), [(0.8, 0.05), (1.5, 0.05), (0.5, 0.01)])
def test_seeds_needed_is_statsmodels(d: float, alpha: float) -> None:
    base = np.array([-1.0, 0.0, 1.0])  # standard deviation 1
    n = t.seeds_needed(base + d, base, alpha=alpha)
    expected = TTestIndPower().solve_power(effect_size=d, alpha=alpha, power=0.8)
    assert n == int(np.ceil(expected))
    assert t.power(d, 12, alpha) == pytest.approx(TTestIndPower().power(d, 12, alpha), abs=1e-6)


def test_seeds_needed_says_nothing_beyond_a_thousand() -> None:
    base = np.array([-1.0, 0.0, 1.0])
    assert t.seeds_needed(base + 0.01, base) is None
    assert t.seeds_needed(base, base) is None
