"""The identities of the decomposition, and hand-made cases."""

import math

import pytest
import torch

from harness.cdm import exact


def softmax_game(rng, n=2, actions=3, states=1, scale=3.0):
    """Random policies (softmax of N(0,1) logits) and joint values scale * N(0,1), float64."""
    policies = [torch.randn(states, actions, generator=rng, dtype=torch.float64).softmax(-1) for _ in range(n)]
    return policies, scale * torch.randn(states, *[actions] * n, generator=rng, dtype=torch.float64)


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("n", [2, 3, 5])
@pytest.mark.parametrize("states", [1, 4])
def test_parts_sum_to_the_total_variance(n, states):
    rng = generator(n)
    policies, q = softmax_game(rng, n, states=states)
    d = torch.rand(states, generator=rng, dtype=torch.float64)
    d = d / d.sum()
    for i in range(n):
        x, pi, weights = exact.unroll(q, policies, i)
        g = x.unsqueeze(-1) * exact.softmax_score(pi).unsqueeze(2)
        parts = exact.centralised(q, policies, i, d)
        assert parts.total == pytest.approx(exact.total_variance(g, pi, weights, d), abs=1e-10)
        assert min(parts.state, parts.teammates, parts.own) >= 0
        assert (parts.state == 0) == (states == 1)


@pytest.mark.parametrize("n", [2, 4])
def test_gap_is_the_difference_of_variances(n):
    policies, q = softmax_game(generator(3), n, states=3)
    for i in range(n):
        difference = exact.centralised(q, policies, i).total - exact.decentralised(q, policies, i).total
        assert exact.gap(q, policies, i) == pytest.approx(difference, abs=1e-10)
        assert difference > 0
        assert exact.decentralised(q, policies, i).teammates == pytest.approx(0, abs=1e-20)


def test_additive_values_have_no_teammates_part_and_a_gap():
    rng = generator(1)
    policies, _ = softmax_game(rng, 3, states=2)
    a, b, c = (torch.randn(2, 3, generator=rng, dtype=torch.float64) for _ in range(3))
    q = a[:, :, None, None] + b[:, None, :, None] + c[:, None, None, :]
    for i in range(3):
        assert exact.centralised(q, policies, i).teammates == pytest.approx(0, abs=1e-25)
        assert exact.gap(q, policies, i) > 1e-2
        # its expected gradient does not depend on the teammates
        for eps in (0.25, 1.0, "greedy"):
            assert exact.perturbation(q, policies, i, eps) == pytest.approx((1.0, 0.0))


def test_matches_autograd_on_a_game_solved_by_hand():
    """Uniform policies on [[1,0],[0,0]]: psi = +-(1/2,-1/2), so g(0,0) = (1/2,-1/2), all others 0."""
    policies = [torch.full((1, 2), 0.5)] * 2
    q = torch.tensor([[[1.0, 0.0], [0.0, 0.0]]])
    parts = exact.centralised(q, policies, 0)
    # E_{u0} g = (1/4,-1/4) when the teammate plays 0, else 0: T = 2 * Var(1/4, 0) = 2/64
    assert parts.teammates == pytest.approx(1 / 32)
    # O = 1/2 * E over u0 of |g - mean|^2 = 1/2 * 2 * Var(1/2, 0) = 1/16
    assert parts.own == pytest.approx(1 / 16)
    assert parts.mean.tolist() == pytest.approx([1 / 8, -1 / 8])
    assert parts.share == pytest.approx(1 / 3)
    assert parts.snr == pytest.approx((1 / 32) / (3 / 32))
    # |psi|^2 = 1/2, Var_{u^-} Q = 1/4 for u = 0 and 0 for u = 1
    assert exact.gap(q, policies, 0) == pytest.approx(1 / 16)
    logits = torch.zeros(2, requires_grad=True)
    value = (logits.softmax(0) @ q[0] @ policies[1][0]).sum()
    assert torch.autograd.grad(value, logits)[0].tolist() == pytest.approx(parts.mean.tolist())


@pytest.mark.parametrize(("n", "expected"), [(2, (3.77, 0.71, 3.06, 1.52)), (5, (4.55, 1.42, 3.14, 0.19))])
def test_magnitudes_of_random_softmax_games(n, expected):
    """Means of 200 games against those of another 200 (specification): both have sampling error, so 4 sqrt(2) SE."""
    rng, rows = generator(10 + n), []
    for _ in range(200):
        policies, q = softmax_game(rng, n)
        parts = exact.centralised(q, policies, 0)
        rows.append((parts.total, parts.teammates, parts.own, exact.decentralised(q, policies, 0).total))
    table = torch.tensor(rows)
    error = table.std(0) / math.sqrt(200)
    assert ((table.mean(0) - torch.tensor(expected)).abs() < 4 * math.sqrt(2) * error).all(), table.mean(0)


