"""Suite rware against the package itself: a delivery is worth 1, and the clock is no end."""

from __future__ import annotations

from typing import Any

import gymnasium
import pytest
import torch

pytest.importorskip("rware")

from suites.adapters.single import seeds
from suites.rware import RWARE, UPPER

CPU = torch.device("cpu")


@pytest.mark.parametrize("task", list(UPPER))
def test_tasks_are_the_packages_registered_ones(task: str) -> None:
    raw: Any = gymnasium.make(f"rware-{task}-v2", disable_env_checker=True).unwrapped
    observations, _ = raw.reset(seed=seeds(8, 1)[0])
    env = RWARE().make(task, 1, CPU)
    step = env.reset(8)
    generator = torch.Generator().manual_seed(1)
    for _ in range(30):
        assert step.obs[0].tolist() == [pytest.approx(seen.tolist()) for seen in observations]
        action = torch.randint(5, (1, env.spec.n_agents), generator=generator)
        observations, rewards, _, _, _ = raw.step(action[0].tolist())
        step = env.step(action)
        assert float(step.reward) == sum(rewards)


def test_a_delivery_is_worth_one_whoever_made_it() -> None:
    env: Any = RWARE().make("tiny-2ag", 1, CPU)
    env.reset(0)
    game = env._envs[0]._env
    # Put a robot with a requested shelf one step before a goal, and let it drive.
    from rware.warehouse import Direction

    agent, shelf = game.agents[1], game.request_queue[0]
    x, y = game.goals[0]
    agent.x, agent.y, agent.dir, agent.carrying_shelf = x, y - 1, Direction.DOWN, shelf
    shelf.x, shelf.y = agent.x, agent.y
    game.agents[0].x, game.agents[0].y = 0, 0
    game._recalc_grid()
    step = env.step(torch.tensor([[0, 1]]))
    assert float(step.reward) == 1.0
    assert shelf not in game.request_queue


def test_the_clock_is_no_end() -> None:
    env = RWARE().make("tiny-2ag", 1, CPU)
    step = env.reset(0)
    for t in range(500):
        assert not bool(step.truncated), t
        step = env.step(torch.zeros(1, 2, dtype=torch.int64))
    assert bool(step.truncated)
    assert not bool(step.terminated)
    assert bool(step.alive.all())
