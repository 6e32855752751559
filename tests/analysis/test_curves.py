from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from harness.analysis import curves
from harness.analysis.scores import Run, TaskInfo

TASK = TaskInfo("smac", "3m", "won", 0.0, 1.0)


def run_of(steps: list[int], values: list[float], seed: int = 0, **more: object) -> Run:
    return Run("t", "qmix", "smac/3m", seed, "smax", {}, np.array(steps), np.array(values, float), **more)  # type: ignore[arg-type]


def test_ragged_runs_are_aligned_on_common_steps_and_named() -> None:
    """marl-eval: KeyError."""
    runs = [run_of([0, 10, 20, 30], [0, 1, 2, 3]), run_of([0, 10, 30], [4, 5, 6], 1), run_of([0, 10, 20], [7, 8, 9], 2)]
    steps, values, short = curves.align(runs)
    assert steps.tolist() == [0, 10]
    assert values.tolist() == [[0, 1], [4, 5], [7, 8]]
    assert len(short) == 2
    assert "seed 1 of qmix on smac/3m has 3 of 4 points, ends at 30" in short[0]
    assert "seed 2" in short[1]


def test_steps_of_other_systems_are_put_on_one_grid() -> None:
    runs = [run_of([0, 10_012, 20_030, 30_001], [0, 1, 2, 3]), run_of([0, 10_101, 20_002, 30_040], [4, 5, 6, 7], 1)]
    steps, values, short = curves.align(runs)
    assert len(steps) == 4
    assert values.tolist() == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert short == []


def test_a_run_without_evaluations_leaves_no_curve() -> None:
    steps, values, short = curves.align([run_of([0, 10], [1, 2]), run_of([], [], 1)])
    assert steps.size == 0
    assert values.shape == (2, 0)
    assert "has no evaluation" in short[0]


@pytest.mark.parametrize("statistic", ["mean", "iqm", "median"])
def test_curve_centre_and_band(statistic: str) -> None:
    values = np.random.default_rng(0).random((8, 5))
    c = curves.curve(np.arange(5.0), values, statistic, resamples=500)
    centre = {"mean": values.mean(0), "median": np.median(values, 0), "iqm": stats.trim_mean(values, 0.25, 0)}
    assert c.value == pytest.approx(centre[statistic])
    assert c.low is not None
    assert c.high is not None
    assert (values.min(0) <= c.low).all()
    assert (c.low <= c.value).all()
    assert (c.value <= c.high).all()
    assert (c.high <= values.max(0)).all()
    shuffled = curves.curve(np.arange(5.0), values[::-1], statistic, resamples=500)
    assert shuffled.low == pytest.approx(c.low)


def test_two_seeds_have_a_curve_and_no_band() -> None:
    c = curves.curve(np.arange(3.0), np.ones((2, 3)))
    assert c.value.tolist() == [1, 1, 1]
    assert c.low is None


def test_reach_by_hand() -> None:
    steps = [0, 10, 20, 30]
    runs = [run_of(steps, [0, 0.2, 0.5, 0.8], s) for s in range(3)] + [run_of(steps, [0, 0.5, 0.6, 0.7], 3)]
    found = curves.reach(runs, TASK, best=1.0, fraction=0.5, resamples=500)
    assert found.level == 0.5
    assert (found.reached, found.seeds) == (4, 4)
    assert found.steps is not None
    assert found.steps.value == 20  # of 10 20 20 20
    never = curves.reach(runs, TASK, best=1.0, fraction=0.95, resamples=500)
    assert never.steps is None
    assert never.reached == 0
    half = curves.reach(runs, TASK, best=1.0, fraction=0.8, resamples=500)
    assert half.reached == 3
    assert half.steps is not None
    assert half.steps.high == float("inf")  # some resamples hold the seed that never got there


def test_reach_on_wall_time_and_without_a_record_of_it() -> None:
    timed = [run_of([0, 10, 20], [0, 0.6, 0.9], s, seconds=np.array([0.0, 5.0, 11.0])) for s in range(3)]
    found = curves.reach(timed, TASK, 1.0, 0.8, axis="seconds", resamples=200)
    assert found.steps is not None
    assert found.steps.value == 11
    assert curves.first_reach(run_of([0, 10], [1, 1]), 0.5, "seconds") == float("inf")


def test_reach_starts_from_the_lower_bound() -> None:
    task = TaskInfo("p", "prey", "return", -100.0, 0.0)
    assert curves.reach([run_of([0, 1, 2], [-100, -60, -10], s) for s in range(3)], task, 0.0, 0.5).level == -50


def test_profile_by_hand() -> None:
    strata = [np.array([0.1, 0.5, 0.9]), np.array([0.5, 0.6, 0.7])]
    c = curves.profile(strata, np.array([0.0, 0.5, 0.65, 1.0]), resamples=300)
    assert c.value == pytest.approx([1.0, (1 / 3 + 2 / 3) / 2, (1 / 3 + 1 / 3) / 2, 0.0])
    assert c.low is not None
    assert (c.low <= c.value + 1e-12).all()