def test_counterfactual_baseline_leaves_the_teammates_part_alone():
    policies, q = softmax_game(generator(5), 3, states=2)
    for i in range(3):
        plain = exact.centralised(q, policies, i)
        coma = exact.centralised(q, policies, i, baseline=exact.counterfactual_baseline(q, policies, i))
        assert coma.teammates == pytest.approx(plain.teammates, abs=1e-10)
        assert coma.state == pytest.approx(plain.state, abs=1e-10)
        assert coma.mean.tolist() == pytest.approx(plain.mean.tolist(), abs=1e-10)
        assert abs(coma.own - plain.own) > 1e-3


def test_a_baseline_of_the_teammates_actions_can_remove_much_of_the_own_part():
    policies, q = softmax_game(generator(6), 2)
    coma = exact.centralised(q + 100, policies, 0, baseline=exact.counterfactual_baseline(q + 100, policies, 0))
    assert coma.own < 1e-2 * exact.centralised(q + 100, policies, 0).own


def test_perturbation_turns_the_gradient_of_a_coordination_game():
    """Reward 1 for matching; both mostly play 0. With the teammate uniform there is nothing to prefer."""
    q = torch.eye(2, dtype=torch.float64)[None]
    policies = [torch.tensor([[0.7, 0.3]]), torch.tensor([[0.9, 0.1]])]
    assert exact.perturbation(q, policies, 0, 0.0) == pytest.approx((1.0, 0.0))
    assert exact.perturbation(q, policies, 0, 0.5) == pytest.approx((1.0, 0.0))
    assert math.isnan(exact.perturbation(q, policies, 0, 1.0)[0])  # no direction left
    assert exact.perturbation(q, policies, 0, "greedy") == pytest.approx((1.0, 0.0))
    away = [policies[0], torch.tensor([[0.55, 0.45]])]
    tilted = q.clone()
    tilted[0, 1, 1] = 1.5  # prefers 0 only while the teammate does: at uniform, 1
    assert exact.perturbation(tilted, [policies[0], policies[1]], 0, 1.0) == pytest.approx((-1.0, 1.0))
    # .55 < .45 * 1.5, but a greedy teammate plays 0
    assert exact.perturbation(tilted, away, 0, "greedy")[0] == pytest.approx(-1.0)


def test_perturbation_is_uniform_over_legal_actions_only():
    pi = torch.tensor([[0.5, 0.5, 0.0]])
    avail = torch.tensor([[True, True, False]])
    changed = exact.perturbed([pi, pi], 0, 1.0, [avail, avail])
    assert changed[0].equal(pi)
    assert changed[1].tolist() == [[0.5, 0.5, 0.0]]


def test_igm_violations_of_hand_made_cases():
    monotone = torch.tensor([[1.0, 2.0], [2.0, 4.0]])
    qtran = torch.tensor([[8.0, -12.0], [-12.0, 0.0]])
    tie = torch.tensor([[3.0, 1.0], [1.0, 3.0]])
    q = torch.stack([monotone, qtran, qtran, tie, tie])
    actions = torch.tensor([[1, 1], [1, 1], [0, 0], [1, 1], [0, 1]])
    assert exact.igm_violations(q, actions).tolist() == [False, True, False, False, True]
    assert exact.shortfall(q, actions).tolist() == [0, 8, 0, 0, 2]


def test_igm_ignores_illegal_joint_actions():
    q = torch.tensor([[[8.0, -12.0], [-12.0, 0.0]]])
    avail = [torch.tensor([[False, True]]), torch.tensor([[True, True]])]
    assert exact.igm_violations(q, torch.tensor([[1, 1]]), avail).tolist() == [False]


def test_representation_error_by_hand():
    truth = torch.tensor([[[1.0, 2.0], [3.0, 4.0]]])
    q = torch.tensor([[[1.0, 2.0], [3.0, 8.0]]])
    assert exact.representation_error(q, truth) == pytest.approx(2.0)
    on_policy = exact.joint_policy([torch.tensor([[0.9, 0.1]]), torch.tensor([[0.9, 0.1]])])
    assert on_policy.sum() == pytest.approx(1)
    assert exact.representation_error(q, truth, on_policy) == pytest.approx(0.4)


def test_deterministic_policies_have_no_share():
    policies = [torch.tensor([[1.0, 0.0]])] * 2
    parts = exact.centralised(torch.tensor([[[1.0, 2.0], [3.0, 4.0]]]), policies, 0)
    assert parts.total == 0
    assert math.isnan(parts.share)
    assert math.isnan(parts.snr)


def test_a_million_joint_actions():
    policies, q = softmax_game(generator(7), n=10, actions=4)
    parts = exact.centralised(q, policies, 9)
    assert 0 < parts.share < 1
    assert exact.gap(q, policies, 9) > 0


def test_shapes_that_disagree_are_refused():
    policies, q = softmax_game(generator(), 2)
    with pytest.raises(ValueError, match="shape"):
        exact.unroll(q[:, :2], policies, 0)
