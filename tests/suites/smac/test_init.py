"""The suite as data: nothing here starts JAX except where a test says so."""

import subprocess
import sys

import pytest
import torch

from harness.errors import UserError
from harness.registry import suite
from harness.suite import Suite
from suites.smac import SMAC

CPU = torch.device("cpu")


def starcraft(monkeypatch, package, path):
    import suites.smac as room

    monkeypatch.setattr(room.importlib.util, "find_spec", lambda name: object() if package else None)
    if path is None:
        monkeypatch.delenv("SC2PATH", raising=False)
    else:
        monkeypatch.setenv("SC2PATH", str(path))


def test_it_is_registered_and_a_suite():
    assert suite("smac") is SMAC
    assert isinstance(SMAC(), Suite)
    assert {"smoke", "quick", "paper"} <= set(SMAC.budgets)
    assert set(SMAC.default_tasks) <= set(SMAC().tasks())


def test_tasks_are_scored_by_battles_won():
    for name, task in SMAC().tasks().items():
        assert (task.name, task.action, task.metric, task.bounds) == (name, "discrete", "won", (0.0, 1.0))
        assert all(0.0 <= value <= 1.0 for value in task.references.values())
    assert dict(SMAC().tasks()["3m"].references) == {"random": 0.0, "scripted": 0.52}


@pytest.mark.parametrize("settings", [{"walls_cause_death": False}, {"attack_mode": "random"}])
def test_references_are_only_given_for_the_settings_they_were_measured_with(settings):
    assert not any(task.references for task in SMAC(**settings).tasks().values())


def test_listing_tasks_and_engine_imports_no_jax():
    code = (
        "import sys; from suites.smac import SMAC; s = SMAC(engine='smax'); s.tasks(); s.engine_version();"
        "assert 'jax' not in sys.modules and 'jaxmarl' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_engine_says_its_version():
    from importlib.metadata import version

    assert SMAC(engine="smax").engine_version() == f"smax {version('jaxmarl')}"


@pytest.mark.parametrize(("package", "path"), [(False, "."), (True, None), (True, ""), (True, "/no/such/folder")])
def test_auto_is_smax_without_a_whole_starcraft(monkeypatch, package, path):
    starcraft(monkeypatch, package, path)
    assert SMAC().engine_version().startswith("smax ")


@pytest.mark.parametrize(
    ("package", "path", "words"),
    [
        (False, ".", "pip install .*smacv2"),
        (True, None, "SC2PATH is not set"),
        (True, "/no/such/folder", "SC2PATH=/no/such/folder is not a folder"),
    ],
)
def test_starcraft_asked_for_and_missing_says_what_to_install(monkeypatch, package, path, words):
    starcraft(monkeypatch, package, path)
    with pytest.raises(UserError, match=f"{words}.*engine=smax"):
        SMAC(engine="smacv2").engine_version()
    with pytest.raises(UserError, match="engine=smax"):
        SMAC(engine="smacv2").make("3m", 1, CPU)


@pytest.mark.parametrize("engine", ["auto", "smacv2"])
def test_starcraft_that_is_there_is_never_replaced_in_silence(monkeypatch, tmp_path, engine):
    starcraft(monkeypatch, True, tmp_path)
    with pytest.raises(UserError, match="engine=smax"):
        SMAC(engine=engine).engine_version()
    with pytest.raises(UserError, match="engine=smax"):
        SMAC(engine=engine).make("3m", 1, CPU)
    assert SMAC(engine="smax").engine_version().startswith("smax ")


def test_smax_missing_says_what_to_install(monkeypatch):
    import suites.smac as room

    def missing(name):
        raise room.PackageNotFoundError(name)

    monkeypatch.setattr(room, "version", missing)
    with pytest.raises(UserError, match="pip install jaxmarl"):
        SMAC(engine="smax").engine_version()


def test_unknown_task_names_the_nearest():
    with pytest.raises(UserError, match="'2s3z'"):
        SMAC(engine="smax").make("2s3zz", 1, CPU)
