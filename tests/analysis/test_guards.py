from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd
import pytest

from harness.analysis import success
from harness.analysis.exchange import matrices
from harness.analysis.guards import guard
from harness.analysis.scores import Scores, from_results
from harness.analysis.study import study
from harness.errors import UserError
from harness.store import TrialFolder, load

SMALL: dict[str, Any] = {
    "methods": {"qmix": (0.8, 0.3), "vdn": (0.6, 0.3)}, "seeds": (0, 1, 2, 3, 4), "points": 5, "env_steps": 40_000,
    "final_episodes": 40, "eval_episodes": 8,
}  # fmt: skip
Write = Callable[..., Path]


@pytest.fixture
def write(synthetic: ModuleType, tmp_path: Path) -> Write:
    return lambda **more: synthetic.write(synthetic.Made(tmp_path, **{**SMALL, **more}))


def guarded(*paths: Path, **options: Any) -> Scores:
    return guard(from_results([load(p) for p in paths]), **options)


def said(scores: Scores, topic: str) -> str:
    return "\n".join(n.text for n in scores.notices if n.topic == topic)


def change(path: Path, **values: Any) -> None:
    for file in path.rglob("trial.json"):
        TrialFolder(file.parent).update(**values)


def test_clean_results_raise_no_notice(write: Write) -> None:
    assert guarded(write()).notices == ()


def test_engines_are_never_pooled(write: Write) -> None:
    """RODE#5, TMC#4: StarCraft II versions mixed."""
    path = write()
    change(path / "smac/3m/qmix/seed_3", engine="StarCraft II 4.10")
    with pytest.raises(
        UserError, match=r"mixed engines.*StarCraft II 4\.10 \(1 trials\) and smax 0\.2\.0 \(9 trials\)"
    ):
        guarded(path)
    kept = guarded(path, engine="smax 0.2.0")
    assert [len(c) for c in kept.runs.values()] == [4, 5]
    with pytest.raises(UserError, match="no run of engine 'sc2'"):
        guarded(path, engine="sc2")
    apart = guarded(path, split=True)
    assert [t.name for t in apart.tasks] == ["3m [StarCraft II 4.10]", "3m [smax 0.2.0]"]
    assert sorted(len(c) for c in apart.runs.values()) == [1, 4, 5]


def test_methods_on_different_engines_are_not_compared(write: Write) -> None:
    path = write()
    change(path / "smac/3m/qmix", engine="smax 0.3.0")
    with pytest.raises(UserError, match=r"smax 0\.2\.0.*smax 0\.3\.0"):
        guarded(path)


def test_settings_are_never_pooled(write: Write) -> None:
    """BenchMARL#63."""
    path = write()
    file = TrialFolder(path / "smac/3m/qmix/seed_1")
    record = file.record()
    assert record is not None
    record["settings"]["algorithm"]["lr"] = 0.1
    file.update(settings=record["settings"])
    with pytest.raises(UserError, match=r"qmix on smac/3m: mixed settings.*algorithm\.lr is 0\.0005 or 0\.1"):
        guarded(path)
    apart = guarded(path, split=True)
    assert apart.algorithms == ("qmix (lr=0.0005)", "qmix (lr=0.1)", "vdn")
    assert "mixed settings" in said(apart, "settings")


def test_results_of_two_machines_are_merged(write: Write, tmp_path: Path) -> None:
    """BenchMARL#63: one experiment, seeds on two machines, one of them copied to both."""
    first = write(seeds=(0, 1, 2))
    moved = tmp_path / "other" / "made"
    moved.parent.mkdir()
    shutil.move(first, moved)
    second = write(seeds=(2, 3, 4))
    scores = guarded(moved, second)
    assert [r.seed for r in scores.cell("qmix", scores.tasks[0])] == [0, 1, 2, 3, 4]


def test_one_seed_with_two_results_is_refused(write: Write, synthetic: ModuleType, tmp_path: Path) -> None:
    write()
    made = synthetic.Made(tmp_path, **SMALL, experiment="again")
    synthetic.trial(made, "3m", "qmix", 0, np.random.default_rng(99))
    with pytest.raises(UserError, match="seed 0 is there twice with different results"):
        guarded(tmp_path)


def test_identical_seeds_are_named_and_count_once(write: Write) -> None:
    """on-policy#85: three seeds, identical curves."""
    path = write()
    for seed in (1, 2):
        for name in ("evaluations.csv", "final.csv"):
            shutil.copy(path / "smac/3m/qmix/seed_0" / name, path / f"smac/3m/qmix/seed_{seed}" / name)
    scores = guarded(path)
    assert "Seeds 0, 1 and 2 of qmix on smac/3m are byte-identical" in said(scores, "identical")
    assert len(scores.cell("qmix", scores.tasks[0])) == 3


