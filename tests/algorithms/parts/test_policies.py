"""Behaviour policies: what is drawn, how often, and the log probability that is stored with it."""

import math

import pytest
import torch
from torch.distributions import Categorical, Normal

from algorithms.parts.policies import (
    Actor,
    ClippedGaussian,
    act_stochastic,
    categorical,
    draw,
    epsilon_greedy,
    legal,
    linear,
    sample,
    unclipped,
)  # fmt: skip
from harness.types import Continuous, Step
from tests.support.episodes import CONTINUOUS, DISCRETE, legal_actions

RNG = torch.Generator


def test_a_schedule_goes_straight_and_stays() -> None:
    values = [linear(1.0, 0.05, 100, now) for now in (0, 25, 50, 100, 101, 10**9)]
    assert values == pytest.approx([1.0, 0.7625, 0.525, 0.05, 0.05, 0.05])
    assert linear(0.5, 0.0, 0, 0) == 0.0  # no steps: at its end at once


# -- masks ----------------------------------------------------------------------------------------------------------


def test_the_illegal_action_with_the_highest_value_is_not_the_maximum() -> None:
    q = torch.tensor([[5.0, 1.0, 2.0, -3.0]])
    avail = torch.tensor([[False, True, False, True]])
    assert legal(q, avail).argmax(-1).tolist() == [1]
    assert epsilon_greedy(q, avail, 0.3, None)[0].tolist() == [1]
    very_low = torch.full((1, 4), -1e30)
    very_low[0, 0] = 0.0  # illegal, and far above all that is legal
    assert epsilon_greedy(very_low, avail, 0.0, RNG().manual_seed(0))[0].tolist() == [1]


def test_illegal_actions_have_probability_zero_and_are_never_drawn() -> None:
    rng = RNG().manual_seed(0)
    logits = 20 * torch.randn(5_000, 4, generator=rng)
    avail = torch.rand(5_000, 4, generator=rng) < 0.4
    avail[:, 0] |= ~avail.any(-1)
    pi = categorical(logits, avail)
    assert float(pi.probs[~avail].max()) == 0.0
    assert avail.gather(-1, draw(pi.probs, rng)[:, None]).all()
    for epsilon in (0.0, 0.5, 1.0):
        action, log_prob = epsilon_greedy(logits, avail, epsilon, rng)
        assert avail.gather(-1, action[:, None]).all()
        assert torch.isfinite(log_prob).all()


def test_the_entropy_of_a_masked_policy_is_that_of_its_legal_part_with_a_finite_slope() -> None:
    logits = torch.zeros(1, 4, requires_grad=True)
    pi = categorical(logits, torch.tensor([[True, True, False, False]]))
    entropy = pi.entropy().sum()
    (slope,) = torch.autograd.grad(entropy, logits)
    assert entropy.item() == pytest.approx(math.log(2), rel=1e-6)
    assert torch.isfinite(slope).all()


# -- epsilon greedy -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("epsilon", [0.0, 0.05, 0.5, 1.0])
def test_epsilon_greedy_log_probabilities_are_exact(epsilon: float) -> None:
    """Greedy: 1 - epsilon + epsilon / legal; other legal ones: epsilon / legal."""
    rng = RNG().manual_seed(1)
    q, avail = torch.randn(4_000, 3, generator=rng), torch.tensor([[True, True, False]]).repeat(4_000, 1)
    avail[::2] = True
    action, log_prob = epsilon_greedy(q, avail, epsilon, rng)
    greedy = q.masked_fill(~avail, -torch.inf).argmax(-1)
    for k in range(200):
        count = int(avail[k].sum())
        expected = epsilon / count + (1 - epsilon) * (int(action[k]) == int(greedy[k]))
        assert math.exp(float(log_prob[k])) == pytest.approx(expected, rel=1e-6)
    for count, part in ((3, slice(0, None, 2)), (2, slice(1, None, 2))):
        share = float((action[part] == greedy[part]).double().mean())
        assert share == pytest.approx(1 - epsilon + epsilon / count, abs=0.035)  # 3 standard errors of 2,000 draws


