"""Utilities of whole episodes, and double Q-learning among legal actions."""

import pytest
import torch
from torch import nn

from algorithms.parts.targets import lambda_return
from algorithms.parts.values import act_epsilon_greedy, all_utilities, candidate_utilities, chosen, double_q
from harness.networks import RecurrentAgent
from tests.support.episodes import DISCRETE, NoisyEnv, batch_of


def agent(seed: int = 0) -> nn.ModuleDict:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return nn.ModuleDict({"agent": RecurrentAgent(DISCRETE, 4, 16)})


def test_chosen_and_candidates_are_look_ups() -> None:
    rng = torch.Generator().manual_seed(0)
    q = torch.randn(2, 4, 3, 5, generator=rng)  # T+1 = 4 moments
    action = torch.randint(5, (2, 3, 3), generator=rng)
    many = torch.randint(5, (2, 3, 6, 3), generator=rng)
    for b in range(2):
        for t in range(3):
            for i in range(3):
                assert candidate_utilities(q, action)[b, t, i] == q[b, t, i, action[b, t, i]]
                assert chosen(q[:, :-1], action)[b, t, i] == q[b, t, i, action[b, t, i]]
                for m in range(6):
                    assert candidate_utilities(q, many)[b, t, m, i] == q[b, t, i, many[b, t, m, i]]


def test_double_q_takes_the_current_networks_best_legal_action_at_the_targets_value() -> None:
    q = torch.tensor([[9.0, 3.0, 2.0], [1.0, 2.0, 3.0]])
    q_target = torch.tensor([[1e9, 10.0, 20.0], [40.0, 50.0, 60.0]])
    avail = torch.tensor([[False, True, True], [True, True, False]])
    assert double_q(q, q_target, avail).tolist() == [10.0, 50.0]


def test_double_q_passes_no_gradient_to_the_current_network() -> None:
    q = torch.randn(4, 3, requires_grad=True)
    assert not double_q(q, torch.randn(4, 3), None).requires_grad


@pytest.mark.parametrize("lam", [0.0, 0.6])
def test_the_sentinel_of_illegal_actions_reaches_no_target(lam: float) -> None:
    """Found elsewhere: the mask's -9999999 of a padded next step entered a bootstrap."""
    batch = batch_of(DISCRETE, [5, 2, 3], [True, False, False], legal=1)
    with torch.no_grad():
        q = all_utilities(agent(), batch)
        value = double_q(q, q, batch.avail).sum(-1)
        y = lambda_return(batch.reward, value, batch.terminated, batch.mask, 0.99, lam)
    bound = float(batch.reward.abs().max() + q.abs().max() * 3) * 10
    assert float(value.abs().max()) < bound
    assert float(y.abs().max()) < bound


def test_the_agents_play_what_the_learner_computes() -> None:
    """Utilities step by step while acting are those of the whole sequence in one call; greedy among the legal."""
    net, env = agent(), NoisyEnv("discrete", 6)
    from harness.collect import episodes

    _, batch = episodes(env, lambda s, memory, k: act_epsilon_greedy(net, s, memory, 0.0, None), 3)
    assert batch is not None
    assert batch.avail is not None
    with torch.no_grad():
        q = all_utilities(net, batch)[:, :-1]
    best = q.masked_fill(~batch.avail[:, :-1], -torch.inf).argmax(-1)
    happened = batch.mask > 0
    assert torch.equal(best[happened], batch.action[happened])