def test_seeds_that_evaluate_alike_and_were_trained_apart_are_two(write: Write) -> None:
    """Small games have few outcomes: 20 seeds that all end at 7 are 20 seeds."""
    path = write(metrics_rows=3)
    for name in ("evaluations.csv", "final.csv"):
        shutil.copy(path / "smac/3m/qmix/seed_0" / name, path / "smac/3m/qmix/seed_1" / name)
    scores = guarded(path)
    assert len(scores.cell("qmix", scores.tasks[0])) == 5
    assert said(scores, "identical") == ""
    shutil.copy(path / "smac/3m/qmix/seed_0/metrics.csv", path / "smac/3m/qmix/seed_1/metrics.csv")
    scores = guarded(path)
    assert len(scores.cell("qmix", scores.tasks[0])) == 4
    assert "Seeds 0 and 1 of qmix" in said(scores, "identical")


def test_constant_curves_are_no_sign_of_identical_seeds(write: Write) -> None:
    path = write()
    for file in path.glob("smac/3m/qmix/*/*.csv"):
        if file.name in ("evaluations.csv", "final.csv"):
            pd.read_csv(file).assign(won=1).to_csv(file, index=False)
    scores = guarded(path)
    assert len(scores.cell("qmix", scores.tasks[0])) == 5
    assert said(scores, "identical") == ""


def test_copied_seeds_are_found_where_the_score_never_moves(write: Write) -> None:
    """A failing method has a win rate of 0 throughout: every number of every episode tells its seeds apart."""
    path = write(metrics_rows=3)
    for file in path.glob("smac/3m/qmix/*/*.csv"):
        if file.name in ("evaluations.csv", "final.csv"):
            pd.read_csv(file).assign(won=0).to_csv(file, index=False)
    assert said(guarded(path), "identical") == ""
    for name in ("evaluations.csv", "final.csv", "metrics.csv"):
        shutil.copy(path / "smac/3m/qmix/seed_0" / name, path / "smac/3m/qmix/seed_2" / name)
    scores = guarded(path)
    assert "Seeds 0 and 2 of qmix" in said(scores, "identical")
    assert len(scores.cell("qmix", scores.tasks[0])) == 4


def test_two_runs_of_one_seed_that_never_scored_are_not_merged(
    write: Write, synthetic: ModuleType, tmp_path: Path
) -> None:
    write(methods={"qmix": (0.8, 0.3)})
    synthetic.trial(synthetic.Made(tmp_path, **SMALL, experiment="again"), "3m", "qmix", 0, np.random.default_rng(9))
    for file in tmp_path.glob("*/smac/3m/qmix/*/*.csv"):
        if file.name in ("evaluations.csv", "final.csv"):
            pd.read_csv(file).assign(won=0).to_csv(file, index=False)
    with pytest.raises(UserError, match="seed 0 is there twice with different results"):
        guarded(tmp_path)


def test_methods_that_did_not_play_the_same_task_are_not_compared(write: Write) -> None:
    """BenchMARL#63: one method on the task as it is, another with its walls taken away."""
    path = write()
    for seed in range(5):
        change(path / f"smac/3m/qmix/seed_{seed}", settings={"suite": {"walls": False, "stepping": "process"}})
        change(path / f"smac/3m/vdn/seed_{seed}", settings={"suite": {"walls": True, "stepping": "inline"}})
    with pytest.raises(
        UserError, match=r"smac/3m: the methods did not play the same task: suite.walls is False \(qmix\)"
    ):
        guarded(path)
    scores = guarded(path, split=True)
    assert [t.name for t in scores.tasks] == ["3m [walls=False]", "3m [walls=True]"]
    assert scores.algorithms == ("qmix", "vdn")
    assert "shown apart" in said(scores, "settings")


def test_a_method_with_a_corrupted_agent_is_not_compared_with_one_without(write: Write) -> None:
    path = write()
    for seed in range(5):
        change(path / f"smac/3m/qmix/seed_{seed}", settings={"corrupt": "agent:0,from:10,to:20,policy:uniform"})
    with pytest.raises(UserError, match="corrupt is 'agent:0"):
        guarded(path)


