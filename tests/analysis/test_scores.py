from __future__ import annotations

from pathlib import Path
from types import ModuleType

import numpy as np
import pandas as pd
import pytest

from harness.analysis.scores import TaskInfo, from_results, task_info
from harness.errors import UserError
from harness.store import TrialFolder, load

SMALL = {"methods": {"qmix": (0.8, 0.3), "vdn": (0.6, 0.3)}, "seeds": (0, 1, 2), "points": 5, "env_steps": 40_000}


def test_episodes_are_averaged_once_and_here(synthetic: ModuleType, tmp_path: Path) -> None:
    """rliable#20, jax-aht PR108: an episode is no run."""
    path = synthetic.write(synthetic.Made(tmp_path, **SMALL))
    scores = from_results([load(path)])
    assert scores.algorithms == ("qmix", "vdn")
    (task,) = scores.tasks
    cell = scores.cell("qmix", task)
    assert [r.seed for r in cell] == [0, 1, 2]
    raw = pd.read_csv(path / "smac/3m/qmix/seed_1/evaluations.csv")
    assert cell[1].values.tolist() == pytest.approx(raw.groupby("env_steps")["won"].mean().tolist())
    assert cell[1].steps.tolist() == [0, 10_000, 20_000, 30_000, 40_000]
    final = pd.read_csv(path / "smac/3m/qmix/seed_1/final.csv")
    assert cell[1].final == pytest.approx(final["won"].mean())
    assert cell[1].final_episodes == len(final) == 320
    assert cell[1].seconds is not None
    assert cell[1].updates is not None
    assert cell[1].updates.tolist() == [s // 60 for s in cell[1].steps]


def test_the_absolute_metric_is_not_the_best_evaluation(synthetic: ModuleType, tmp_path: Path) -> None:
    """BenchMARL: the maximum over evaluations of the maximum over episodes."""
    path = synthetic.write(synthetic.Made(tmp_path, **SMALL))
    (run, *_) = from_results([load(path)]).cell("vdn", TaskInfo("smac", "3m", "won", 0, 1))
    folder = TrialFolder(path / "smac/3m/vdn/seed_0")
    (folder.path / "final.csv").unlink()
    folder.append("final.csv", ("env_steps", "episode", "won"), [(40_000, k, int(k < 3)) for k in range(10)])
    changed = from_results([load(path)]).cell("vdn", TaskInfo("smac", "3m", "won", 0, 1))[0]
    assert changed.final == pytest.approx(0.3)
    assert changed.final != max(changed.values)
    assert changed.values.tolist() == run.values.tolist()


def test_missing_is_missing_never_nan_in_a_mean(synthetic: ModuleType, tmp_path: Path) -> None:
    path = synthetic.write(synthetic.Made(tmp_path, **SMALL))
    file = path / "smac/3m/qmix/seed_2/evaluations.csv"
    table = pd.read_csv(file)
    table.loc[table["env_steps"] == 20_000, "won"] = np.nan
    table.to_csv(file, index=False)
    scores = from_results([load(path)])
    run = scores.cell("qmix", scores.tasks[0])[2]
    assert run.steps.tolist() == [0, 10_000, 30_000, 40_000]
    assert not np.isnan(run.values).any()
    assert any("missing values of won" in n.text for n in scores.notices)


def test_unfinished_trials_are_left_out_and_listed(synthetic: ModuleType, tmp_path: Path) -> None:
    made = synthetic.Made(tmp_path, **SMALL)
    path = synthetic.write(made)
    synthetic.trial(made, "3m", "qmix", 7, np.random.default_rng(0), status="running")
    scores = from_results([load(path)])
    assert len(scores.cell("qmix", scores.tasks[0])) == 3
    assert [r["seed"] for r in scores.unfinished] == [7]
    partial = from_results([load(path)], partial=True)
    assert len(partial.cell("qmix", partial.tasks[0])) == 4


def test_nothing_complete_says_what_there_is(synthetic: ModuleType, tmp_path: Path) -> None:
    made = synthetic.Made(tmp_path, **SMALL)
    synthetic.trial(made, "3m", "qmix", 0, np.random.default_rng(0), status="failed")
    with pytest.raises(UserError, match="1 failed"):
        from_results([load(made.path)])


def test_selection_names_the_nearest(synthetic: ModuleType, tmp_path: Path) -> None:
    path = synthetic.write(synthetic.Made(tmp_path, **SMALL))
    assert from_results([load(path)], algorithms=("qmix",)).algorithms == ("qmix",)
    with pytest.raises(UserError, match=r"qmixx.*'qmix'"):
        from_results([load(path)], algorithms=("qmix", "qmixx"))


def test_a_damaged_trial_is_named_and_the_others_stay(synthetic: ModuleType, tmp_path: Path) -> None:
    path = synthetic.write(synthetic.Made(tmp_path, **SMALL))
    (path / "smac/3m/qmix/seed_0/trial.json").write_text("{")
    scores = from_results([load(path)])
    assert len(scores.cell("qmix", scores.tasks[0])) == 2
    assert any(n.topic == "damaged" and "seed_0" in n.text for n in scores.notices)


def test_task_info_refuses_what_cannot_be_normalised() -> None:
    record = {"suite": "s", "task": "t", "metric": "return"}
    with pytest.raises(UserError, match="no bounds"):
        task_info(record)
    with pytest.raises(UserError, match="empty"):
        task_info({**record, "bounds": [1, 1]})
    assert task_info({"suite": "s", "task": "t", "metric": "won"}).high == 1.0
    info = task_info({**record, "bounds": [-10, 30], "references": {"random": -5}})
    assert info.normalise(np.array([-10.0, 10.0, 50.0])).tolist() == [0.0, 0.5, 1.5]
    assert info.references == {"random": -5.0}


def test_two_records_of_one_task_that_disagree_are_refused(synthetic: ModuleType, tmp_path: Path) -> None:
    path = synthetic.write(synthetic.Made(tmp_path, **SMALL))
    TrialFolder(path / "smac/3m/qmix/seed_0").update(bounds=[0.0, 2.0])
    with pytest.raises(UserError, match=r"disagree.*high"):
        from_results([load(path)])


def test_tasks_stand_in_natural_order(synthetic: ModuleType, tmp_path: Path) -> None:
    path = synthetic.write(
        synthetic.Made(tmp_path, **{**SMALL, "seeds": (0,)}, tasks=("p_100", "10m", "3m", "p_25", "MMM2", "25m"))
    )
    assert [t.name for t in from_results([load(path)]).tasks] == ["3m", "10m", "25m", "MMM2", "p_25", "p_100"]


def test_a_column_of_words_is_no_reason_to_fail(synthetic: ModuleType, tmp_path: Path) -> None:
    """Results of other systems may hold any column."""
    path = synthetic.write(synthetic.Made(tmp_path, methods={"qmix": (0.9, 0.3)}, seeds=(0, 1), points=3))
    for file in path.rglob("evaluations.csv"):
        pd.read_csv(file).assign(map="a forest").to_csv(file, index=False)
    one, two = from_results([load(path)]).cell("qmix", from_results([load(path)]).tasks[0])
    assert one.measured != two.measured != ""


def test_a_trial_that_failed_before_it_knew_its_task_is_no_reason_to_refuse_the_others(
    synthetic: ModuleType, tmp_path: Path
) -> None:
    path = synthetic.write(synthetic.Made(tmp_path, **SMALL))
    folder = TrialFolder(path / "smac/3m/broken/seed_0")
    folder.path.mkdir(parents=True)
    folder.update(experiment="made", suite="smac", task="3m", algorithm="broken", seed=0, status="failed", reason="oh")
    for partial in (False, True):
        scores = from_results([load(path)], partial=partial)
        assert scores.algorithms == ("qmix", "vdn")
        assert [r["algorithm"] for r in scores.unfinished] == ["broken"]


def test_a_complete_trial_whose_tables_were_changed_is_named_and_left_out(
    synthetic: ModuleType, tmp_path: Path
) -> None:
    path = synthetic.write(synthetic.Made(tmp_path, **SMALL))
    folder = TrialFolder(path / "smac/3m/qmix/seed_0")
    folder.update(bytes=folder.positions())
    assert len(from_results([load(path)]).runs["qmix", "smac/3m"]) == 3
    with open(folder.path / "final.csv", "a") as file:
        file.write("40000,500,99,1,1\n")
    found = load(path)
    assert "final.csv is not as it was written" in found.damaged[0][1]
    assert len(from_results([found]).runs["qmix", "smac/3m"]) == 2


def test_an_unknown_name_is_answered_with_those_that_are_there(synthetic: ModuleType, tmp_path: Path) -> None:
    path = synthetic.write(synthetic.Made(tmp_path, **SMALL))
    with pytest.raises(UserError, match="unknown task 'foo'; known: 3m"):
        from_results([load(path)], tasks=["foo"])
    with pytest.raises(UserError, match="unknown algorithm 'foo'; known: qmix, vdn"):
        from_results([load(path)], algorithms=["foo"])
