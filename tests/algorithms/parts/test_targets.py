"""Targets against recursions by hand, in Python floats, over episodes that end in every way."""

import math

import pytest
import torch
from torch import Tensor

from algorithms.parts import targets
from algorithms.parts.targets import gae, lambda_return, masked_mean

GAMMA = 0.9
LENGTHS = (5, 3, 5, 1, 2)
ENDS = (True, True, False, True, False)  # terminated, or cut by a time limit
T = 6  # one step longer than the longest: every episode has padding


def data(seed: int = 0) -> dict[str, Tensor]:
    rng = torch.Generator().manual_seed(seed)
    mask = (torch.arange(T) < torch.tensor(LENGTHS)[:, None]).double()
    over = torch.zeros_like(mask)
    over[torch.arange(len(LENGTHS)), torch.tensor(LENGTHS) - 1] = torch.tensor(ENDS).double()
    shape = mask.shape
    return {
        "reward": torch.randn(shape, generator=rng, dtype=torch.float64) * mask,
        "value": torch.randn(shape[0], T + 1, generator=rng, dtype=torch.float64),
        "q": torch.randn(shape, generator=rng, dtype=torch.float64),
        "trace": torch.rand(shape, generator=rng, dtype=torch.float64),
        "terminated": over,
        "mask": mask,
    }


def by_hand_lambda(r: list[float], v: list[float], ends: bool, lam: float) -> list[float]:
    y, n = [0.0] * len(r), len(r)
    for t in reversed(range(n)):
        if t == n - 1:
            y[t] = r[t] + (0.0 if ends else GAMMA * v[n])
        else:
            y[t] = r[t] + GAMMA * ((1 - lam) * v[t + 1] + lam * y[t + 1])
    return y


def by_hand_gae(r: list[float], v: list[float], ends: bool, lam: float) -> list[float]:
    n = len(r)
    delta = [r[t] + (0.0 if ends and t == n - 1 else GAMMA * v[t + 1]) - v[t] for t in range(n)]
    return [sum((GAMMA * lam) ** (k - t) * delta[k] for k in range(t, n)) for t in range(n)]


def by_hand_retrace(r: list[float], v: list[float], q: list[float], c: list[float], ends: bool) -> list[float]:
    y, n = [0.0] * len(r), len(r)
    for t in reversed(range(n)):
        if t == n - 1:
            y[t] = r[t] + (0.0 if ends else GAMMA * v[n])
        else:
            y[t] = r[t] + GAMMA * (v[t + 1] + c[t + 1] * (y[t + 1] - q[t + 1]))
    return y


def rows(d: dict[str, Tensor]) -> list[tuple[int, int, bool, dict[str, list[float]]]]:
    """Episode, length, true end, and its own numbers as plain lists (the value's one longer)."""
    return [
        (b, n, ends, {k: d[k][b, : n + (k == "value")].tolist() for k in ("reward", "value", "q", "trace")})
        for b, (n, ends) in enumerate(zip(LENGTHS, ENDS, strict=True))
    ]


@pytest.mark.parametrize("lam", [0.0, 0.6, 1.0])
def test_lambda_returns(lam: float) -> None:
    d = data()
    y = lambda_return(d["reward"], d["value"], d["terminated"], d["mask"], GAMMA, lam)
    for b, n, ends, x in rows(d):
        assert y[b, :n].tolist() == pytest.approx(by_hand_lambda(x["reward"], x["value"], ends, lam), abs=1e-12)


@pytest.mark.parametrize("lam", [0.0, 0.95, 1.0])
def test_advantages(lam: float) -> None:
    d = data()
    advantage = gae(d["reward"], d["value"], d["terminated"], d["mask"], GAMMA, lam)
    for b, n, ends, x in rows(d):
        assert advantage[b, :n].tolist() == pytest.approx(by_hand_gae(x["reward"], x["value"], ends, lam), abs=1e-12)
        assert advantage[b, n:].tolist() == [0.0] * (T - n)


