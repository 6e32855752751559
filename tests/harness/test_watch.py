"""Greedy episodes of saved teams: the very ones that the final evaluation counted, filmed and not disturbed."""

from __future__ import annotations

import shutil
from pathlib import Path

import pandas as pd
import pytest
import torch

from harness import registry, saved
from harness.cdm.play import Player, greedily
from harness.collect import episodes
from harness.errors import UserError
from harness.scene import Box, Circle, Grid, Text
from harness.store import TrialFolder
from harness.watch import Camera, watch
from tests.support.trials import finish, tiny

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def discrete(tmp_path_factory: pytest.TempPathFactory) -> TrialFolder:
    return TrialFolder(finish(tiny(tmp_path_factory.mktemp("results"), "qmix")))


@pytest.fixture(scope="module")
def continuous(tmp_path_factory: pytest.TempPathFactory) -> TrialFolder:
    return TrialFolder(finish(tiny(tmp_path_factory.mktemp("results"), "ippo", "continuous")))


def test_the_episodes_are_the_first_of_the_final_evaluation(discrete: TrialFolder, continuous: TrialFolder) -> None:
    for folder in (discrete, continuous):
        final = pd.read_csv(folder.path / "final.csv")
        seen = watch(folder, count=6)  # two rounds of the four evaluation environments
        assert [r.number for r in seen.recordings] == list(range(6))
        assert [r.frames[-1].total for r in seen.recordings] == final["return"].tolist()
        assert [r.frames[-1].step for r in seen.recordings] == final["length"].tolist()
        assert [r.outcome["optimal"] for r in seen.recordings] == final["optimal"].tolist()
        assert seen.about["env_steps"] == final["env_steps"].iloc[0]


def test_frames_count_steps_and_rewards(discrete: TrialFolder) -> None:
    (recording,) = watch(discrete, count=1).recordings
    assert [f.step for f in recording.frames] == [0, 1, 2]
    assert recording.frames[0].reward == recording.frames[0].total == 0
    assert recording.frames[2].total == recording.frames[1].reward + recording.frames[2].reward
    assert recording.terminated


def test_the_heat_map_shows_the_policy_of_each_moment(discrete: TrialFolder) -> None:
    (recording,) = watch(discrete, count=1).recordings
    trial = saved.opened(discrete)
    _, player, _ = next(saved.teams(trial, "best"))
    _, batch = episodes(trial.env, greedily(player), trial.seeds.integer("final_env"))
    assert batch is not None
    probs = player.algorithm.policy(player.net, batch).probs[0]  # type: ignore[attr-defined]  # [T,N,A]
    for t, frame in enumerate(recording.frames):
        shapes = frame.scene.shapes
        assert sum(isinstance(s, Grid) for s in shapes) == 1
        said = [s.text for s in shapes if isinstance(s, Text) and s.colour == "muted"]
        expected = probs[min(t, 1)]
        assert said == [f"{p:.2f}" for p in expected.flatten().tolist()]
        (box,) = (s for s in shapes if isinstance(s, Box))
        i, j = batch.action[0, min(t, 1)].tolist()
        assert (box.x, box.y) == (j, 1 - i)


def test_a_gaussian_policy_is_a_cross_at_its_mean(continuous: TrialFolder) -> None:
    scene = watch(continuous, count=1).recordings[0].frames[0].scene
    point = next(s for s in scene.shapes if isinstance(s, Circle))
    across, up = scene.shapes[-2:]
    assert (across.y, up.x) == (pytest.approx(point.y, abs=1e-5), pytest.approx(point.x, abs=1e-5))  # type: ignore[union-attr]


def test_the_same_seed_gives_the_same_episodes_and_another_others(discrete: TrialFolder) -> None:
    assert watch(discrete, 2) == watch(discrete, 2)
    trial = saved.opened(discrete)
    seeds = {trial.seeds.integer("final_env", s * 1_000_000 + k) for s in range(3) for k in range(3)}
    assert len(seeds) == 9


def test_the_last_networks_are_those_of_the_checkpoint(discrete: TrialFolder) -> None:
    seen = watch(discrete, 1, "last")
    assert seen.about["checkpoint"] == "checkpoint.pt"
    assert seen.about["env_steps"] >= 120


def test_filming_disturbs_nothing() -> None:
    class Fixed:
        """Everyone plays the same force for ever."""

        def act(self, net: object, step: object, memory: object, env_steps: int, rng: object) -> object:
            from harness.types import Action

            return Action(torch.full((3, 3, 2), 0.5), torch.zeros(3, 3), None)

    def env() -> object:
        return registry.suite("predator_prey")().make("3a", 3, CPU)

    team = greedily(Player(Fixed(), None))  # type: ignore[arg-type]
    camera = Camera(env(), 2, UserError("undrawn"))  # type: ignore[arg-type]
    filmed, _ = episodes(camera, team, 5)
    plain, _ = episodes(env(), team, 5)  # type: ignore[arg-type]
    assert torch.equal(filmed.returns, plain.returns)
    recordings = camera.recordings(0)
    assert [len(r.frames) for r in recordings] == [26, 26]
    assert [r.frames[-1].total for r in recordings] == filmed.returns[:2].tolist()
    assert not recordings[0].terminated


# -- what cannot be shown ---------------------------------------------------------------------------------------------


def copied(folder: TrialFolder, to: Path) -> TrialFolder:
    shutil.copytree(folder.path, to / "seed_0")
    return TrialFolder(to / "seed_0")


def test_no_networks(discrete: TrialFolder, tmp_path: Path) -> None:
    bare = copied(discrete, tmp_path)
    (bare.path / "best.pt").unlink()
    with pytest.raises(UserError, match=r"seed_0: no saved networks \(best\.pt\)"):
        watch(bare)
    (bare.path / "checkpoint.pt").write_bytes(b"no")
    with pytest.raises(UserError, match="damaged checkpoint"):
        watch(bare, which="last")


def test_settings_of_another_version(discrete: TrialFolder, tmp_path: Path) -> None:
    old = copied(discrete, tmp_path)
    settings = discrete.record()["settings"]  # type: ignore[index]
    old.update(settings={**settings, "algorithm": {**settings["algorithm"], "gone": 1}})
    with pytest.raises(UserError, match=r"its settings are not those of this version: .*gone"):
        watch(old)
    hidden = next(k for k, v in settings["algorithm"].items() if k.startswith("hidden") and isinstance(v, int))
    old.update(settings={**settings, "algorithm": {**settings["algorithm"], hidden: 7}})
    with pytest.raises(UserError, match="its saved networks are not those of its settings"):
        watch(old)


def test_an_environment_that_does_not_say_how_it_looks(discrete: TrialFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    from suites.matrix.env import MatrixEnv

    monkeypatch.setattr(MatrixEnv, "scene", lambda self, index, action: None)
    with pytest.raises(UserError, match=r"suite matrix, task two_step: .* VecEnv, harness/suite\.py"):
        watch(discrete)
    monkeypatch.delattr(MatrixEnv, "scene")
    with pytest.raises(UserError, match="do not say how they look"):
        watch(discrete)


def test_one_trial_is_meant(discrete: TrialFolder, tmp_path: Path) -> None:
    copied(discrete, tmp_path / "a")
    assert saved.one(tmp_path).path == tmp_path / "a" / "seed_0"
    copied(discrete, tmp_path / "b")
    with pytest.raises(UserError, match=r"2 trials there, name one: .*a/seed_0, .*b/seed_0$"):
        saved.one(tmp_path)
    with pytest.raises(UserError, match="no trials there"):
        saved.one(tmp_path / "nowhere")
