from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

from harness.analysis.fairness import fairness, memory, number, seconds
from harness.analysis.scores import from_results
from harness.store import TrialFolder, load

SMALL: dict[str, Any] = {
    "methods": {"qmix": (0.9, 0.3), "vdn": (0.4, 0.3)}, "seeds": range(3), "points": 3, "env_steps": 40_000,
    "final_episodes": 8, "eval_episodes": 4, "tasks": ("3m", "8m"),
}  # fmt: skip


def test_what_differs_is_marked(synthetic: ModuleType, tmp_path: Path) -> None:
    """pymarl#17: more environments in parallel changed the updates, and nobody saw."""
    path = synthetic.write(synthetic.Made(tmp_path, **SMALL))
    for file in path.glob("smac/*/vdn/*/trial.json"):
        TrialFolder(file.parent).update(num_envs=32, updates=160)
    made = fairness(from_results([load(path)]))
    assert set(made.differing) >= {"environments", "gradient updates", "updates per 1,000 env steps", "parameters"}
    assert "env steps" not in made.differing
    assert made.rows["vdn"]["environments"].text == "32"
    assert made.rows["qmix"]["environments"].differs
    assert made.rows["vdn"]["updates per 1,000 env steps"].text == "4"
    assert made.rows["qmix"]["by network"].text == "agent 27k, mixer 18k"
    assert made.rows["qmix"]["hidden sizes"].text == "hidden 64"


def test_what_differs_between_tasks_alone_is_a_range_and_no_mark(synthetic: ModuleType, tmp_path: Path) -> None:
    path = synthetic.write(synthetic.Made(tmp_path, **SMALL))
    for file in path.glob("smac/8m/*/*/trial.json"):
        TrialFolder(file.parent).update(num_envs=16)
    made = fairness(from_results([load(path)]))
    assert made.rows["qmix"]["environments"].text == "8 – 16"
    assert not made.rows["qmix"]["environments"].differs


def test_small_differences_of_wall_time_are_no_difference(synthetic: ModuleType, tmp_path: Path) -> None:
    path = synthetic.write(synthetic.Made(tmp_path, **SMALL))
    for file in path.rglob("trial.json"):
        TrialFolder(file.parent).update(wall_seconds=100.0 + 5 * ("vdn" in str(file)))
    assert "wall time" not in fairness(from_results([load(path)])).differing


def test_what_was_not_recorded_is_said(synthetic: ModuleType, tmp_path: Path) -> None:
    path = synthetic.write(synthetic.Made(tmp_path, **SMALL))
    for file in path.glob("smac/*/vdn/*/trial.json"):
        TrialFolder(file.parent).update(parameters=None, tuning=None)
    made = fairness(from_results([load(path)]))
    assert made.rows["vdn"]["parameters"].text == "not recorded"
    assert "tuning budget" not in made.columns


def test_units() -> None:
    assert [number(x) for x in (8, 1_920.0, 33_333, 2_000_000)] == ["8", "1920", "33.3k", "2M"]
    assert [seconds(x) for x in (12, 120, 7_200)] == ["12 s", "2.0 min", "2.0 h"]
    assert [memory(x) for x in (2**20 * 900, 2**31)] == ["900 MiB", "2.00 GiB"]


def test_a_declared_tuning_budget_is_a_column(synthetic: ModuleType, tmp_path: Path) -> None:
    path = synthetic.write(synthetic.Made(tmp_path, **SMALL))
    (path / "tuning.json").write_text('{"qmix": "24 settings x 3 seeds"}')
    made = fairness(from_results([load(path)]))
    assert made.rows["qmix"]["tuning budget"].text == "24 settings x 3 seeds"
    assert made.rows["vdn"]["tuning budget"].text == "not declared"
    assert made.rows["vdn"]["tuning budget"].differs
