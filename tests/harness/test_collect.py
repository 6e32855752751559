"""Alignment, on an environment that counts: what was seen, done, paid and meant by each entry of a batch."""

import math
from typing import Any

import pytest
import torch

from harness.collect import episodes, seen
from harness.suite import EpisodeVoid
from harness.types import Action, Batch, Step
from tests.support.episodes import CountingEnv, NoisyEnv, batch_of, spoiled

LENGTHS = (3, 5, 1, 4)
TRUNCATED = (1, 3)


class Counter:
    """A policy that plays (t + e + i) modulo 4, avoids what is illegal, and remembers what it was given."""

    def __init__(self) -> None:
        self.given: list[tuple[Step, Any, int]] = []

    def __call__(self, step: Step, memory: Any, played: int) -> Action:
        self.given.append((step, memory, played))
        action = step.obs.sum(-1).long() % 4
        assert step.avail is not None
        legal = step.avail.gather(-1, action[..., None]).squeeze(-1)
        action = torch.where(legal, action, (action + 1) % 4)
        return Action(action, -step.obs[..., 0] - 0.5, 0 if memory is None else memory + 1)


def counted() -> tuple[CountingEnv, Counter, Batch, Any]:
    env, policy = CountingEnv(LENGTHS, TRUNCATED), Counter()
    result, batch = episodes(env, policy, 11)
    assert batch is not None
    return env, policy, batch, result


def test_every_entry_of_a_batch_says_when_where_and_for_whom_it_was_seen() -> None:
    env, _, batch, _ = counted()
    assert batch.mask.shape == (4, 5)
    for e, n in enumerate(LENGTHS):
        assert batch.mask[e].tolist() == [1.0] * n + [0.0] * (5 - n)
        for t in range(n + 1):  # T+1 moments, the last real one after the last action
            assert batch.obs[e, t].tolist() == [[t, e, 0], [t, e, 1]]
            assert batch.state[e, t].tolist() == [t, e]
            assert batch.avail is not None
            assert batch.avail[e, t, 0].tolist() == [a != t % 4 for a in range(4)]
        for t in range(n):
            assert torch.equal(batch.action[e, t], env.played[t][e])  # chosen at moment t ...
            assert batch.log_prob[e, t].tolist() == [-t - 0.5] * 2
            assert float(batch.reward[e, t]) == 100 * e + t + 1  # ... and paid for at moment t + 1
            assert float(batch.terminated[e, t]) == float(t == n - 1 and e not in TRUNCATED)


def test_padding_is_neutral() -> None:
    _, _, batch, _ = counted()
    assert torch.equal(batch.obs, spoiled(batch, math.nan).clean().obs)
    for e, n in enumerate(LENGTHS):
        assert not batch.obs[e, n + 1 :].any()
        assert not batch.reward[e, n:].any()
        assert batch.avail is not None
        assert batch.avail[e, n + 1 :].all()


def test_returns_lengths_and_outcomes_are_exact() -> None:
    """Found elsewhere: the last step's reward lost (-13.31 true, -10.74 reported)."""
    _, _, _, result = counted()
    assert result.returns.tolist() == [100 * e * n + n * (n + 1) / 2 for e, n in enumerate(LENGTHS)]
    assert result.length.tolist() == list(LENGTHS)
    assert result.outcome["won"].tolist() == [0.0, 1.0, 0.0, 1.0]  # as they were when each environment finished


def test_returns_are_sums_of_what_was_paid_not_rounded_on_the_way() -> None:
    class Pennies(CountingEnv):
        def _step(self, moved: torch.Tensor) -> Step:
            return super()._step(moved)._replace(reward=torch.where(moved, 0.1, 0.0))

    result, _ = episodes(Pennies([1000], limit=1000), Counter(), 0, keep=False)
    tenth = float(torch.tensor(0.1))  # the float32 that was paid
    assert float(result.returns[0]) == pytest.approx(1000 * tenth, rel=1e-9)


def test_idle_environments_do_not_count() -> None:
    _, policy, _, result = counted()
    played = [given[2] for given in policy.given]
    running = [sum(n > t for n in LENGTHS) for t in range(5)]
    assert played == [sum(running[:t]) for t in range(5)]
    assert int(result.length.sum()) == sum(LENGTHS)


