"""Suite vmas against the package itself, and its random numbers against its neighbours."""

from __future__ import annotations

from typing import Any

import pytest
import torch

pytest.importorskip("vmas")

from harness.types import Discrete
from suites.adapters.packages import quiet_import
from suites.vmas import LIMIT, SCENARIOS, VMAS

CPU = torch.device("cpu")


def actions(env: Any, steps: int) -> list[torch.Tensor]:
    generator, shape = torch.Generator().manual_seed(0), (env.num_envs, env.spec.n_agents)
    if isinstance(env.spec.action, Discrete):
        return [torch.randint(env.spec.action.n, shape, generator=generator) for _ in range(steps)]
    return [torch.rand(*shape, env.spec.action.size, generator=generator) * 2 - 1 for _ in range(steps)]


@pytest.mark.parametrize("task", list(VMAS().tasks()))
def test_rewards_are_the_packages(task: str) -> None:
    env: Any = VMAS().make(task, 8, CPU)
    start = env.reset(3)
    scenario = task.removesuffix("_discrete")
    raw = quiet_import("vmas").make_env(
        scenario=scenario, num_envs=8, continuous_actions=scenario == task, terminated_truncated=True,
        max_steps=LIMIT, **SCENARIOS[scenario].arguments,
    )  # fmt: skip
    env._random.seed(3)
    shared = type(raw).vmas_random_state
    kept = list(shared)
    shared[:] = env._random._own
    observations = raw.reset()
    for i, seen in enumerate(observations):
        assert torch.equal(seen, start.obs[:, i])
    over = torch.zeros(8, dtype=torch.bool)
    for action in actions(env, 20):
        native = [a[:, None] if a.dim() == 1 else a for a in action.unbind(1)]
        _, rewards, terminated, _, _ = raw.step([a.clone() for a in native])
        step = env.step(action)
        expected = torch.stack([r.reshape(8) for r in rewards]).mean(0)
        torch.testing.assert_close(step.reward, torch.where(over, torch.zeros(8), expected))
        over |= terminated
        assert torch.equal(step.terminated, over)
    shared[:] = kept


def test_a_time_limit_is_no_end_and_the_finished_are_shown_as_they_ended() -> None:
    env = VMAS().make("balance", 32, CPU)
    step, ended = env.reset(0), {}
    for action in actions(env, LIMIT):
        step = env.step(action)
        for e in (step.terminated & ~step.truncated).nonzero().flatten().tolist():
            ended.setdefault(e, step.obs[e].clone())
    assert 0 < len(ended) < 32
    assert bool((step.terminated ^ step.truncated).all())
    assert all(torch.equal(step.obs[e], seen) for e, seen in ended.items())


def test_evaluating_beside_training_changes_nothing() -> None:
    # The package keeps one set of random numbers for all its batches in a process.
    train = VMAS().make("navigation", 4, CPU)
    alone = [train.reset(seed).obs for seed in range(3)]
    evaluation = VMAS().make("navigation", 4, CPU)
    for seed in range(3):
        evaluation.reset(100 + seed)
        assert torch.equal(train.reset(seed).obs, alone[seed])


def test_seeds_beyond_32_bits_are_told_apart() -> None:
    env = VMAS().make("balance", 2, CPU)
    assert not torch.equal(env.reset(1).obs, env.reset(1 + 2**32).obs)