def test_stepping_is_no_setting_of_the_task(write: Write) -> None:
    path = write()
    change(path / "smac/3m", settings={"suite": {"stepping": "inline"}})
    change(path / "smac/3m/qmix/seed_0", settings={"suite": {"stepping": "process"}})
    assert said(guarded(path), "settings") == ""


def test_tasks_on_different_engines_are_not_pooled(write: Write) -> None:
    path = write(tasks=("3m", "8m"))
    for file in path.glob("smac/8m/*/*/trial.json"):
        TrialFolder(file.parent).update(engine="smax 0.1.0")
    assert "Tasks of smac ran on different engines (smax 0.1.0 and smax 0.2.0): no number over tasks" in said(
        guarded(path), "engine"
    )
    assert study([path]).overall is None


def test_what_was_never_learned_is_named(write: Write) -> None:
    path = write()
    change(path / "smac/3m/vdn/seed_0", best={"score": 0.0, "return": 0.0, "env_steps": 10, "updates": 0})
    assert "nothing learned (seeds): vdn on 3m (1)" in said(guarded(path), "untrained")


def test_evaluations_that_are_not_alike_are_named(write: Write) -> None:
    path = write()
    change(path, settings={"budget": {"env_steps": 40_000, "eval_every": 1_000}})
    assert said(guarded(path), "protocol") == ""
    change(path / "smac/3m/vdn/seed_0", settings={"budget": {"env_steps": 40_000, "eval_every": 123}})
    assert said(guarded(path), "protocol") == "Trials differ in env steps between evaluations: 3m (123 and 1,000)."


@pytest.mark.parametrize(("n", "words"), [(4, "too narrow"), (2, "not estimable"), (1, "not estimable")])
def test_few_seeds(write: Write, n: int, words: str) -> None:
    text = said(guarded(write(seeds=range(n))), "seeds")
    assert words in text
    assert "every method on every task" in text


def test_uneven_seeds_and_absent_methods_are_named(write: Write) -> None:
    path = write(tasks=("3m", "8m"))
    shutil.rmtree(path / "smac/8m/qmix")
    shutil.rmtree(path / "smac/3m/vdn/seed_4")
    scores = guarded(path)
    assert "vdn on 3m (4)" in said(scores, "seeds")
    assert "No runs of qmix on 8m" in said(scores, "missing")


def test_many_cells_are_told_method_by_method(write: Write) -> None:
    """Found in a report of 60 cells: a notice of five lines of names."""
    tasks = [f"{k}m" for k in range(1, 8)]
    path = write(tasks=tasks, seeds=range(4))
    for task in tasks:
        shutil.rmtree(path / f"smac/{task}/vdn/seed_3")
    shutil.rmtree(path / "smac/1m/qmix")
    scores = guarded(path)
    assert "Fewer than 5 seeds: every method on every task; " in said(scores, "seeds")
    assert "Most have 4 seeds; fewer: vdn on 1m (3), vdn on 2m (3)," in said(scores, "seeds")
    shutil.rmtree(path / "smac/1m/vdn/seed_2")
    for task in tasks[1:3]:
        shutil.rmtree(path / f"smac/{task}/qmix/seed_0")
    assert "Most have 4 seeds; fewer: qmix on 2 tasks (3) and vdn on 7 tasks (2 to 3)." in said(guarded(path), "seeds")


def test_unequal_budgets_are_both_shown(write: Write, synthetic: ModuleType, tmp_path: Path) -> None:
    """epymarl#9: 40M on-policy against 4M off-policy on one axis."""
    write(methods={"qmix": (0.8, 0.3)})
    synthetic.write(synthetic.Made(tmp_path, **{**SMALL, "methods": {"ippo": (0.5, 0.3)}, "env_steps": 400_000,
                                                "points": 41}))  # fmt: skip
    text = said(guarded(tmp_path / "made"), "budget")
    assert "qmix 40,000" in text
    assert "ippo 400,000" in text
    assert "compared at 40,000" in text
    found = study([tmp_path / "made"])
    assert success.by_task(found)["ippo", "smac/3m"].reached == 0
    for reached in found.reached.values():
        assert all(r.steps is None or r.steps.value <= 40_000 for r in reached.get(("ippo", "smac/3m"), ()))
    run = found.scores.cell("ippo", found.tasks[0])[0]
    assert run.until(40_000).steps.tolist() == [0, 10_000, 20_000, 30_000, 40_000]
    made = matrices(found.scores)
    assert made["steps"].tolist() == [[0, 10_000, 20_000, 30_000, 40_000]]
    assert made["curve/ippo"].shape == made["curve/qmix"].shape == (5, 1, 5)
    np.testing.assert_array_equal(made["score/ippo"], made["curve/ippo"][:, :, -1])


