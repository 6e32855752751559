"""IPPO: independent proximal policy optimisation."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.distributions import Distribution

from algorithms.parts.policies import Actor, act_stochastic
from algorithms.parts.ppo import clipped_objective, normalised
from algorithms.parts.targets import acting, gae, masked_mean
from harness.algorithm import Count, Loss, Metrics, NonNegative, Positive, Share, Targets
from harness.networks import RecurrentAgent, last_actions
from harness.types import Action, Batch, Spec, Step


@dataclass(frozen=True)
class IPPO:
    """IPPO (de Witt et al. 2020, arXiv 2011.09533): PPO with local critics. Equations: Schulman et al. 2017."""

    gamma: Share = 0.99
    """Discount."""
    gae_lambda: Share = 0.95
    """Lambda of the generalised advantage estimates."""
    lr: Positive = 3e-4
    """Learning rate of Adam."""
    anneal: bool = True
    """Learning rate falls linearly to 0 over the budget."""
    clip_ratio: Positive = 0.2
    """Half-width of the interval in which the ratio pays."""
    entropy: NonNegative = 0.01
    """Weight of the policy's entropy, c2 in eq. 9."""
    epochs: Count = 4
    """Passes over each round of episodes."""
    minibatches: Count = 4
    """Parts that a pass is split into, by episodes."""
    clip: Positive = 10.0
    """Largest norm of the gradient."""
    hidden: Count = 128
    """Width of the actor's and the critic's GRU."""
    num_envs: Count = 32
    """Environments in parallel; a round is one episode of each."""

    data: ClassVar[str] = "on_policy"
    actions: ClassVar[frozenset[str]] = frozenset({"discrete", "continuous"})
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "matrix": {"num_envs": 64, "minibatches": 1, "lr": 1.2e-3},
        "vmas": {"num_envs": 64, "epochs": 8, "lr": 1e-3},
        "smac": {"lr": 2e-3, "num_envs": 64, "clip_ratio": 0.1, "clip": 1.0, "hidden": 64},
        "jaxmarl": {"lr": 4e-3, "num_envs": 128, "clip_ratio": 0.05, "clip": 0.25},
    }

    def networks(self, spec: Spec) -> nn.ModuleDict:
        return nn.ModuleDict(
            {
                "actor": Actor(spec, self.hidden),
                "critic": RecurrentAgent(spec, 1, self.hidden),
            }
        )

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

    def values(self, net: nn.ModuleDict, batch: Batch) -> Tensor:
        """V(tau_i), [B,T+1,N]."""
        value: Tensor = net["critic"](batch.obs, last_actions(batch), lengths=batch.lengths)[0].squeeze(-1)
        return value

    def advantages(self, net: nn.ModuleDict, target: nn.ModuleDict, batch: Batch, rng: torch.Generator) -> Batch:
        """Eq. 11: every agent's advantages from the team's reward, normalised over steps and living agents; returns."""
        value = self.values(net, batch)
        advantage = gae(batch.reward, value, batch.terminated, batch.mask, self.gamma, self.gae_lambda)  # [B,T,N]
        extra = {"advantage": normalised(advantage, acting(batch)), "return": advantage + value[:, :-1]}
        return dataclasses.replace(batch, extra=extra)

    def actor_loss(
        self, net: nn.ModuleDict, target: nn.ModuleDict, batch: Batch, rng: torch.Generator
    ) -> tuple[Tensor, Metrics]:
        """Eq. 7, negated, with each agent's own ratio; less c2 times the entropy (eq. 9)."""
        gain, metrics = clipped_objective(
            self.policy(net, batch), batch, batch.extra["advantage"], self.clip_ratio, acting(batch)
        )
        return -gain - self.entropy * metrics["entropy"], metrics

    def critic_loss(
        self, net: nn.ModuleDict, target: nn.ModuleDict, batch: Batch, rng: torch.Generator
    ) -> tuple[Tensor, Metrics]:
        """The squared error of V(tau_i) to the lambda return (Schulman et al. 2017, L_VF of eq. 9).

        Of the dead too: the team goes on earning, and the value of the living is bootstrapped from theirs.
        """
        value = self.values(net, batch)[:, :-1]
        happened = batch.mask.unsqueeze(-1).expand_as(value)
        loss = masked_mean((value - batch.extra["return"]) ** 2, happened)
        return loss, {"loss": loss}

    # read by the diagnostics

    def policy(self, net: nn.ModuleDict, batch: Batch) -> Distribution:
        """pi(.|tau_i) at each of the T steps, [B,T,N]."""
        avail = None if batch.avail is None else batch.avail[:, :-1]
        pi: Distribution = net["actor"](batch.obs[:, :-1], last_actions(batch)[:, :-1], avail, lengths=batch.lengths)[0]
        return pi