def test_memory_is_none_at_the_first_step_and_handed_on_afterwards() -> None:
    _, policy, _, _ = counted()
    assert [given[1] for given in policy.given] == [None, 0, 1, 2, 3]
    assert len(policy.given) == 5  # nothing is asked after the last environment is done


def test_every_environment_gives_one_whole_episode_to_every_round() -> None:
    env = CountingEnv(LENGTHS)
    for seed in (4, 5):
        result, _ = episodes(env, Counter(), seed, keep=False)
        assert result.length.tolist() == list(LENGTHS)
    assert env.seeds == [4, 5]


def test_the_dead_see_nothing() -> None:
    env = NoisyEnv("discrete", 3, garbage=math.nan)
    step = env.reset(0)
    step = step._replace(alive=torch.tensor([[True, False, True]] * 3), obs=step.obs.clone())
    step.obs[:, 1] = math.nan
    shown = seen(step)
    assert not shown.obs[:, 1].any()
    assert torch.equal(shown.obs[:, 0], step.obs[:, 0])


def test_an_agent_that_may_do_nothing_is_named() -> None:
    """Found elsewhere: an all-zero action mask, and NaN after it."""

    class Stuck(CountingEnv):
        def _step(self, moved: torch.Tensor) -> Step:
            step = super()._step(moved)
            if int(self.t.max()) == 2:
                step.avail[1, 0] = False  # type: ignore[index]
            return step

    with pytest.raises(RuntimeError, match=r"agent 0.*environment 1.*no legal action.*step 2"):
        episodes(Stuck(LENGTHS), Counter(), 0)


def test_an_episode_beyond_the_limit_is_an_error_not_an_endless_loop() -> None:
    with pytest.raises(RuntimeError, match="longer than the task's limit of 4"):
        episodes(CountingEnv([3, 9], limit=4), Counter(), 0)


def test_an_episode_of_exactly_the_limit_is_whole() -> None:
    result, batch = episodes(CountingEnv([4, 2], truncated=(0,), limit=4), Counter(), 0)
    assert result.length.tolist() == [4, 2]
    assert batch is not None
    assert batch.mask.shape == (2, 4)


class Breaking(CountingEnv):
    """Dies in the middle of its first two rounds, as an engine does whose process is gone."""

    deaths = 2

    def step(self, action: torch.Tensor) -> Step:
        if len(self.played) == 2 and self.deaths:
            self.deaths -= 1
            raise EpisodeVoid("restarted")
        return super().step(action)


def test_a_void_round_leaves_nothing_and_is_played_again_from_other_seeds() -> None:
    """Found elsewhere: an engine that dies in mid-episode, and half an episode in the replay."""
    env, policy = Breaking(LENGTHS, TRUNCATED), Counter()
    result, batch = episodes(env, policy, 11)
    whole_result, whole = counted()[3], counted()[2]
    assert batch is not None
    assert all(torch.equal(a, b) for a, b in zip(batch.tensors().values(), whole.tensors().values(), strict=True))  # type: ignore[arg-type]
    assert result.length.tolist() == whole_result.length.tolist()
    assert env.seeds[0] == 11
    assert len(set(env.seeds)) == 3
    assert all(0 <= seed < 2**63 for seed in env.seeds)
    assert [given[1:] for given in policy.given if given[1] is None] == [(None, 0)] * 3  # memory and count begin anew
    again = Breaking(LENGTHS, TRUNCATED)
    episodes(again, Counter(), 11)
    assert again.seeds == env.seeds


def test_nothing_is_kept_where_nothing_is_learned() -> None:
    assert episodes(CountingEnv(LENGTHS), Counter(), 0, keep=False)[1] is None


def test_spoiling_spoils() -> None:
    """The tests of cleaning would mean nothing if their garbage were none."""
    batch = counted()[2]
    assert not torch.equal(batch_of(CountingEnv([1]).spec, [2, 1], [True, True]).obs, spoiled(batch, 1e6).obs)
    assert torch.isnan(spoiled(batch, math.nan).reward).sum() == sum(5 - n for n in LENGTHS)
