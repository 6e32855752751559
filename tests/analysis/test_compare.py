from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from harness.analysis.compare import Endpoint, endpoint, overall, pairs
from harness.analysis.scores import Scores, TaskInfo, from_results
from harness.errors import UserError
from harness.store import load

SMALL: dict[str, Any] = {
    "methods": {"qmix": (0.9, 0.3), "vdn": (0.4, 0.3)}, "seeds": range(6), "points": 5, "env_steps": 40_000,
    "final_episodes": 40, "eval_episodes": 8,
}  # fmt: skip


def end(name: str = "3m", **values: list[float]) -> Endpoint:
    task = TaskInfo("smac", name, "won", 0.0, 1.0)
    return Endpoint(task, {k: np.array(v, float) for k, v in values.items()}, "made up", True)


def scores_of(path: Path) -> Scores:
    return from_results([load(path)])


A, B, C = [0.9, 0.92, 0.95, 0.88, 0.91], [0.5, 0.45, 0.55, 0.6, 0.4], [0.89, 0.93, 0.94, 0.9, 0.9]


def test_equal_budgets_compare_the_absolute_metric(synthetic: ModuleType, tmp_path: Path) -> None:
    scores = scores_of(synthetic.write(synthetic.Made(tmp_path, **SMALL)))
    made = endpoint(scores, scores.tasks[0])
    assert made.absolute
    assert "40 fresh episodes" in made.basis
    assert made.values["qmix"].tolist() == [r.final for r in scores.cell("qmix", scores.tasks[0])]


def test_unequal_budgets_are_cut_at_the_common_step(synthetic: ModuleType, tmp_path: Path) -> None:
    synthetic.write(synthetic.Made(tmp_path, **{**SMALL, "methods": {"qmix": (0.9, 0.3)}}))
    more = {"methods": {"ippo": (0.5, 0.3)}, "env_steps": 80_000, "points": 9}
    synthetic.write(synthetic.Made(tmp_path, **{**SMALL, **more}))
    scores = scores_of(tmp_path)
    made = endpoint(scores, scores.tasks[0])
    assert not made.absolute
    assert made.at == 40_000
    cell = scores.cell("ippo", scores.tasks[0])
    assert made.values["ippo"].tolist() == [r.values[r.steps.tolist().index(40_000)] for r in cell]


def test_match_by_updates_and_seconds(synthetic: ModuleType, tmp_path: Path) -> None:
    scores = scores_of(synthetic.write(synthetic.Made(tmp_path, **SMALL)))
    made = endpoint(scores, scores.tasks[0], "seconds")
    # vdn makes 13,500 steps a second and qmix 15,000: qmix is done first, at 40,000 / 15,000 s
    assert made.at == pytest.approx(40_000 / 15_000)
    slow = scores.cell("vdn", scores.tasks[0])[0]
    assert slow.seconds is not None
    assert made.values["vdn"][0] == slow.values[np.flatnonzero(slow.seconds <= made.at)[-1]]
    assert "gradient updates" in endpoint(scores, scores.tasks[0], "updates").basis
    (tmp_path / "made/smac/3m/qmix/seed_0/timings.csv").unlink()
    again = scores_of(tmp_path)
    with pytest.raises(UserError, match="no seconds of training recorded"):
        endpoint(again, again.tasks[0], "seconds")


def test_verdicts() -> None:
    made = {(p.a, p.b): p for p in pairs([end(a=A, b=B, c=C)], resamples=500)}
    assert made["a", "b"].verdict == "above"
    assert made["b", "c"].verdict == "below"
    assert made["a", "c"].verdict == "undecided"
    assert made["a", "c"].more_seeds is None or made["a", "c"].more_seeds > 5
    assert made["a", "b"].welch_holm is not None
    assert made["a", "b"].welch_p is not None
    assert made["a", "b"].welch_holm > made["a", "b"].welch_p


def test_two_seeds_have_no_verdict() -> None:
    (made,) = pairs([end(a=[0.9, 0.8], b=[0.1, 0.2])])
    assert made.verdict == "not estimable"
    assert made.difference.value == pytest.approx(0.7)
    assert not made.difference.estimable


def test_no_spread_falls_back_to_ranks() -> None:
    (made,) = pairs([end(a=[1.0] * 8, b=[0.0] * 8)])
    assert made.welch_p is None
    assert made.verdict == "above"
    (same,) = pairs([end(a=[1.0] * 8, b=[1.0] * 8)])
    assert same.verdict == "undecided"


def test_order_of_methods_changes_nothing() -> None:
    first = pairs([end(a=A, b=B, c=C)], resamples=500)
    second = pairs([end(c=C[::-1], b=B, a=A)], resamples=500)
    assert first == second
    one, two = (overall([end("3m", **m), end("8m", **m)], resamples=500) for m in ({"a": A, "b": B}, {"b": B, "a": A}))
    assert one is not None
    assert two is not None
    assert one.aggregates == two.aggregates
    assert one.improvement == two.improvement


def test_a_duplicated_method_is_as_likely_above_as_below() -> None:
    made = overall([end("3m", a=A, twin=A), end("8m", a=B, twin=B)], resamples=500)
    assert made is not None
    assert made.improvement["a", "twin"].value == 0.5
    assert made.improvement["twin", "a"].value == 0.5
    assert made.aggregates["a"] == made.aggregates["twin"]


def test_baseline_makes_a_smaller_family() -> None:
    made = pairs([end(a=A, b=B, c=C)], baseline="b", resamples=500)
    assert [(p.a, p.b) for p in made] == [("a", "b"), ("c", "b")]
    with pytest.raises(UserError, match="unknown baseline"):
        pairs([end(a=A, b=B)], baseline="z")


def test_overall_takes_the_tasks_that_all_have() -> None:
    ends = [end("3m", a=A, b=B), end("8m", a=A, b=B), end("MMM", a=A)]
    made = overall(ends, resamples=500)
    assert made is not None
    assert [t.name for t in made.tasks] == ["3m", "8m"]
    assert made.ranks is None
    assert overall(ends[1:], resamples=500) is None


def test_overall_does_not_pool_engines() -> None:
    ends = [end("3m [smax]", a=A, b=B), end("3m [sc2]", a=A, b=B)]
    assert overall(ends, resamples=500) is None


def test_normalised_by_declared_bounds() -> None:
    task = TaskInfo("p", "prey", "return", -10.0, 30.0)
    made = Endpoint(task, {"a": np.array([-10.0, 10.0, 30.0])}, "", True)
    assert made.strata("a").tolist() == [0.0, 0.5, 1.0]
