"""What predator_prey, matrix and mpe look like, against the environments' own state."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from harness.scene import Box, Circle, Grid, Line, Scene
from suites.matrix import Matrix
from suites.predator_prey import EPISODE_LIMIT, PREDATOR_SIZE, PREY_SIZE, PredatorPrey

CPU = torch.device("cpu")


def circles(scene: Scene, colour: str) -> list[Circle]:
    return [s for s in scene.shapes if isinstance(s, Circle) and s.colour == colour]


def places(bodies: list[Circle]) -> list[list[float]]:
    return [[b.x, b.y] for b in bodies]


# -- predator_prey ----------------------------------------------------------------------------------------------------


def test_predator_prey_is_where_the_world_has_it() -> None:
    env = PredatorPrey().make("6a", 3, CPU)
    env.reset(8)
    action = torch.rand(3, 6, 2, generator=torch.Generator().manual_seed(0)) * 3 - 1.5
    for _ in range(EPISODE_LIMIT):
        env.step(action)
        scene = env.scene(1, action[1])
        everyone = env.world.pos[:, 1].T.tolist()
        predators, prey = circles(scene, "blue"), [*circles(scene, "green"), *circles(scene, "purple")]
        assert places(predators) == everyone[:6]
        assert sorted(places(prey)) == sorted(everyone[6:])
        assert places(circles(scene, "grey")) == env.world.landmark[:, 1].T.tolist()
        assert {b.radius for b in predators} == {PREDATOR_SIZE}
        assert {b.radius for b in prey} == {PREY_SIZE}
        for arrow, body, force in zip(
            (s for s in scene.shapes if isinstance(s, Line)), predators, action[1].clamp(-1, 1)
        ):
            assert (arrow.to_x - body.x, arrow.to_y - body.y) == pytest.approx((0.5 * force).tolist(), abs=1e-6)
    assert not [s for s in env.scene(1, action[1]).shapes if isinstance(s, Line)]  # over: nobody pushes any more


def test_caught_prey_is_seen_and_pays() -> None:
    env = PredatorPrey().make("3a", 64, CPU)
    physics = PredatorPrey().physics("3a", CPU)
    from suites.predator_prey import chase

    env.reset(1)
    caught = 0
    for _ in range(EPISODE_LIMIT):
        action = chase(physics, env.world)
        reward = env.step(action).reward
        for k in range(64):
            scene = env.scene(k, action[k])
            assert len(circles(scene, "purple")) == (reward[k] > 0)
            assert sum(row[3] == "prey 0" for row in scene.rows) * 10 == reward[k]
            caught += bool(reward[k] > 0)
    assert caught > 10


# -- matrix -----------------------------------------------------------------------------------------------------------


def heat(scene: Scene) -> Grid:
    return next(s for s in scene.shapes if isinstance(s, Grid))


def test_the_heat_map_is_the_payoff_and_the_box_what_is_played() -> None:
    suite = Matrix()
    for task in ("climbing", "penalty_50", "qtran"):
        env = suite.make(task, 2, CPU)
        env.reset(0)
        scene = env.scene(1, torch.tensor([2, 1]))
        assert torch.equal(torch.tensor(heat(scene).values), suite.payoff(task)[0])
        (box,) = (s for s in scene.shapes if isinstance(s, Box))
        assert (box.x, box.y) == (1, 0)  # row 2, the lowest; column 1
        assert scene.rows == (("agent 0", "2"), ("agent 1", "1"))


def test_with_three_agents_the_third_is_held_at_its_action() -> None:
    env = Matrix().make("climbing_3", 1, CPU)
    env.reset(0)
    for third in range(3):
        scene = env.scene(0, torch.tensor([0, 0, third]))
        assert torch.equal(torch.tensor(heat(scene).values), Matrix().payoff("climbing_3")[0, :, :, third])


def test_the_two_step_game_names_its_states() -> None:
    env = Matrix().make("two_step", 1, CPU)
    env.reset(0)
    action = torch.tensor([[1, 0]])
    assert heat(env.scene(0, action[0])).labels == (("0 → state 1",) * 2, ("0 → state 2",) * 2)
    env.step(action)
    scene = env.scene(0, torch.tensor([1, 1]))
    assert heat(scene).values == ((0.0, 1.0), (1.0, 8.0))
    assert scene.notes[0] == "state 2"
    env.step(torch.tensor([[1, 1]]))
    assert heat(env.scene(0, torch.tensor([1, 1]))).values == ((0.0, 1.0), (1.0, 8.0))


def test_the_surface_is_the_continuous_games_reward() -> None:
    env = Matrix().make("continuous", 1, CPU)
    env.reset(0)
    scene = env.scene(0, torch.tensor([[0.5], [-0.25]]))
    grid = heat(scene)
    assert grid.values[0][-1] == pytest.approx(2.8)  # both play 1: the upper right corner
    assert grid.values[-1][0] == pytest.approx(-0.2)
    assert grid.values[50][50] == 0
    assert grid.values[25][25] == pytest.approx(-0.05)  # x = -.5, y = .5
    assert grid.values[25][75] == pytest.approx(1.95)  # x = y = .5, on the ridge
    assert {(c.x, c.y) for c in circles(scene, "sky")} == {(0.5, -0.25)}


# -- mpe --------------------------------------------------------------------------------------------------------------


def world(env: Any, index: int) -> Any:
    return env._envs[index]._env.unwrapped.world


@pytest.mark.parametrize("task", ["simple_spread", "simple_reference", "simple_speaker_listener"])
@pytest.mark.parametrize("kind", ["", "_continuous"])
def test_mpe_is_where_the_packages_world_has_it(task: str, kind: str) -> None:
    pytest.importorskip("mpe2")
    from suites.mpe import MPE

    env = MPE().make(task + kind, 2, CPU)
    step = env.reset(5)
    for k in range(4):
        if step.avail is None:
            action = torch.rand(2, env.spec.n_agents, env.spec.action.dim, generator=torch.Generator().manual_seed(k))
        else:
            action = step.avail.int().cumsum(-1).argmax(-1)  # the last legal one
        step = env.step(action)
        scene, true = env.scene(1, action[1]), world(env, 1)  # type: ignore[attr-defined]
        assert places(circles(scene, "blue")) == [a.state.p_pos.tolist() for a in true.agents]
        marks = [s for s in scene.shapes if isinstance(s, Circle) and s.faded]
        assert places(marks) == [m.state.p_pos.tolist() for m in true.landmarks]
        assert [m.radius for m in marks] == [m.size for m in true.landmarks]
    goals = [s for s in scene.shapes if isinstance(s, Line) and s.dashed]
    teachers = [a for a in true.agents if getattr(a, "_goal_b", None) is not None]
    assert [(g.to_x, g.to_y) for g in goals] == [tuple(a.goal_b.state.p_pos) for a in teachers]
    assert len(goals) == {"simple_spread": 0, "simple_reference": 2, "simple_speaker_listener": 1}[task]
    spoken = [a for a in true.agents if not a.silent]
    said = [row[2] for row in scene.rows if len(row) == 3 and row[2] != "cannot"]
    assert said == ["ABCDEFGHIJ"[int(np.argmax(a.state.c))] for a in spoken]
    env.close()


def test_mpe_looks_the_same_from_processes_of_its_own() -> None:
    pytest.importorskip("mpe2")
    from suites.mpe import MPE

    envs = [MPE(stepping=way).make("simple_reference", 2, CPU) for way in ("inline", "process")]
    action = torch.tensor([[7, 3], [21, 48]])
    seen = []
    for env in envs:
        env.reset(2)
        env.step(action)
        seen.append([env.scene(k, action[k]) for k in range(2)])  # type: ignore[attr-defined]
        env.step(action)  # the worker still answers in order
        env.close()
    assert seen[0] == seen[1]
    assert seen[0][0] != seen[0][1]


def test_other_environments_do_not_say() -> None:
    pytest.importorskip("lbforaging")
    from suites.lbf import LBF

    env = LBF().make("8x8-2p-3f", 1, CPU)
    env.reset(0)
    assert env.scene(0, torch.zeros(2, dtype=torch.int64)) is None  # type: ignore[attr-defined]
    env.close()
