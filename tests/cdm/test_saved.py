"""Diagnosing trials that were really run, through the command."""

import dataclasses
import json

import pytest
from click.testing import CliRunner

from harness import config, trial
from harness.cdm.commands import diagnose
from harness.cdm.corrupt import Corruption
from harness.errors import UserError
from harness.store import TrialFolder, read_table

QUICK = ["--states", "16", "--samples", "4", "--episodes", "8"]


def made(results, name, corrupt=None, seed=0):
    """A short trial of VDN on a penalty game; ``corrupt`` is put into its record."""
    arguments = ["suite=matrix", "tasks=penalty_25", "algorithms=vdn", "budget=smoke", f"seeds={seed},", f"name={name}"]
    one = config.parse([*arguments, f"results={results}"]).trials("cpu")[0]
    budget = {**one.settings["budget"], "env_steps": 64, "eval_every": 32, "eval_episodes": 8, "final_episodes": 8}
    one = dataclasses.replace(one, settings={**one.settings, "budget": budget})
    assert trial.run(one, lambda progress: None, lambda: False) == "complete"
    folder = TrialFolder.of(one)
    if corrupt is not None:
        folder.update(settings={**folder.record()["settings"], "corrupt": corrupt})
    return folder


@pytest.fixture
def folder(tmp_path):
    return made(tmp_path, "clean")


def run(*arguments):
    return CliRunner().invoke(diagnose, [str(a) for a in arguments], catch_exceptions=True)


def test_rows_go_beside_the_results_and_are_not_measured_twice(folder):
    result = run(folder.path, *QUICK)
    assert result.exit_code == 0, result.output
    table = read_table(folder.path / "cdm.csv")
    assert {"own/teammate_share", "joint/cosine@1.0", "igm/violation", "degradation/uniform"} <= set(table["metric"])
    assert table["value"].notna().all()
    best = json.loads((folder.path / "trial.json").read_text())["best"]["env_steps"]
    assert set(table["env_steps"]) == {best, 64}
    assert folder.record()["cdm"]["about"]["policy"]
    before = (folder.path / "cdm.csv").read_bytes()
    again = run(folder.path, *QUICK)
    assert "measured before" in again.output
    assert (folder.path / "cdm.csv").read_bytes() == before


def test_again_replaces_the_rows_with_the_same_numbers(folder):
    run(folder.path, "--every", "last", *QUICK)
    before = read_table(folder.path / "cdm.csv")
    result = run(folder.path, "--every", "last", "--again", *QUICK)
    assert result.exit_code == 0, result.output
    after = read_table(folder.path / "cdm.csv")
    assert after.equals(before)


def test_an_unfinished_trial_is_not_measured_anew(folder):
    run(folder.path, "--every", "last", *QUICK)
    folder.update(status="interrupted")
    result = run(folder.path, "--every", "last", "--again", *QUICK)
    assert "only a complete trial" in result.output


def test_a_damaged_checkpoint_is_named_and_the_others_are_measured(tmp_path):
    bad, good = made(tmp_path, "x", seed=0), made(tmp_path, "x", seed=1)
    (bad.path / "checkpoint.pt").write_bytes(b"no")
    result = run(tmp_path, *QUICK)
    assert isinstance(result.exception, UserError)
    assert "1 of the trials" in str(result.exception)
    assert "damaged checkpoint" in result.output
    assert (good.path / "cdm.csv").exists()


def test_no_trials_there(tmp_path):
    assert "no trials there" in str(run(tmp_path / "nothing").exception)


def test_amplification_of_a_corrupted_trial_against_its_control(tmp_path):
    clean = made(tmp_path, "clean")
    harmed = made(tmp_path, "harmed", corrupt=Corruption(0, 0, 32).settings())
    result = run(harmed.path, "--control", clean.path, *QUICK)
    assert result.exception is None, result.output
    table = read_table(harmed.path / "cdm.csv")
    values = dict(zip(table["metric"], table["value"], strict=True))
    # the record alone says it was corrupted: the networks are the control's, so nobody was harmed
    assert values["amplification/others"] == values["amplification/team"] == 0
    assert "was not run with corrupt=" in str(run(clean.path, "--control", clean.path).exception)
    other = made(tmp_path, "other", corrupt="agent:0,from:0,to:32", seed=1)
    assert "no trial of the same suite" in str(run(other.path, "--control", clean.path).exception)
    late = made(tmp_path, "late", corrupt="agent:0,from:0,to:1e5")
    assert "before the bad spell ends" in str(run(late.path, "--control", clean.path).exception)


def test_an_imported_trial_cannot_be_diagnosed(tmp_path):
    folder = TrialFolder(tmp_path / "t")
    folder.update(experiment="e", suite="s", task="t", algorithm="a", seed=0, settings={}, imported="elsewhere")
    result = run(tmp_path)
    assert "names no settings" in result.output
