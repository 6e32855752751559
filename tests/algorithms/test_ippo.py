import dataclasses
import math

import pytest
import torch
from torch import Tensor

from algorithms.ippo import IPPO
from harness.config import method
from harness.learner import Learner
from harness.types import Batch
from tests.support.episodes import NoisyEnv, networks, played, spec_of

SMALL = IPPO(hidden=8, num_envs=16, minibatches=4, epochs=2, lr=3e-3)
KINDS = pytest.mark.parametrize("kind", ["discrete", "continuous"])


def prepared(kind: str, algorithm: IPPO = SMALL) -> tuple[Learner, Batch]:
    learner = Learner(algorithm, networks(algorithm, spec_of(kind)))
    batch = played(algorithm, learner.net, NoisyEnv(kind, 16))
    with torch.no_grad():
        return learner, algorithm.advantages(learner.net, learner.target, batch, torch.Generator())


@KINDS
def test_the_ratio_is_1_on_the_first_minibatch_of_the_first_epoch_and_not_afterwards(kind: str) -> None:
    """With masked actions, recurrent memory, deaths, and episodes of different lengths."""
    seen: list[Tensor] = []

    class Watched(IPPO):
        def actor_loss(self, net, target, batch, rng):  # type: ignore[no-untyped-def]
            with torch.no_grad():
                ratio = (self.policy(net, batch).log_prob(batch.action) - batch.log_prob).exp()
            seen.append(ratio[batch.alive[:, :-1] & (batch.mask > 0)[..., None]])
            return super().actor_loss(net, target, batch, rng)

    algorithm = Watched(**dataclasses.asdict(SMALL))
    learner = Learner(algorithm, networks(algorithm, spec_of(kind)))
    batch = played(algorithm, learner.net, NoisyEnv(kind, 16))
    rng = torch.Generator().manual_seed(0)
    learner.update(batch, 0.0, rng, rng)
    assert len(seen) == 8
    torch.testing.assert_close(seen[0], torch.ones_like(seen[0]), rtol=0, atol=1e-5)
    assert all(float((ratio - 1).abs().max()) > 1e-4 for ratio in seen[1:])


@KINDS
def test_advantages_and_returns_by_hand(kind: str) -> None:
    """Each agent's own deltas, summed; normalised over the living; and the returns that the critic is fitted to."""
    learner, batch = prepared(kind)
    with torch.no_grad():
        value = SMALL.values(learner.net, batch).double()
    advantage = torch.zeros(batch.mask.shape[0], batch.mask.shape[1], 3, dtype=torch.float64)
    for b in range(len(batch.mask)):
        n = int(batch.mask[b].sum())
        for i in range(3):
            following = 0.0
            for t in reversed(range(n)):
                live = SMALL.gamma * (1 - float(batch.terminated[b, t]))
                delta = float(batch.reward[b, t]) + live * float(value[b, t + 1, i]) - float(value[b, t, i])
                following = delta + live * SMALL.gae_lambda * following
                advantage[b, t, i] = following
    acts = batch.alive[:, :-1] & (batch.mask > 0)[..., None]
    happened = (batch.mask > 0)[..., None].expand_as(acts)
    returns = (advantage + value[:, :-1])[happened]
    torch.testing.assert_close(batch.extra["return"][happened].double(), returns, rtol=1e-4, atol=1e-5)
    own = advantage[acts]
    expected = (own - own.mean()) / own.std(correction=0)
    torch.testing.assert_close(batch.extra["advantage"][acts].double(), expected, rtol=1e-3, atol=1e-4)


def test_the_clipped_objective_by_hand() -> None:
    learner, batch = prepared("discrete")
    moved = networks(SMALL, spec_of("discrete"), seed=3)  # another policy than the one that played
    with torch.no_grad():
        loss, metrics = SMALL.actor_loss(moved, learner.target, batch, torch.Generator())
        probs = SMALL.policy(moved, batch).probs.double()  # type: ignore[attr-defined]
    gains, entropies = [], []
    for b, t, i in (batch.alive[:, :-1] & (batch.mask > 0)[..., None]).nonzero().tolist():
        p = probs[b, t, i]
        ratio = float(p[batch.action[b, t, i]]) / math.exp(float(batch.log_prob[b, t, i]))
        a = float(batch.extra["advantage"][b, t, i])
        gains.append(min(ratio * a, min(max(ratio, 0.8), 1.2) * a))
        entropies.append(-sum(float(x) * math.log(float(x)) for x in p if x > 0))
    gain, entropy = sum(gains) / len(gains), sum(entropies) / len(entropies)
    assert float(metrics["entropy"]) == pytest.approx(entropy, rel=1e-4)
    assert float(loss) == pytest.approx(-gain - SMALL.entropy * entropy, rel=1e-4)


def test_a_dead_agents_choices_teach_nobody() -> None:
    """Its actions and their probabilities change neither the policy's loss nor its gradient where it acts no more."""
    learner, batch = prepared("discrete")
    dead = ~batch.alive[:, :-1]
    dead_for_good = dead & (batch.mask > 0)[..., None]
    assert dead_for_good.any()
    log_prob = batch.log_prob.clone()
    log_prob[dead_for_good] = -30.0
    changed = dataclasses.replace(batch, log_prob=log_prob)
    found = []
    for one in (batch, changed):
        loss, _ = SMALL.actor_loss(learner.net, learner.target, one, torch.Generator())
        found.append(torch.autograd.grad(loss, list(learner.net["actor"].parameters())))
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))


def test_the_critic_reads_the_agents_own_history_alone() -> None:
    learner, batch = prepared("discrete")
    obs, state = batch.obs.clone(), batch.state + 1.0
    obs[:, :, 0] += 1.0
    with torch.no_grad():
        before = SMALL.values(learner.net, batch)
        after = SMALL.values(learner.net, dataclasses.replace(batch, obs=obs, state=state))
    assert torch.equal(before[..., 1:], after[..., 1:])
    assert not torch.equal(before[..., 0], after[..., 0])


def test_the_published_defaults() -> None:
    d = IPPO()
    assert (d.hidden, d.lr, d.clip_ratio, d.epochs, d.gae_lambda) == (128, 3e-4, 0.2, 4, 0.95)
    smax = dataclasses.replace(d, **IPPO.presets["jaxmarl"])
    assert (smax.lr, smax.num_envs, smax.clip_ratio, smax.minibatches, smax.entropy, smax.clip) == (
        4e-3, 128, 0.05, 4, 0.01, 0.25,
    )  # fmt: skip
    assert smax.anneal


@pytest.mark.parametrize(("name", "updates"), [("ippo", 624), ("mappo", 624)])
def test_a_matrix_game_of_10_000_steps_gives_enough_updates_of_enough_episodes(name: str, updates: int) -> None:
    """QMIX has 624 there: 2 after each round of 32 episodes, most of which are one step."""
    taken = method(name, "matrix", "discrete")
    assert 10_000 // taken.num_envs * taken.epochs * taken.minibatches == updates
    assert taken.num_envs // taken.minibatches == 64


def test_on_smac_mappo_differs_from_ippo_in_its_critic_alone() -> None:
    ippo, mappo = (dataclasses.asdict(method(name, "smac", "discrete")) for name in ("ippo", "mappo"))
    assert ippo == mappo
    assert (ippo["lr"], ippo["num_envs"], ippo["epochs"], ippo["minibatches"]) == (2e-3, 64, 4, 4)