def test_values_outside_of_the_bounds_are_named(write: Write) -> None:
    path = write(metric="return", bounds=(0.0, 20.0))
    file = path / "smac/3m/vdn/seed_0/final.csv"
    pd.read_csv(file).assign(**{"return": 30.0}).to_csv(file, index=False)
    text = said(guarded(path), "bounds")
    assert text.startswith("Outside of the declared bounds: 3m, return from ")
    assert " to 30 of vdn, declared [0, 20]. Normalised" in text


def test_of_many_tasks_outside_of_their_bounds_the_farthest_alone_is_told_in_numbers(write: Write) -> None:
    tasks = ("3m", "8m", "2s3z")
    path = write(metric="return", bounds=(0.0, 20.0), tasks=tasks)
    for task, value in zip(tasks, (30.0, -90.0, 40.0), strict=True):
        file = path / f"smac/{task}/vdn/seed_0/final.csv"
        pd.read_csv(file).assign(**{"return": value}).to_csv(file, index=False)
    text = said(guarded(path), "bounds")
    assert text.startswith("Outside of the declared bounds: 2s3z, 3m and 8m; the farthest is 8m, return from -90 to ")
    assert text.count("declared [") == 1


def test_versions_commits_and_devices_are_named(write: Write) -> None:
    path = write()
    change(path / "smac/3m/qmix/seed_0", versions={"torch": "2.6.0"}, commit="b" * 40, device="cuda")
    scores = guarded(path)
    assert "torch 2.13.0 and 2.6.0" in said(scores, "versions")
    assert "aaaaaaaaaa and bbbbbbbbbb" in said(scores, "commit")
    assert "cpu and cuda" in said(scores, "device")


def test_a_method_whose_file_was_edited_between_seeds_is_named(write: Write) -> None:
    path = write()
    same = {"algorithm": {"package": "mine", "version": "1", "sha256": "a" * 64}, "suite": {"sha256": "c" * 64}}
    change(path / "smac/3m/qmix", source=same)
    assert said(guarded(path), "source") == ""
    edited = same | {"algorithm": same["algorithm"] | {"sha256": "b" * 64}}
    change(path / "smac/3m/qmix/seed_0", source=edited, dirty=True)
    assert said(guarded(path), "source") == (
        "Trials of qmix ran different source: mine 1, file aaaaaaaaaa and mine 1, file bbbbbbbbbb."
    )
    assert said(guarded(path), "dirty").startswith("1 of 10 trials ran with changes")
    change(path / "smac/3m/qmix/seed_0", source=same, earlier_sources=[edited])  # edited, and edited back, half-way
    assert said(guarded(path), "source").endswith("mine 1, file aaaaaaaaaa and mine 1, file bbbbbbbbbb.")


def test_unfinished_trials_are_named_with_their_reason(write: Write) -> None:
    path = write()
    change(path / "smac/3m/qmix/seed_0", status="failed", reason="reset timed out")
    change(path / "smac/3m/qmix/seed_1", status="interrupted")
    text = said(guarded(path), "unfinished")
    assert "1 trial is failed" in text
    assert "reset timed out" in text
    assert "1 trial is interrupted" in text


def test_runs_without_a_final_evaluation_are_named(write: Write) -> None:
    path = write()
    (path / "smac/3m/qmix/seed_0/final.csv").unlink()
    assert "1 runs have no final evaluation (qmix on smac/3m)" in said(guarded(path), "final")


def test_imported_results_are_marked(write: Write) -> None:
    path = write()
    change(path / "smac/3m/vdn", imported="marl-eval (x.json)", engine="unknown")
    text = said(guarded(path), "imported")
    assert "vdn is imported from marl-eval (x.json)" in text
    assert "engine is unknown" in text


def test_different_machines_are_named_because_of_time_and_energy(synthetic: ModuleType, tmp_path: Path) -> None:
    path = synthetic.write(synthetic.Made(tmp_path, **SMALL))
    assert said(guarded(path), "machine") == ""
    for file in path.glob("smac/3m/qmix/*/trial.json"):
        TrialFolder(file.parent).update(machine={"host": "b", "cpu": "faster", "cores": 64})
    assert "made-up (2 cores) and faster (64 cores)" in said(guarded(path), "machine").replace(
        "faster (64 cores) and made-up (2 cores)", "made-up (2 cores) and faster (64 cores)"
    )