def test_advantages_of_every_agent_at_once() -> None:
    d = data()
    values = torch.randn(len(LENGTHS), T + 1, 3, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    together = gae(d["reward"], values, d["terminated"], d["mask"], GAMMA, 0.95)
    for i in range(3):
        alone = gae(d["reward"], values[..., i], d["terminated"], d["mask"], GAMMA, 0.95)
        torch.testing.assert_close(together[..., i], alone, rtol=0, atol=1e-12)


def run_retrace(d: dict[str, Tensor], trace: Tensor) -> Tensor:
    return targets.retrace(d["reward"], d["value"], d["q"], trace, d["terminated"], d["mask"], GAMMA)


def test_retrace() -> None:
    d = data()
    y = run_retrace(d, d["trace"])
    for b, n, ends, x in rows(d):
        expected = by_hand_retrace(x["reward"], x["value"], x["q"], x["trace"], ends)
        assert y[b, :n].tolist() == pytest.approx(expected, abs=1e-12)


def test_retrace_at_a_true_end_is_the_reward_alone_whatever_follows() -> None:
    """MCEM's authors' code puts the step's mask where 1 - terminated is meant, and bootstraps past the end."""
    d = data()
    d["value"].fill_(1e3)
    y = run_retrace(d, d["trace"])
    for b, (n, ends) in enumerate(zip(LENGTHS, ENDS, strict=True)):
        last = float(d["reward"][b, n - 1])
        assert float(y[b, n - 1]) == pytest.approx(last if ends else last + GAMMA * 1e3, abs=1e-9)


def test_retrace_without_a_trace_is_one_step_sarsa() -> None:
    d = data()
    one_step = lambda_return(d["reward"], d["value"], d["terminated"], d["mask"], GAMMA, 0.0)
    torch.testing.assert_close(run_retrace(d, torch.zeros_like(d["trace"])), one_step, rtol=0, atol=1e-12)


# -- constant reward 1: what a value must settle at -----------------------------------------------------------------


def constant(steps: int, ends: bool) -> tuple[Tensor, Tensor, Tensor]:
    reward, terminated = torch.ones(1, steps, dtype=torch.float64), torch.zeros(1, steps, dtype=torch.float64)
    terminated[0, -1] = float(ends)
    return reward, terminated, torch.ones_like(reward)


@pytest.mark.parametrize("lam", [0.0, 0.8, 1.0])
def test_reward_1_for_ever_is_worth_1_over_1_minus_gamma_through_time_limits(lam: float) -> None:
    reward, terminated, mask = constant(8, ends=False)
    value = torch.zeros(1, 9, dtype=torch.float64)
    for _ in range(400):  # the value of every moment is the mean target: the fixed point of bootstrapping
        y = lambda_return(reward, value, terminated, mask, GAMMA, lam)
        value = torch.cat([y, y[:, -1:]], 1)
        value[:, -1] = y.mean()
    torch.testing.assert_close(value, torch.full_like(value, 1 / (1 - GAMMA)), rtol=1e-9, atol=0)
    advantage = gae(reward, value, terminated, mask, GAMMA, lam)
    torch.testing.assert_close(advantage, torch.zeros_like(advantage), rtol=0, atol=1e-8)


@pytest.mark.parametrize("lam", [0.0, 0.8, 1.0])
def test_reward_1_ended_after_T_steps_is_worth_the_finite_sum(lam: float) -> None:
    steps = 8
    reward, terminated, mask = constant(steps, ends=True)
    value = torch.full((1, steps + 1), 50.0, dtype=torch.float64)
    for _ in range(steps):
        y = lambda_return(reward, value, terminated, mask, GAMMA, lam)
        value = torch.cat([y, torch.full((1, 1), 50.0, dtype=torch.float64)], 1)  # what lies beyond the end stays wrong
    expected = [(1 - GAMMA ** (steps - t)) / (1 - GAMMA) for t in range(steps)]
    assert value[0, :-1].tolist() == pytest.approx(expected, rel=1e-9)
    advantage = gae(reward, value, terminated, mask, GAMMA, lam)
    torch.testing.assert_close(advantage, torch.zeros_like(advantage), rtol=0, atol=1e-8)


# -- isolation ------------------------------------------------------------------------------------------------------


def every_target(d: dict[str, Tensor]) -> dict[str, Tensor]:
    r, v, done, mask = d["reward"], d["value"], d["terminated"], d["mask"]
    return {
        "td(0)": lambda_return(r, v, done, mask, GAMMA, 0.0),
        "td(.6)": lambda_return(r, v, done, mask, GAMMA, 0.6),
        "gae": gae(r, v, done, mask, GAMMA, 0.95),
        "retrace": run_retrace(d, d["trace"]),
    }


def test_one_episode_never_reads_another() -> None:
    """Found elsewhere: at an episode's end the recursion carried on into the next one's steps."""
    before, other = every_target(data()), data(seed=9)
    d = data()
    for name in ("reward", "value", "q", "trace"):
        d[name][1] = other[name][1]
    after = every_target(d)
    for name, y in before.items():
        keep = [0, 2, 3, 4]
        assert torch.equal(y[keep], after[name][keep]), name
        assert not torch.equal(y[1], after[name][1]), name


def test_what_lies_beyond_an_episodes_last_moment_is_not_read() -> None:
    before, d = every_target(data()), data()
    for b, (n, ends) in enumerate(zip(LENGTHS, ENDS, strict=True)):
        d["value"][b, n + (not ends) :] = 1e6  # the moment after a true end is worth nothing either
        d["reward"][b, n:] = d["q"][b, n:] = d["trace"][b, n:] = 1e6
    after = every_target(d)
    for name, y in before.items():
        torch.testing.assert_close(after[name] * d["mask"], y * d["mask"], rtol=0, atol=1e-12, msg=name)


def test_a_true_end_of_one_episode_says_nothing_of_another() -> None:
    """Found elsewhere: the last step's bootstrap was weighted by 1 - sum(terminated) over the whole episode."""
    d = data()
    y = lambda_return(d["reward"], d["value"], d["terminated"], d["mask"], GAMMA, 0.6)
    truncated = [b for b, ends in enumerate(ENDS) if not ends]
    d["value"][truncated, torch.tensor(LENGTHS)[truncated]] += 1.0
    moved = lambda_return(d["reward"], d["value"], d["terminated"], d["mask"], GAMMA, 0.6) - y
    for b, (n, ends) in enumerate(zip(LENGTHS, ENDS, strict=True)):
        expected = [0.0] * n if ends else [GAMMA * (GAMMA * 0.6) ** (n - 1 - t) for t in range(n)]
        assert moved[b, :n].tolist() == pytest.approx(expected, abs=1e-12)


# -- masked mean ----------------------------------------------------------------------------------------------------


def test_masked_mean_counts_what_happened_alone() -> None:
    x = torch.tensor([[1.0, 2.0, math.nan], [6.0, math.inf, 1e30]], requires_grad=True)
    mask = torch.tensor([[1.0, 1.0, 0.0], [1.0, 0.0, 0.0]])
    mean = masked_mean(x, mask)
    mean.backward()
    assert float(mean.detach()) == 3.0
    assert x.grad is not None
    torch.testing.assert_close(x.grad, mask / 3)


def test_masked_mean_of_nothing_is_zero() -> None:
    assert float(masked_mean(torch.ones(2, 2), torch.zeros(2, 2))) == 0.0
