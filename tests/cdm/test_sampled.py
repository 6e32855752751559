"""Sampled estimates against exact ones on the same games."""

import math

import pytest
import torch

from harness.cdm import exact, sampled


def random_game(seed, n=3, actions=3):
    rng = torch.Generator().manual_seed(seed)
    policies = [torch.randn(1, actions, generator=rng, dtype=torch.float64).softmax(-1) for _ in range(n)]
    return policies, 3 * torch.randn(1, *[actions] * n, generator=rng, dtype=torch.float64), rng


def estimate(policies, q, rng, i=0, states=256, samples=16):
    """Agent i's sampled diagnostics, from ``states`` draws of q's states."""
    which = torch.randint(len(q), (states,), generator=rng)
    pis = [p[which] for p in policies]
    actions = sampled.deviations(sampled.joint_draws(pis, samples, rng), i, pis[i].shape[1])
    values = q[(which[:, None, None], *actions.unbind(-1))]
    return sampled.summary(sampled.expectation(values, pis[i]))


def test_sampled_lies_within_its_interval_of_exact_on_100_random_games():
    """95% intervals: of 100 games at least 88 (a binomial .95 falls below that once in 400)."""
    names = ("variance_teammates", "variance_own", "teammate_share", "gap")
    hits = dict.fromkeys(names, 0)
    for seed in range(100):
        policies, q, rng = random_game(seed)
        found = estimate(policies, q, rng)
        parts = exact.centralised(q, policies, 0)
        truth = (parts.teammates, parts.own, parts.share, exact.gap(q, policies, 0))
        for name, value in zip(names, truth, strict=True):
            hits[name] += found[name].within(value)
    assert min(hits.values()) >= 88, hits


def test_state_part_total_and_signal_to_noise_over_several_states():
    rng = torch.Generator().manual_seed(1)
    policies = [torch.randn(5, 3, generator=rng, dtype=torch.float64).softmax(-1) for _ in range(2)]
    q = 3 * torch.randn(5, 3, 3, generator=rng, dtype=torch.float64)
    parts = exact.centralised(q, policies, 0)
    found = estimate(policies, q, rng, states=4000, samples=4)
    assert found["variance_state"].within(parts.state, 4)
    assert found["variance_total"].within(parts.total, 4)
    assert found["snr"].within(parts.snr, 4)
    assert found["variance_decentralised"].within(exact.decentralised(q, policies, 0).total, 4)
    # few draws would bias a plug-in estimate of the state's part upwards by T/K: this one must see through it
    assert abs(found["variance_state"].value - parts.state) < parts.teammates / 4


def test_additive_values_have_no_teammates_part():
    policies, _, rng = random_game(3, n=2)
    q = torch.tensor([[[2.0, 3, 4], [4, 5, 6], [6, 7, 8]]], dtype=torch.float64)
    found = estimate(policies, q, rng)
    assert found["variance_teammates"].value == pytest.approx(0, abs=1e-20)
    assert found["gap"].value > 0.1


def test_crossed_draws_agree_with_the_exact_sum_over_own_actions():
    policies, q, rng = random_game(4, n=2)
    states, k, inner = 4000, 5, 6
    pis = [p.expand(states, -1) for p in policies]
    mates = torch.multinomial(pis[1], k, replacement=True, generator=rng)
    mine = torch.multinomial(pis[0], inner, replacement=True, generator=rng)
    values = q[0][mine.unsqueeze(1), mates.unsqueeze(2)]
    psi = exact.softmax_score(policies[0])[0][mine]
    found = sampled.summary(sampled.crossed(values, psi))
    parts = exact.centralised(q, policies, 0)
    truth = {"variance_teammates": parts.teammates, "variance_own": parts.own, "gap": exact.gap(q, policies, 0)}
    for name, value in {**truth, "variance_state": 0.0, "snr": parts.snr}.items():
        assert found[name].within(value, 4), name


def test_nested_repetitions_separate_the_two_sources_of_noise():
    rng = torch.Generator().manual_seed(5)
    g = 2 * torch.randn(2000, 6, 1, 3, generator=rng) + torch.randn(2000, 6, 2, 3, generator=rng) + 1
    found = sampled.summary(sampled.nested(g))
    assert found["variance_teammates"].within(12, 4)
    assert found["variance_own"].within(3, 4)
    assert found["variance_state"].within(0, 4)
    assert found["snr"].within(3 / 15, 4)
    assert math.isnan(found["gap"].value)


def test_igm_candidates_are_legal_and_find_a_better_deviation():
    q = torch.tensor([[8.0, -12.0, 9.0], [-12.0, 0.0, 1.0], [-20.0, 0.0, 2.0]])
    avail = torch.tensor([[[True, True, True], [True, True, False]]])
    greedy = torch.tensor([[1, 1]])
    uniform = [a.float() / a.sum(-1, keepdim=True) for a in avail.unbind(1)]
    rng = torch.Generator().manual_seed(0)
    candidates = sampled.igm_candidates(greedy, uniform, avail, 32, rng)
    assert candidates[0, 0].tolist() == [1, 1]
    assert (candidates[..., 1] != 2).all()
    values = q[candidates[..., 0], candidates[..., 1]]
    assert sampled.igm_violations(values).tolist() == [True]
    assert sampled.igm_violations(values.clamp(max=0.0)).tolist() == [False]


def test_one_state_has_no_standard_error():
    policies, q, rng = random_game(6)
    assert math.isnan(estimate(policies, q, rng, states=1)["gap"].error)


def test_agreement_sees_through_the_noise_of_few_draws():
    rng = torch.Generator().manual_seed(7)
    truth = torch.randn(500, 1, 3, generator=rng)
    a, b = (truth + 3 * torch.randn(500, 8, 3, generator=rng) for _ in range(2))
    cosine, flips = sampled.agreement(a, b)
    assert cosine == pytest.approx(1, abs=0.1)  # a plain cosine of the means would say about .47
    assert flips < 0.15  # noise puts a few small components on the wrong side
    cosine, flips = sampled.agreement(a, -b)
    assert cosine == pytest.approx(-1, abs=0.1)
    assert flips > 0.85
    assert math.isnan(sampled.agreement(torch.zeros(4, 3, 2), torch.ones(4, 3, 2))[0])
    noise = [torch.randn(500, 8, 3, generator=rng) for _ in range(20)]
    found = [sampled.agreement(x, y)[0] for x, y in zip(noise[::2], noise[1::2], strict=True)]
    assert all(map(math.isnan, found))  # no direction is made up where there is none


def test_sampled_perturbation_agrees_with_exact():
    policies, q, rng = random_game(8, n=2)
    states, i = 20_000, 0

    def draws(pis):
        wide = [p.expand(states, -1) for p in pis]
        actions = sampled.deviations(sampled.joint_draws(wide, 16, rng), i, 3)
        return sampled.inner_gradients(q[0][actions.unbind(-1)], wide[i])

    for eps in (0.25, 1.0, "greedy"):
        cosine, _ = sampled.agreement(draws(exact.perturbed(policies, i, eps)), draws(policies))
        assert cosine == pytest.approx(exact.perturbation(q, policies, i, eps)[0], abs=0.03)
