import dataclasses

import pytest
import torch

from algorithms.qmix import QMIX
from algorithms.vdn import VDN
from harness.learner import Learner
from tests.support.episodes import DISCRETE, batch_of, networks
from tests.support.learning import fit

FIT = QMIX(hidden=16, embed=16, hyper=16, lr=0.02)


@pytest.mark.learns
@pytest.mark.parametrize("task", ["additive", "monotone"])
def test_it_fits_what_is_monotone_exactly(task: str) -> None:
    """Descent may stick at a wrong order of actions; that some start of three succeeds is the claim."""
    errors = []
    for seed in range(3):
        errors.append(fit(FIT, task, 700, seed)[1])
        if errors[-1] < 0.05:
            return
    pytest.fail(f"smallest errors {errors}")


@pytest.mark.learns
def test_it_cannot_fit_the_qtran_game() -> None:
    assert fit(FIT, "qtran", 500)[1] > 2.0


@pytest.mark.parametrize("seed", range(3))
def test_q_tot_never_falls_with_a_utility(seed: int) -> None:
    net = networks(QMIX(hidden=8), DISCRETE, seed)
    rng = torch.Generator().manual_seed(seed)
    q = (3 * torch.randn(500, 3, generator=rng)).requires_grad_()
    (slope,) = torch.autograd.grad(net["mixer"](q, 3 * torch.randn(500, 4, generator=rng)).sum(), q)
    assert float(slope.min()) >= 0


def test_the_best_joint_action_is_everyones_own_best() -> None:
    """Individual-global-max: over every joint action of every step, by enumeration."""
    algorithm = QMIX(hidden=8)
    net, batch = networks(algorithm, DISCRETE), batch_of(DISCRETE, [5, 3], [True, False])
    joint = torch.cartesian_prod(*[torch.arange(4)] * 3).expand(2, 5, -1, -1)
    with torch.no_grad():
        value = algorithm.joint_value(net, batch, joint)  # [B,T,64]
        own = torch.stack([algorithm.utilities(net, batch, torch.full((2, 5, 3), a)) for a in range(4)], -1).argmax(-1)
        greedy = algorithm.joint_value(net, batch, own)
    torch.testing.assert_close(greedy, value.amax(-1), rtol=0, atol=1e-6)


def test_the_target_is_mixed_by_the_target_mixer_in_the_next_state() -> None:
    algorithm = QMIX(hidden=8, gamma=0.9)
    learner = Learner(algorithm, networks(algorithm, DISCRETE))
    other = networks(algorithm, DISCRETE, 1)
    for name in ("agent", "mixer"):
        learner.target[name].load_state_dict(other[name].state_dict())
    lengths, ends = [4, 2, 3], [True, False, True]
    batch = batch_of(DISCRETE, lengths, ends)
    assert batch.avail is not None
    before = torch.cat([torch.full_like(batch.action[:, :1], -1), batch.action], 1)
    with torch.no_grad():
        loss, _ = algorithm.td(learner.net, learner.target, batch, torch.Generator())
        q, q_minus = (n["agent"](batch.obs, before)[0] for n in (learner.net, learner.target))
        errors = []
        for b, (n, over) in enumerate(zip(lengths, ends, strict=True)):
            for t in range(n):
                taken = torch.stack([q[b, t, i, batch.action[b, t, i]] for i in range(3)])
                best = q[b, t + 1].masked_fill(~batch.avail[b, t + 1], -torch.inf).argmax(-1)
                then = torch.stack([q_minus[b, t + 1, i, best[i]] for i in range(3)])
                y = float(batch.reward[b, t])
                if not (over and t == n - 1):
                    y += 0.9 * float(learner.target["mixer"](then, batch.state[b, t + 1]))
                errors.append(float(learner.net["mixer"](taken, batch.state[b, t])) - y)
    assert float(loss) == pytest.approx(sum(e * e for e in errors) / len(errors), rel=1e-4)


def test_the_loss_trains_agents_and_mixer_together() -> None:
    (loss,) = QMIX().losses()
    assert set(loss.trains) == {"agent", "mixer"}
    assert set(QMIX().targets().networks) == {"agent", "mixer"}


def test_the_published_defaults() -> None:
    d = QMIX()
    assert (d.embed, d.hyper, d.hidden, d.lr, d.clip, d.gamma) == (32, 64, 64, 5e-4, 10.0, 0.99)
    assert (d.buffer_episodes, d.batch_episodes, d.target_episodes, d.td_lambda) == (5_000, 32, 200, 0.0)
    tuned = dataclasses.replace(d, **QMIX.presets["pymarl2"])
    assert (tuned.lr, tuned.td_lambda, tuned.batch_episodes, tuned.num_envs) == (1e-3, 0.6, 128, 8)
    shared = {f.name for f in dataclasses.fields(VDN)} & {f.name for f in dataclasses.fields(QMIX)}
    assert all(getattr(VDN(), k) == getattr(d, k) for k in shared)  # compared at equal settings
