"""Suite mamujoco against Gymnasium's own robots."""

from __future__ import annotations

from pathlib import Path

import gymnasium
import numpy as np
import pytest
import torch

pytest.importorskip("gymnasium_robotics")
pytest.importorskip("mujoco")

from harness.types import Continuous
from suites.adapters.single import seeds
from suites.mamujoco import ROBOTS, MaMuJoCo

CPU = torch.device("cpu")


@pytest.mark.parametrize("task", list(ROBOTS))
def test_the_team_is_the_robot(task: str) -> None:
    env = MaMuJoCo().make(task, 1, CPU)
    inner = env._envs[0]._env  # type: ignore[attr-defined]
    raw = gymnasium.make(f"{ROBOTS[task].scenario}-v5")
    raw.reset(seed=seeds(4, 1)[0])
    step, generator = env.reset(4), np.random.default_rng(0)
    assert isinstance(env.spec.action, Continuous)
    for _ in range(25):
        action = generator.uniform(
            env.spec.action.low, env.spec.action.high, (1, env.spec.n_agents, env.spec.action.size)
        ).astype(np.float32)
        own = {
            agent: action[0, i, : inner.action_space(agent).shape[0]] for i, agent in enumerate(inner.possible_agents)
        }
        state, reward, ended, cut, _ = raw.step(inner.map_local_actions_to_global_action(own))
        step = env.step(torch.from_numpy(action))
        assert float(step.reward) == pytest.approx(float(reward), rel=1e-5, abs=1e-6)
        assert bool(step.terminated) == ended
        assert bool(step.truncated) == cut
        np.testing.assert_allclose(step.state[0].numpy(), state, rtol=1e-5, atol=1e-5)
        if ended:
            break
    raw.close()


def test_a_fall_is_an_end_and_the_clock_is_not() -> None:
    env = MaMuJoCo().make("hopper_3x1", 1, CPU)
    step = env.reset(0)
    for _ in range(300):
        step = env.step(torch.ones(1, 3, 1))
    assert bool(step.terminated)
    assert not bool(step.truncated)
    env = MaMuJoCo().make("halfcheetah_2x3", 1, CPU)
    step = env.reset(0)
    for t in range(1000):
        assert not bool(step.truncated), t
        step = env.step(torch.zeros(1, 2, 3))
    assert bool(step.truncated)
    assert not bool(step.terminated)
    assert bool(step.alive.all())


def test_numbers_beyond_an_agents_own_are_ignored() -> None:
    env = MaMuJoCo().make("humanoid_9_8", 2, CPU)
    assert env.spec.action.dim == 9
    env.reset(1)
    action = torch.zeros(2, 2, 9)
    action[1, 1, 8] = 0.4  # the lower body has 8 joints
    twin = env.reset(1).obs
    env._envs[1].reset(seeds(1, 2)[0])  # type: ignore[attr-defined]
    step = env.step(action)
    assert torch.equal(step.obs[0], step.obs[1])
    assert not torch.equal(step.obs[0], twin[0])


def test_how_far_agents_see_is_a_setting() -> None:
    assert MaMuJoCo(obsk=0).spec("halfcheetah_2x3").obs_dim < MaMuJoCo(obsk=1).spec("halfcheetah_2x3").obs_dim


def test_no_log_file_is_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    MaMuJoCo().make("halfcheetah_2x3", 1, CPU).close()
    assert list(tmp_path.iterdir()) == []
