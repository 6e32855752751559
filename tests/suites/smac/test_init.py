"""The suite as data: nothing here starts JAX except where a test says so."""

import subprocess
import sys

import pytest
import torch

from harness.errors import UserError
from harness.registry import suite
from harness.suite import Suite
from suites.smac import SMAC, smacv2

CPU = torch.device("cpu")


@pytest.fixture
def starcraft(monkeypatch, tmp_path):
    """Call it with what is there: the package, and the game in SC2PATH."""
    real = smacv2.importlib.util.find_spec

    def there(package, game):
        monkeypatch.setattr(
            smacv2.importlib.util,
            "find_spec",
            lambda name, *rest: (object() if package else None) if name == "smacv2" else real(name, *rest),
        )
        if game:
            (tmp_path / "Versions" / "Base75689").mkdir(parents=True)
            (tmp_path / "Versions" / "Base75689" / "SC2_x64").touch()
        monkeypatch.setenv("SC2PATH", str(tmp_path))

    return there


def test_it_is_registered_and_a_suite():
    assert suite("smac") is SMAC
    assert isinstance(SMAC(), Suite)
    assert {"smoke", "quick", "paper"} <= set(SMAC.budgets)
    assert set(SMAC.default_tasks) <= set(SMAC().tasks())


def test_tasks_are_scored_by_battles_won():
    for name, task in SMAC().tasks().items():
        assert (task.name, task.action, task.metric, task.bounds) == (name, "discrete", "won", (0.0, 1.0))
        assert all(0.0 <= value <= 1.0 for value in task.references.values())
    assert dict(SMAC().tasks()["3m"].references) == {"random": 0.0, "scripted": 0.501}


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


@pytest.mark.parametrize(("package", "game"), [(False, True), (True, False), (False, False)])
def test_auto_is_smax_without_a_whole_starcraft(starcraft, package, game):
    starcraft(package, game)
    assert SMAC().engine_version().startswith("smax ")
    assert SMAC().tasks() == SMAC(engine="smax").tasks()


@pytest.mark.parametrize(("package", "game", "words"), [(False, True, "pip install"), (True, False, "holds no game")])
def test_starcraft_asked_for_and_missing_says_what_to_install(starcraft, package, game, words):
    starcraft(package, game)
    suite = SMAC(engine="smacv2")
    assert set(SMAC.default_tasks) <= set(suite.tasks())
    for call in (suite.engine_version, lambda: suite.make("3m", 1, CPU)):
        with pytest.raises(UserError, match=f"engine=smacv2: .*{words}"):
            call()


@pytest.mark.parametrize("engine", ["auto", "smacv2"])
def test_starcraft_that_is_there_is_what_plays(starcraft, monkeypatch, engine):
    starcraft(True, True)
    made = []
    monkeypatch.setattr(smacv2, "make", lambda *arguments: made.append(arguments))
    assert SMAC(engine=engine).engine_version().startswith("StarCraft II 4.10 (build 75689)")
    assert "2c_vs_64zg" in SMAC(engine=engine).tasks()
    SMAC(engine=engine).make("MMM2", 3, CPU)
    assert made == [("MMM2", 3, CPU)]
    with pytest.raises(UserError, match="MMM2"):
        SMAC(engine="smax").make("MMM2", 3, CPU)
    assert SMAC(engine="smax").engine_version().startswith("smax ")


@pytest.mark.parametrize("settings", [{"reward_scale": 1.0}, {"walls_cause_death": False, "attack_mode": "random"}])
def test_a_setting_of_smax_is_not_ignored_by_starcraft(starcraft, settings):
    starcraft(True, True)
    with pytest.raises(UserError, match=f"{', '.join(settings)}.*engine=smax"):
        SMAC(engine="smacv2", **settings).engine_version()


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
