"""The StarCraft II adapter against a stand-in for its package, which also dies, hangs and hands out all-zero masks."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from harness.errors import UserError
from harness.suite import EpisodeVoid, VecEnv
from harness.types import Step
from suites.adapters.single import IllegalMoment
from suites.smac import smacv2

CPU = torch.device("cpu")
REAL = importlib.util.find_spec("smacv2") is not None and bool(os.environ.get("SC2PATH"))
STANDINS = Path(__file__).parent / "adapters" / "standins"

pytestmark = pytest.mark.skipif(REAL, reason="the real smacv2 is installed; the stand-in would hide it")


@pytest.fixture
def package(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.syspath_prepend(str(STANDINS))
    yield
    for name in [name for name in sys.modules if name.split(".")[0] == "smacv2"]:
        del sys.modules[name]
    importlib.invalidate_caches()


@pytest.fixture
def installed(package: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "StarCraftII"
    (folder / "Versions" / "Base75689").mkdir(parents=True)
    (folder / "Versions" / "Base75689" / "SC2_x64").touch()
    (folder / "Maps" / "SMAC_Maps").mkdir(parents=True)
    for name in ("3m", "32x32_flat"):
        (folder / "Maps" / "SMAC_Maps" / f"{name}.SC2Map").touch()
    monkeypatch.setenv("SC2PATH", str(folder))
    return folder


@pytest.fixture
def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("STANDIN_SC2", str(tmp_path / "plan"))
    return tmp_path / "plan"


def play(env: VecEnv, seed: int, attack: bool = False) -> list[Step]:
    steps = [env.reset(seed)]
    while not bool((steps[-1].terminated | steps[-1].truncated).all()):
        avail = steps[-1].avail
        assert avail is not None
        legal = avail.float() * torch.arange(1, avail.shape[-1] + 1)
        steps.append(env.step(legal.argmax(-1) if attack else avail.float().argmax(-1)))
    return steps


def test_a_battle_won_is_an_end_and_its_own_outcome(installed: Path) -> None:
    env = smacv2.make("3m", 2, CPU)
    assert (env.spec.n_agents, env.spec.obs_dim, env.spec.state_dim, env.spec.action.dim) == (3, 3, 4, 9)
    assert (env.spec.episode_limit, env.spec.outcomes) == (5, ("won",))
    steps = play(env, 0, attack=True)
    assert len(steps) == 4
    assert steps[-1].terminated.tolist() == [True, True]
    assert steps[-1].outcome["won"].tolist() == [1.0, 1.0]
    assert [float(s.reward[0]) for s in steps] == [0.0, 24.0, 24.0, 16.0]
    env.close()


def test_the_time_limit_is_no_end_and_the_dead_may_only_wait(installed: Path) -> None:
    env = smacv2.make("3m", 1, CPU)
    steps = play(env, 0)
    assert len(steps) == 6
    assert (bool(steps[-1].terminated[0]), bool(steps[-1].truncated[0])) == (False, True)
    assert float(steps[-1].outcome["won"]) == 0.0
    assert [s.alive[0].tolist() for s in steps[:3]] == [[True] * 3, [True] * 3, [True, False, True]]
    avail = steps[3].avail
    assert avail is not None
    assert avail[0, 1].nonzero().flatten().tolist() == [0]
    env.close()


def test_teams_and_places_follow_the_seed_alone(installed: Path) -> None:
    env = smacv2.make("terran_10_vs_11", 2, CPU)
    assert (env.spec.n_agents, env.spec.action.dim) == (10, 17)
    first = env.reset(3).obs
    other = env.reset(4).obs
    assert torch.equal(env.reset(3).obs, first)
    assert not torch.equal(first, other)
    assert not torch.equal(first[0], first[1])
    assert set(first[..., 1].unique().tolist()) <= {1.0, 2.0, 3.0}
    env.close()


@pytest.mark.parametrize(
    ("order", "reason"),
    [("die 2", "exit code 1"), ("raise 2", "websocket is closed"), ("lost 2", "launched again by the package")],
)
def test_a_game_that_dies_makes_the_round_void(installed: Path, plan: Path, order: str, reason: str) -> None:
    env = smacv2.make("3m", 2, CPU)
    plan.write_text(order)
    with pytest.raises(EpisodeVoid, match=reason):
        play(env, 0, attack=True)
    assert len(play(env, 1, attack=True)) == 4
    assert env.record()["restarts"] == 1  # type: ignore[attr-defined]
    env.close()


@pytest.mark.parametrize("order", ["hang reset", "relaunch relaunch"])
def test_a_reset_that_hangs_or_relaunches_begins_another_battle(installed: Path, plan: Path, order: str) -> None:
    plan.write_text(order)
    env = smacv2.make("3m", 2, CPU, reset_timeout=3.0)
    assert len(play(env, 0, attack=True)) == 4
    assert env.record()["restarts"] == 1  # type: ignore[attr-defined]
    env.close()


def test_an_all_zero_mask_names_map_agent_and_step(installed: Path, plan: Path) -> None:
    plan.write_text("mask mask1")
    env = smacv2.make("3m", 1, CPU)
    with pytest.raises(IllegalMoment, match=r"StarCraft II 3m: no legal action for agent 2 at step 1"):
        play(env, 0)
    env.close()


def test_what_is_missing_is_one_line(package: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SC2PATH", str(tmp_path / "nowhere"))
    with pytest.raises(UserError, match=r"SC2PATH .*/nowhere does not exist; unpack StarCraft II"):
        smacv2.engine_version()
    monkeypatch.setenv("SC2PATH", str(tmp_path))
    with pytest.raises(UserError, match=r"holds no game \(Versions/Base\*/SC2_x64\)"):
        smacv2.make("3m", 1, CPU)


def test_a_missing_package_map_or_task_is_named(installed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match=r"map 8m\.SC2Map is not in .*copy the package's SMAC_Maps folder there"):
        smacv2.make("8m", 1, CPU)
    with pytest.raises(UserError, match=r"unknown StarCraft II task '5m_vs_7m'; did you mean '5m_vs_6m'"):
        smacv2.make("5m_vs_7m", 1, CPU)
    monkeypatch.setattr(sys, "path", [p for p in sys.path if p != str(STANDINS)])
    sys.modules.pop("smacv2", None)
    with pytest.raises(UserError, match=r"the package smacv2 is not installed; pip install git"):
        smacv2.engine_version()


def test_versions_of_game_and_package_are_told(installed: Path) -> None:
    assert smacv2.engine_version() == "StarCraft II 4.10 (build 75689), smacv2 of unknown version"
    (installed / "Versions" / "Base99999").mkdir()
    (installed / "Versions" / "Base99999" / "SC2_x64").touch()
    assert smacv2.engine_version().startswith("StarCraft II build 99999")


def test_the_published_tasks_are_all_there() -> None:
    tasks = smacv2.tasks()
    assert len(smacv2.MAPS) == 22
    assert {f"{race}_20_vs_23" for race in ("terran", "protoss", "zerg")} <= set(tasks)
    assert all(task.metric == "won" and task.bounds == (0.0, 1.0) for task in tasks.values())
    for name in smacv2.DRAWN_TASKS:
        _, arguments = smacv2.game(name)
        teams = arguments["capability_config"]["team_gen"]
        assert sum(teams["weights"]) == pytest.approx(1.0)
        assert len(teams["weights"]) == len(teams["unit_types"]) == 3
