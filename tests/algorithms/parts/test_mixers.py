"""What a mixer can represent, and the sign of its slopes."""

import itertools
import math

import pytest
import torch
from torch import Tensor, nn

from algorithms.parts.mixers import HyperMixer, mixer
from suites.matrix import Matrix

N, G = 4, 6


def made(monotonic: bool, seed: int = 0, **sizes: int) -> HyperMixer:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return HyperMixer(N, G, monotonic=monotonic, **sizes).double()


def slopes(mix: nn.Module, seed: int) -> Tensor:
    rng = torch.Generator().manual_seed(seed)
    q = (5 * torch.randn(200, N, generator=rng, dtype=torch.float64)).requires_grad_()
    state = 5 * torch.randn(200, G, generator=rng, dtype=torch.float64)
    (slope,) = torch.autograd.grad(mix(q, state).sum(), q)
    return slope


@pytest.mark.parametrize("seed", range(5))
def test_q_tot_never_falls_with_a_utility_under_a_monotonic_mixer(seed: int) -> None:
    mix = made(monotonic=True, seed=seed)
    with torch.no_grad():
        for p in mix.parameters():
            p.copy_(
                3 * torch.randn(p.shape, generator=torch.Generator().manual_seed(seed))
            )  # trained ones are not small
    slope = slopes(mix, seed)
    assert float(slope.min()) >= 0
    assert float(slope.max()) > 0


def test_it_can_fall_under_an_unconstrained_one() -> None:
    assert float(slopes(made(monotonic=False), 0).min()) < 0


def test_the_slopes_of_a_sum_are_1() -> None:
    assert torch.equal(slopes(mixer("linear", N, G, 8, 8), 0), torch.ones(200, N, dtype=torch.float64))


def test_q_tot_is_the_published_formula() -> None:
    mix = made(monotonic=True, embed=3, hyper=5)
    q, state = torch.randn(N, dtype=torch.float64), torch.randn(G, dtype=torch.float64)
    w1 = mix.hyper_w1(state).reshape(N, 3).abs()
    b1, w2, b2 = mix.hyper_b1(state), mix.hyper_w2(state).abs(), mix.hyper_b2(state)
    total = b2.item()
    for h in range(3):
        x = b1[h].item() + sum(q[i].item() * w1[i, h].item() for i in range(N))
        total += w2[h].item() * (x if x > 0 else math.expm1(x))
    assert mix(q, state).item() == pytest.approx(total, rel=1e-10)


@pytest.mark.parametrize("kind", ["monotonic", "linear", "unconstrained"])
def test_many_candidates_at_once_are_each_by_itself(kind: str) -> None:
    mix = mixer(kind, N, G, 8, 8)  # type: ignore[arg-type]
    q, state = torch.randn(2, 3, 7, N), torch.randn(2, 3, G)
    together = mix.mix(q, mix.weights(state))
    assert together.shape == (2, 3, 7)
    alone = torch.stack([mix(q[:, :, m], state) for m in range(7)], -1)
    torch.testing.assert_close(together, alone, rtol=1e-5, atol=1e-6)


# -- payoffs that each represents, and does not ------------------------------------------------------------------------


def worst_error(kind: str, task: str, seed: int = 0) -> float:
    """Largest error over the whole payoff table after fitting free utilities [N,A] and the mixer to it."""
    payoff = Matrix().payoff(task)[0].flatten().double()
    joint = torch.tensor(list(itertools.product(range(3), repeat=2)))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        mix = mixer(kind, 2, 1, 16, 16).double()  # type: ignore[arg-type]
        utilities = nn.Parameter(torch.randn(2, 3, dtype=torch.float64))
    state = torch.ones(len(joint), 1, dtype=torch.float64)
    optimiser = torch.optim.Adam([utilities, *mix.parameters()], lr=0.1)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, 500)
    for _ in range(500):
        q = torch.stack([utilities[i, joint[:, i]] for i in range(2)], -1)
        error = mix(q, state) - payoff
        optimiser.zero_grad()
        error.square().mean().backward()
        optimiser.step()
        schedule.step()
    return float(error.detach().abs().max())


@pytest.mark.learns
@pytest.mark.parametrize(
    ("kind", "task", "fits"),
    [
        ("linear", "additive", True),
        ("linear", "monotone", False),
        ("linear", "qtran", False),
        ("monotonic", "additive", True),
        ("monotonic", "monotone", True),
        ("monotonic", "qtran", False),
        ("unconstrained", "additive", True),
        ("unconstrained", "monotone", True),
        ("unconstrained", "qtran", True),
    ],
)
def test_what_a_mixer_represents(kind: str, task: str, fits: bool) -> None:
    """VDN fits sums, QMIX what is monotone, neither QTRAN's game; without the constraint all three.

    Descent may stick at a wrong order of the utilities, so that some start succeeds is the claim, or that none does.
    """
    errors = []
    for seed in range(4 if fits else 2):
        errors.append(worst_error(kind, task, seed))
        if fits and errors[-1] < 0.05:
            return
    assert not fits, errors
    assert min(errors) > 0.4, errors


def test_the_best_sum_for_a_product_misses_by_exactly_1() -> None:
    """By least squares on (i+1)(j+1): the residual is (i-1)(j-1), whose largest entry is 1."""
    payoff = Matrix().payoff("monotone")[0].double()
    rows, columns = payoff.mean(1, keepdim=True), payoff.mean(0, keepdim=True)
    assert float((payoff - rows - columns + payoff.mean()).abs().max()) == pytest.approx(1.0)
    assert worst_error("linear", "monotone") == pytest.approx(1.0, abs=1e-3)
