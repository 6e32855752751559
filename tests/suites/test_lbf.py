"""Suite lbf against the package itself: rewards, legal actions, what ends an episode, and what must not outlive it."""

from __future__ import annotations

from typing import Any

import gymnasium
import pytest
import torch

pytest.importorskip("lbforaging")

from suites.adapters.single import seeds
from suites.lbf import LBF, RANDOM

CPU = torch.device("cpu")


def inner(env: Any) -> Any:
    return env._envs[0]._env


@pytest.mark.parametrize("task", list(RANDOM))
def test_tasks_are_the_packages_registered_ones(task: str) -> None:
    env = LBF().make(task, 1, CPU)
    if "5f" in task:  # the package registers at most four food, the paper plays with five
        assert inner(env).max_num_food == 5
        return
    raw = gymnasium.make(f"Foraging-{task}-v3", disable_env_checker=True).unwrapped
    observations, _ = raw.reset(seed=seeds(8, 1)[0])
    step = env.reset(8)
    generator = torch.Generator().manual_seed(1)
    for _ in range(50):
        for i, seen in enumerate(observations):
            assert step.obs[0, i].tolist() == pytest.approx(seen.tolist())
        assert step.avail is not None
        action = torch.multinomial(step.avail[0].float(), 1, generator=generator).squeeze(1)
        observations, rewards, done, _, _ = raw.step(action.tolist())
        step = env.step(action[None])
        assert float(step.reward) == pytest.approx(sum(rewards))
        assert bool(step.terminated | step.truncated) == done
        if done:
            break


def collect(env: Any, seed: int) -> list[Any]:
    """Legal play that loads whenever it can."""
    steps, generator = [env.reset(seed)], torch.Generator().manual_seed(seed)
    while not bool((steps[-1].terminated | steps[-1].truncated).all()):
        avail = steps[-1].avail.float()
        chosen = torch.multinomial(avail.reshape(-1, 6), 1, generator=generator).reshape(avail.shape[:2])
        steps.append(env.step(torch.where(avail[..., 5] > 0, 5, chosen)))
    return steps


def test_all_food_gone_is_an_end_worth_one_and_the_clock_is_not() -> None:
    env = LBF().make("8x8-2p-3f", 16, CPU)
    steps = collect(env, 0)
    total = torch.stack([s.reward for s in steps]).sum(0)
    last = steps[-1]
    assert bool(last.terminated.any())
    assert bool(last.truncated.any())
    assert not bool((last.terminated & last.truncated).any())
    torch.testing.assert_close(total[last.terminated], torch.ones(int(last.terminated.sum())))
    assert bool((total[last.truncated] < 1 - 1e-6).all())


def test_loading_without_food_and_walking_into_walls_are_illegal() -> None:
    env = LBF().make("8x8-2p-3f", 1, CPU)
    step = env.reset(0)
    game, players = inner(env), inner(env).players
    for i, player in enumerate(players):
        row, column = player.position
        assert step.avail is not None
        legal = step.avail[0, i].tolist()
        assert legal[0]
        assert legal[5] == (game.adjacent_food(row, column) > 0)
        assert not (legal[1] and row == 0)
        assert not (legal[4] and column == 7)


def test_an_episode_does_not_depend_on_where_the_one_before_ended() -> None:
    # The package places players around where they stood before; over many episodes that shows.
    env = LBF().make("10x10-3p-3f", 4, CPU)
    first = [env.reset(seed).obs for seed in range(40)]
    collect(env, 99)
    assert all(torch.equal(env.reset(seed).obs, obs) for seed, obs in reversed(list(enumerate(first))))