def test_greedy_play_reads_no_random_number() -> None:
    before = torch.get_rng_state()
    q = torch.randn(10, 4, generator=RNG().manual_seed(0))
    action, log_prob = epsilon_greedy(q, None, 1.0, None)
    assert torch.equal(action, q.argmax(-1))
    assert torch.equal(log_prob, torch.zeros(10))
    assert torch.equal(before, torch.get_rng_state())


def test_draws_follow_the_probabilities() -> None:
    probs = torch.tensor([0.1, 0.2, 0.3, 0.4]).expand(2, 20_000, 4)
    drawn = draw(probs, RNG().manual_seed(3))
    assert drawn.shape == (2, 20_000)
    assert (drawn.flatten().bincount() / 40_000).tolist() == pytest.approx([0.1, 0.2, 0.3, 0.4], abs=0.01)


# -- stochastic actors ----------------------------------------------------------------------------------------------


def actor(spec, seed: int = 0) -> Actor:  # type: ignore[no-untyped-def]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return Actor(spec, 16)


def step_of(spec, envs: int, seed: int = 0) -> Step:  # type: ignore[no-untyped-def]
    rng = RNG().manual_seed(seed)
    zeros, flags = torch.zeros(envs), torch.zeros(envs, dtype=torch.bool)
    obs = torch.randn(envs, spec.n_agents, spec.obs_dim, generator=rng)
    alive = torch.ones(envs, spec.n_agents, dtype=torch.bool)
    return Step(
        obs,
        torch.randn(envs, spec.state_dim, generator=rng),
        legal_actions(spec, (envs,), rng),
        alive,
        zeros,
        flags,
        flags,
        {},
    )


def test_the_stored_log_probability_is_that_of_what_was_played() -> None:
    step, net = step_of(DISCRETE, 500), actor(DISCRETE)
    with torch.no_grad():
        action = act_stochastic(net, step, None, RNG().manual_seed(0))
        pi = net(step.obs.unsqueeze(1), None, step.avail.unsqueeze(1))[0]  # type: ignore[union-attr]
    assert step.avail is not None
    assert step.avail.gather(-1, action.action[..., None]).all()
    expected = pi.probs.squeeze(1).double().gather(-1, action.action[..., None]).squeeze(-1).log()
    torch.testing.assert_close(action.log_prob.double(), expected, rtol=1e-5, atol=1e-6)


