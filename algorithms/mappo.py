"""MAPPO: proximal policy optimisation with a centralised value function."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.distributions import Distribution

from algorithms.parts.critics import StateValue
from algorithms.parts.policies import Actor, act_stochastic
from algorithms.parts.ppo import clipped_objective, normalised
from algorithms.parts.targets import acting, gae, masked_mean
from harness.algorithm import Count, Loss, Metrics, NonNegative, Positive, Share, Targets
from harness.networks import last_actions
from harness.types import Action, Batch, Spec, Step


@dataclass(frozen=True)
class MAPPO:
    """MAPPO (Yu et al. 2022, arXiv 2103.01955): PPO with one critic V(s) and value normalisation."""

    gamma: Share = 0.99
    """Discount."""
    gae_lambda: Share = 0.95
    """Lambda of the generalised advantage estimates."""
    lr: Positive = 5e-4
    """Learning rate of Adam."""
    anneal: bool = False
    """Learning rate falls linearly to 0 over the budget."""
    clip_ratio: Positive = 0.2
    """Half-width of the interval in which the ratio pays."""
    entropy: NonNegative = 0.01
    """Weight of the policy's entropy."""
    epochs: Count = 10
    """Passes over each round of episodes."""
    minibatches: Count = 1
    """Parts that a pass is split into, by episodes."""
    clip: Positive = 10.0
    """Largest norm of the gradient."""
    hidden: Count = 64
    """Width of the actor's and the critic's GRU."""
    num_envs: Count = 32
    """Environments in parallel; a round is one episode of each."""

    data: ClassVar[str] = "on_policy"
    actions: ClassVar[frozenset[str]] = frozenset({"discrete", "continuous"})
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "matrix": {"num_envs": 64, "epochs": 4, "lr": 2e-3},
        "vmas": {"num_envs": 64, "lr": 1e-3, "anneal": True},
        "smac": {
            "lr": 2e-3, "anneal": True, "num_envs": 64, "clip_ratio": 0.1, "clip": 1.0, "epochs": 4, "minibatches": 4,
        },
    }  # fmt: skip

    def networks(self, spec: Spec) -> nn.ModuleDict:
        return nn.ModuleDict({"actor": Actor(spec, self.hidden), "critic": StateValue(spec.state_dim, self.hidden)})

    def act(self, net: nn.ModuleDict, step: Step, memory: Any, env_steps: int, rng: torch.Generator | None) -> Action:
        return act_stochastic(net["actor"], step, memory, rng)

    def losses(self) -> tuple[Loss, ...]:
        def loss(name: str, **more: Any) -> Loss:
            return Loss(
                name, lr=self.lr, anneal=self.anneal, clip=self.clip, eps=1e-5, epochs=self.epochs,
                minibatches=self.minibatches, **more,
            )  # fmt: skip

        return (
            loss("actor", trains=("actor",), of=self.actor_loss, prepare=self.advantages),
            loss("critic", trains=("critic",), of=self.critic_loss),
        )

    def targets(self) -> Targets:
        return Targets()

    def advantages(self, net: nn.ModuleDict, target: nn.ModuleDict, batch: Batch, rng: torch.Generator) -> Batch:
        """Advantages of the team from V(s), normalised over steps; returns; the critic's scale follows the returns."""
        critic = net["critic"]
        value = critic.denormalise(critic(batch.state))
        advantage = gae(batch.reward, value, batch.terminated, batch.mask, self.gamma, self.gae_lambda)  # [B,T]
        returns = advantage + value[:, :-1]
        critic.observe(returns, batch.mask)
        return dataclasses.replace(batch, extra={"advantage": normalised(advantage, batch.mask), "return": returns})

    def actor_loss(
        self, net: nn.ModuleDict, target: nn.ModuleDict, batch: Batch, rng: torch.Generator
    ) -> tuple[Tensor, Metrics]:
        """PPO's clipped objective, negated, each agent's ratio with the team's advantage; less the weighted entropy."""
        gain, metrics = clipped_objective(
            self.policy(net, batch), batch, batch.extra["advantage"].unsqueeze(-1), self.clip_ratio, acting(batch)
        )
        return -gain - self.entropy * metrics["entropy"], metrics

    def critic_loss(
        self, net: nn.ModuleDict, target: nn.ModuleDict, batch: Batch, rng: torch.Generator
    ) -> tuple[Tensor, Metrics]:
        """The squared error of V(s) to the lambda return, both normalised."""
        critic = net["critic"]
        error = critic(batch.state)[:, :-1] - critic.normalise(batch.extra["return"])
        loss = masked_mean(error**2, batch.mask)
        return loss, {"loss": loss}

    # read by the diagnostics

    def policy(self, net: nn.ModuleDict, batch: Batch) -> Distribution:
        """pi(.|tau_i) at each of the T steps, [B,T,N]."""
        avail = None if batch.avail is None else batch.avail[:, :-1]
        pi: Distribution = net["actor"](batch.obs[:, :-1], last_actions(batch)[:, :-1], avail, lengths=batch.lengths)[0]
        return pi
