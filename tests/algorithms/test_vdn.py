import dataclasses

import pytest
import torch

from algorithms.vdn import VDN
from harness.learner import Learner
from tests.support.episodes import DISCRETE, batch_of, networks
from tests.support.learning import fit

FIT = VDN(hidden=16, lr=0.02)


@pytest.mark.learns
def test_it_fits_a_sum_exactly() -> None:
    assert fit(FIT, "additive", 500)[1] < 0.02


@pytest.mark.learns
@pytest.mark.parametrize(("task", "least"), [("monotone", 0.9), ("qtran", 4.0)])
def test_it_cannot_fit_what_is_no_sum(task: str, least: float) -> None:
    """The best sum misses the product by 1 somewhere, and QTRAN's game by a good part of its range."""
    assert fit(FIT, task, 500)[1] > least


@pytest.mark.parametrize("lam", [0.0, 0.6])
def test_the_loss_is_the_papers_by_hand(lam: float) -> None:
    """Sum of chosen utilities against r + gamma times the target utilities at the current network's legal argmax."""
    algorithm = VDN(hidden=8, td_lambda=lam, gamma=0.9)
    learner = Learner(algorithm, networks(algorithm, DISCRETE))
    learner.target["agent"].load_state_dict(networks(algorithm, DISCRETE, 1)["agent"].state_dict())
    lengths, ends = [4, 2, 3], [True, False, True]
    batch = batch_of(DISCRETE, lengths, ends)
    assert batch.avail is not None
    with torch.no_grad():
        loss, metrics = algorithm.td(learner.net, learner.target, batch, torch.Generator())
        before = torch.cat([torch.full_like(batch.action[:, :1], -1), batch.action], 1)
        q = learner.net["agent"](batch.obs, before)[0].double()
        q_minus = learner.target["agent"](batch.obs, before)[0].double()
    errors = []
    for b, (n, over) in enumerate(zip(lengths, ends, strict=True)):
        value = []
        for t in range(n + 1):
            total = 0.0
            for i in range(3):
                legal = [a for a in range(4) if batch.avail[b, t, i, a]]
                total += float(q_minus[b, t, i, max(legal, key=lambda a, x=q[b, t, i]: float(x[a]))])  # type: ignore[misc]
            value.append(total)
        y = 0.0
        for t in reversed(range(n)):
            reward = float(batch.reward[b, t])
            if t == n - 1:
                y = reward + (0.0 if over else 0.9 * value[n])
            else:
                y = reward + 0.9 * ((1 - lam) * value[t + 1] + lam * y)
            errors.append(sum(float(q[b, t, i, batch.action[b, t, i]]) for i in range(3)) - y)
    assert float(loss) == pytest.approx(sum(e * e for e in errors) / len(errors), rel=1e-5)
    assert metrics.keys() == {"loss", "q_tot", "target"}


def test_the_joint_value_is_the_sum_of_the_utilities() -> None:
    algorithm = VDN(hidden=8)
    net, batch = networks(algorithm, DISCRETE), batch_of(DISCRETE, [4, 2], [True, False])
    total = algorithm.utilities(net, batch, batch.action).sum(-1)
    assert torch.equal(algorithm.joint_value(net, batch, batch.action), total)


def test_the_published_defaults() -> None:
    d = VDN()
    assert (d.hidden, d.epsilon_start, d.epsilon_end, d.epsilon_steps) == (64, 1.0, 0.05, 50_000)
    assert (d.buffer_episodes, d.target_episodes, d.lr, d.clip, d.gamma) == (5_000, 200, 5e-4, 10.0, 0.99)
    assert dataclasses.replace(d, **VDN.presets["pymarl2"]).epsilon_steps == 100_000
