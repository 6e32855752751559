"""The real StarCraft II through the real package: one whole episode, where both are installed."""

from __future__ import annotations

import pytest
import torch

from suites.smac import smacv2

TASKS = {
    # task: agents, actions, episode limit; SMAC: Samvelyan et al. 2019, SMACv2: Ellis et al. 2023
    "3m": (3, 9, 60),
    "terran_5_vs_5": (5, 11, 200),
}


def lacking(task: str) -> str | None:
    return smacv2.missing(task)


@pytest.mark.parametrize(
    "task",
    [
        pytest.param(t, marks=pytest.mark.skipif(lacking(t) is not None, reason=f"StarCraft II: {lacking(t)}"))
        for t in TASKS
    ],
)
def test_a_whole_episode(task: str) -> None:
    agents, actions, limit = TASKS[task]
    env = smacv2.make(task, 1, torch.device("cpu"))
    try:
        spec = env.spec
        assert (spec.n_agents, spec.action.dim, spec.episode_limit) == (agents, actions, limit)
        assert spec.outcomes == ("won",)
        rng = torch.Generator().manual_seed(0)
        step, returned, length = env.reset(0), 0.0, 0
        while not bool(step.terminated[0] | step.truncated[0]):
            assert step.obs.shape == (1, agents, spec.obs_dim)
            assert step.state.shape == (1, spec.state_dim)
            assert step.avail is not None
            assert step.avail.shape == (1, agents, actions)
            assert bool(step.obs.isfinite().all())
            assert bool(step.state.isfinite().all())
            assert bool(step.avail.any(-1).all())
            # action 0, nothing, is for the dead and for them alone
            assert torch.equal(step.avail[..., 0], ~step.alive)
            assert not bool(step.avail[..., 1:][~step.alive].any())
            action = torch.multinomial(step.avail[0].float(), 1, generator=rng).T
            step = env.step(action)
            returned, length = returned + float(step.reward[0]), length + 1
            assert length <= limit
        won = float(step.outcome["won"][0])
        assert won in (0.0, 1.0)
        assert not bool(step.terminated[0] & step.truncated[0])
        assert not (won and bool(step.truncated[0]))
        assert returned > 15 if won else returned < 20  # a win is worth 20, SMAC's scale
        assert env.record()["restarts"] == 0  # type: ignore[attr-defined]
    finally:
        env.close()
