"""Training without a trial around it: games so simple that a method which learns at all learns them in seconds."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from harness import evaluate
from harness.algorithm import Algorithm
from harness.learner import Learner
from harness.replay import Replay, split
from harness.types import Batch, Continuous, Discrete, Spec, Step
from suites.matrix import Matrix
from tests.support.episodes import CPU, networks, played

FAST = {
    "hidden": 16, "critic_hidden": 32, "embed": 8, "hyper": 16, "num_envs": 16, "buffer_episodes": 400,
    "batch_episodes": 32, "updates_per_collect": 2, "minibatches": 1, "epochs": 4, "epsilon_steps": 1_500,
    "target_episodes": 64, "lr": 5e-3, "lr_actor": 5e-3, "lr_critic": 5e-3, "gamma": 0.9, "anneal": False, "tau": 0.05,
}  # fmt: skip


class Aim:
    """Two steps; at each both agents see a sign, and are paid for how near they come to what it asks.

    Discrete, A=4: 1/2 for each agent that plays 1 at the sign -1 and 2 at the sign +1; action 3 is illegal for agent 0.
    Continuous, U=1 in [-2,2]: 1/2 for each, less its distance from the sign. The most that a whole
    episode pays is 2; random play is worth far less.
    """

    def __init__(self, kind: str, num_envs: int) -> None:
        action = Discrete(4) if kind == "discrete" else Continuous(-2.0, 2.0, 1)
        self.spec, self.num_envs, self.rng = Spec(2, 1, 1, 2, action), num_envs, torch.Generator()

    def reset(self, seed: int) -> Step:
        self.rng.manual_seed(seed)
        self.t = 0
        return self._step(torch.zeros(self.num_envs))

    def step(self, action: Tensor) -> Step:
        self.t += 1
        if isinstance(self.spec.action, Discrete):
            reward = (action == torch.where(self.sign > 0, 2, 1)[:, None]).float().mean(-1)
        else:
            reward = 1 - (action.squeeze(-1) - self.sign[:, None]).abs().mean(-1)
        return self._step(reward)

    def _step(self, reward: Tensor) -> Step:
        e = self.num_envs
        self.sign = 2.0 * torch.randint(2, (e,), generator=self.rng) - 1
        avail = None
        if isinstance(self.spec.action, Discrete):
            avail = torch.ones(e, 2, 4, dtype=torch.bool)
            avail[:, 0, 3] = False
        over, never = torch.full((e,), self.t == 2), torch.zeros(e, dtype=torch.bool)
        obs = self.sign[:, None, None].expand(e, 2, 1)
        return Step(obs, self.sign[:, None], avail, torch.ones(e, 2, dtype=torch.bool), reward, over, never, {})

    def close(self) -> None:
        pass


def train(algorithm: Algorithm, env: Any, rounds: int, seed: int = 0) -> Learner:
    """As a trial trains, without its records."""
    learner = Learner(algorithm, networks(algorithm, env.spec, seed))
    fields: Any = algorithm
    replay = Replay(env.spec, fields.buffer_episodes, CPU) if algorithm.data == "replay" else None
    rng, order, steps = torch.Generator().manual_seed(seed), torch.Generator().manual_seed(seed), 0
    for k in range(rounds):
        batch = played(algorithm, learner.net, env, seed=1_000 * seed + k, env_steps=steps)
        steps += int(batch.mask.sum())
        if replay is None:
            learner.update(batch, k / rounds, rng, order)
        else:
            replay.add(batch)
            for _ in range(fields.updates_per_collect if len(replay) >= fields.batch_episodes else 0):
                learner.update(replay.sample(fields.batch_episodes, order), k / rounds, rng, order)
        learner.count(env.num_envs)
    return learner


def greedy_return(algorithm: Algorithm, net: nn.ModuleDict, env: Any, count: int = 64) -> float:
    """Mean return of greedy episodes that were not trained on."""
    found = evaluate.run(env, algorithm, net, 10**9, count, lambda k: 10**9 + k)["return"]
    return sum(found) / len(found)


def payoff_batch(task: str) -> tuple[Batch, Tensor]:
    """Every joint action of a one-shot game of suite ``matrix`` once, one episode each; and what each pays, [B]."""
    suite = Matrix()
    spec, payoff = suite.spec(task), suite.payoff(task)[0]
    joint = torch.cartesian_prod(*(torch.arange(n) for n in payoff.shape))
    count, n = joint.shape
    ones = torch.ones(count, 1)
    batch = Batch(
        torch.ones(count, 2, n, spec.obs_dim), torch.ones(count, 2, spec.state_dim),
        torch.ones(count, 2, n, spec.action.dim, dtype=torch.bool), torch.ones(count, 2, n, dtype=torch.bool),
        joint[:, None], torch.full((count, 1, n), -1.0986123), payoff.flatten()[:, None], ones, ones,
    )  # fmt: skip
    return batch, payoff.flatten()


def fit(algorithm: Algorithm, task: str, updates: int, seed: int = 0) -> tuple[Learner, float]:
    """Train on the whole payoff table at each update; the learner and the largest error of its Q_tot."""
    batch, payoff = payoff_batch(task)
    learner = Learner(algorithm, networks(algorithm, Matrix().spec(task), seed))
    rng = torch.Generator().manual_seed(seed)
    for k in range(updates):
        for optimiser, loss in zip(learner.optimisers, learner.losses, strict=True):
            optimiser.param_groups[0]["lr"] = loss.lr * (1 - k / updates)
        learner.update(split(batch, 1, rng)[0], k / updates, rng, rng)
    with torch.no_grad():
        value = algorithm.joint_value(learner.net, batch, batch.action)[:, 0]  # type: ignore[attr-defined]
    return learner, float((value - payoff).abs().max())