def test_exploring_actors_mix_in_uniform_play_over_legal_actions() -> None:
    step, net, epsilon = step_of(DISCRETE, 500), actor(DISCRETE), 0.4
    with torch.no_grad():
        action = act_stochastic(net, step, None, RNG().manual_seed(0), epsilon)
        pi = net(step.obs.unsqueeze(1), None, step.avail.unsqueeze(1))[0].probs.squeeze(1)  # type: ignore[union-attr]
    assert step.avail is not None
    assert step.avail.gather(-1, action.action[..., None]).all()
    count = step.avail.sum(-1)
    expected = (1 - epsilon) * pi.gather(-1, action.action[..., None]).squeeze(-1) + epsilon / count
    torch.testing.assert_close(action.log_prob.exp(), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("epsilon", [0.4, 1.0])
def test_exploring_actors_mix_in_uniform_play_over_the_box(epsilon: float) -> None:
    step, net, box = step_of(CONTINUOUS, 4_000), actor(CONTINUOUS), CONTINUOUS.action
    assert isinstance(box, Continuous)
    with torch.no_grad():
        action = act_stochastic(net, step, None, RNG().manual_seed(0), epsilon)
        plain = act_stochastic(net, step, None, RNG().manual_seed(0))
        pi = net(step.obs.unsqueeze(1), None, None)[0]
        density = pi.log_prob(action.action.unsqueeze(1)).squeeze(1).double().exp()
    inside = ((action.action > box.low) & (action.action < box.high)).all(-1)
    expected = (1 - epsilon) * density + inside * epsilon / (box.high - box.low) ** box.size
    torch.testing.assert_close(action.log_prob.double().exp(), expected, rtol=1e-4, atol=1e-9)
    moved = (action.action != plain.action).any(-1)
    assert float(moved.double().mean()) == pytest.approx(epsilon, abs=3 * 0.5 / moved.numel() ** 0.5)
    anywhere = (action.action[moved] - box.low) / (box.high - box.low)
    assert float(anywhere.min()) >= 0
    assert float(anywhere.max()) <= 1
    assert float(anywhere.mean()) == pytest.approx(0.5, abs=0.02)
    assert float(anywhere.var()) == pytest.approx(1 / 12, abs=0.01)


def test_noise_widens_the_gaussian_that_is_drawn_from_and_scored() -> None:
    step, net, box = step_of(CONTINUOUS, 50), actor(CONTINUOUS), CONTINUOUS.action
    assert isinstance(box, Continuous)
    with torch.no_grad():
        played = act_stochastic(net, step, None, RNG().manual_seed(0), noise=0.4)
        pi = net(step.obs.unsqueeze(1), None, None)[0]
    std = (pi.variance + (0.4 * (box.high - box.low) / 2) ** 2).sqrt()
    drawn = pi.mean + std * torch.randn(std.shape, generator=RNG().manual_seed(0))
    action = drawn.clamp(box.low, box.high)
    torch.testing.assert_close(played.action, action.squeeze(1))
    torch.testing.assert_close(played.log_prob, ClippedGaussian(pi.mean, std, box).log_prob(action).squeeze(1))
    assert (drawn != action).any()  # some were clipped


# -- what is played inside a box ------------------------------------------------------------------------------------


def gaussians(count: int) -> ClippedGaussian:
    rng, box = RNG().manual_seed(5), CONTINUOUS.action
    assert isinstance(box, Continuous)
    mean = box.low + (box.high - box.low) * torch.rand(count, box.size, generator=rng, dtype=torch.float64)
    return ClippedGaussian(mean, torch.rand(mean.shape, generator=rng, dtype=torch.float64) * 4 + 0.05, box)


def test_the_likelihood_of_a_clipped_gaussian_sums_to_one_over_edges_and_inside() -> None:
    pi = gaussians(50)
    box, normal = pi.box, pi.base_dist
    one = ClippedGaussian(normal.loc[:, :1], normal.scale[:, :1], box)
    grid = torch.linspace(box.low, box.high, 40_001, dtype=torch.float64)
    values = one.log_prob(grid[:, None, None].expand(-1, 50, 1)).exp()  # [grid,50]
    inside = torch.trapezoid(normal.log_prob(grid[:, None, None].expand(-1, 50, 2))[..., 0].exp(), grid, dim=0)
    torch.testing.assert_close(values[0] + values[-1] + inside, torch.ones(50, dtype=torch.float64), atol=1e-6, rtol=0)


def test_the_ratio_of_two_clipped_gaussians_has_mean_one_and_the_unclipped_densities_ratio_has_not() -> None:
    """Found here: PPO's mean ratio was .95 where a third of all actions are clipped, and policies grew wider."""
    box = CONTINUOUS.action
    assert isinstance(box, Continuous)
    mean, std = torch.full((200_000, 1), 0.4), torch.full((200_000, 1), 1.0)
    old, new = ClippedGaussian(mean, std, box), ClippedGaussian(mean - 0.2, std * 1.2, box)
    action = sample(old, RNG().manual_seed(1))
    ratio = (new.log_prob(action) - old.log_prob(action)).exp()
    assert float(ratio.mean()) == pytest.approx(1, abs=4 * float(ratio.std()) / 200_000**0.5)
    wrong = (unclipped(new).log_prob(action) - unclipped(old).log_prob(action)).exp()
    assert abs(float(wrong.mean()) - 1) > 0.03


def test_the_score_of_a_clipped_gaussian_has_mean_zero() -> None:
    box = CONTINUOUS.action
    assert isinstance(box, Continuous)
    mean, log_std = torch.tensor([0.7], requires_grad=True), torch.tensor([0.3], requires_grad=True)
    pi = ClippedGaussian(mean.expand(200_000, 1), log_std.exp().expand(200_000, 1), box)
    action = sample(pi, RNG().manual_seed(2)).detach()
    for grad in torch.autograd.grad(pi.log_prob(action).mean(), [mean, log_std]):
        assert float(grad) == pytest.approx(0, abs=0.01)


def test_the_entropy_of_a_clipped_gaussian_is_minus_its_mean_log_likelihood_and_bounded() -> None:
    pi = gaussians(20)
    wide = ClippedGaussian(pi.mean[None].expand(100_000, -1, -1), pi.stddev[None].expand(100_000, -1, -1), pi.box)
    surprise = -wide.log_prob(sample(wide, RNG().manual_seed(3)).double())
    torch.testing.assert_close(surprise.mean(0), pi.entropy(), atol=0.03, rtol=0)
    coin = ClippedGaussian(torch.full((1, 1), -0.5), torch.full((1, 1), 1e4), pi.box)  # half the draws at either edge
    assert float(coin.entropy()) == pytest.approx(math.log(2), abs=1e-2)


@pytest.mark.parametrize("std", [1e-6, 1e-2, 1e3])
def test_far_from_what_it_plays_a_clipped_gaussian_stays_finite_with_its_gradients(std: float) -> None:
    box = CONTINUOUS.action
    assert isinstance(box, Continuous)
    mean = torch.tensor([[0.999999, -1.5]], requires_grad=True)
    scale = torch.full((1, 2), std, requires_grad=True)
    pi = ClippedGaussian(mean, scale, box)
    for action in ([[box.low, box.high]], [[box.high, box.low]], [[-0.5, 0.0]]):
        total = pi.log_prob(torch.tensor(action)).sum() + pi.entropy().sum()
        assert torch.isfinite(total)
        assert all(torch.isfinite(g).all() for g in torch.autograd.grad(total, [mean, scale]))


def test_unclipped_gives_the_gaussian_and_leaves_a_softmax_alone() -> None:
    pi = gaussians(3)
    action = pi.mean + 0.1
    expected = Normal(pi.base_dist.loc, pi.base_dist.scale).log_prob(action).sum(-1)
    torch.testing.assert_close(unclipped(pi).log_prob(action), expected)
    softmax = Categorical(logits=torch.zeros(2))
    assert unclipped(softmax) is softmax


def test_the_mode_is_played_without_randomness() -> None:
    before = torch.get_rng_state()
    for spec in (DISCRETE, CONTINUOUS):
        step, net = step_of(spec, 50), actor(spec)
        with torch.no_grad():
            action = act_stochastic(net, step, None, None, 0.5).action
            avail = None if step.avail is None else step.avail.unsqueeze(1)
            pi = net(step.obs.unsqueeze(1), None, avail)[0]
        mode = pi.probs.argmax(-1) if isinstance(pi, Categorical) else pi.mean
        assert torch.equal(action, mode.squeeze(1))
    assert torch.equal(before, torch.get_rng_state())


def test_a_gaussian_stays_in_its_box_with_its_deviation_in_units_of_the_half_width() -> None:
    box = CONTINUOUS.action
    assert isinstance(box, Continuous)
    net = actor(CONTINUOUS)
    with torch.no_grad():
        net.agent.head.weight.zero_()
        net.agent.head.bias.copy_(
            torch.tensor([50.0, 0.0, 9.0, -9.0])
        )  # tanh means 1 and 0; log stds beyond both limits
        pi = net(torch.zeros(1, 1, 3, 5), None, None)[0]
        drawn = sample(pi, RNG().manual_seed(0))
    torch.testing.assert_close(pi.mean[0, 0, 0], torch.tensor([1.0, -0.5]))  # box [-2,1]: middle -.5, half-width 1.5
    torch.testing.assert_close(pi.stddev[0, 0, 0], torch.tensor([15.0, 0.15]), rtol=1e-5, atol=0)
    assert drawn.min() >= box.low
    assert drawn.max() <= box.high
