"""Hysteretic Q-learning, as a package of its own: nothing of the harness is changed or copied."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from algorithms.parts.policies import linear
from algorithms.parts.targets import masked_mean
from algorithms.parts.values import act_epsilon_greedy, all_utilities, chosen, double_q
from harness.algorithm import Count, Loss, Metrics, Natural, Positive, Share, Targets
from harness.networks import RecurrentAgent
from harness.types import Action, Batch, Spec, Step


@dataclass(frozen=True)
class Hysteretic:
    """Hysteretic Q-learning (Matignon et al. 2007; recurrent and deep: Omidshafiei et al. 2017)."""

    gamma: Share = 0.99
    """Discount."""
    beta: Share = 0.2
    """Share of the learning rate that negative TD errors get: 1 is independent Q-learning, 0 the optimist's."""
    lr: Positive = 5e-4
    """Learning rate of Adam."""
    hidden: Count = 64
    """Width of the agents' GRU."""
    epsilon_steps: Natural = 50_000
    """Environment steps over which exploration falls from 1 to 0.05."""
    target_episodes: Count = 200
    """Episodes between hard copies into the target network."""
    buffer_episodes: Count = 5_000
    """Episodes that the replay holds."""
    batch_episodes: Count = 32
    """Episodes in a gradient update."""
    num_envs: Count = 8
    """Environments in parallel."""
    updates_per_collect: Count = 8
    """Gradient updates after each round of ``num_envs`` episodes."""

    data: ClassVar[str] = "replay"
    actions: ClassVar[frozenset[str]] = frozenset({"discrete"})
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {}

    def networks(self, spec: Spec) -> nn.ModuleDict:
        return nn.ModuleDict({"agent": RecurrentAgent(spec, spec.action.dim, self.hidden)})

    def act(self, net: nn.ModuleDict, step: Step, memory: Any, env_steps: int, rng: torch.Generator | None) -> Action:
        return act_epsilon_greedy(net, step, memory, linear(1.0, 0.05, self.epsilon_steps, env_steps), rng)

    def losses(self) -> tuple[Loss, ...]:
        return (Loss("td", trains=("agent",), of=self.td, lr=self.lr),)

    def targets(self) -> Targets:
        return Targets(("agent",), every_episodes=self.target_episodes)

    def td(
        self, net: nn.ModuleDict, target: nn.ModuleDict, batch: Batch, rng: torch.Generator
    ) -> tuple[Tensor, Metrics]:
        """delta_i = r + gamma (1-d) Q^-_i(tau_i', argmax Q_i(tau_i', .)) - Q_i(tau_i, u_i), by beta where < 0."""
        q = all_utilities(net, batch)  # [B,T+1,N,A]
        with torch.no_grad():
            value = double_q(q, all_utilities(target, batch), batch.avail)[:, 1:]  # [B,T,N]
            y = batch.reward.unsqueeze(-1) + self.gamma * (1 - batch.terminated).unsqueeze(-1) * value
        delta = y - chosen(q[:, :-1], batch.action)
        weight = torch.where(delta < 0, self.beta, 1.0)
        happened = batch.mask.unsqueeze(-1).expand_as(delta)
        loss = masked_mean(weight * delta**2, happened)
        return loss, {"loss": loss, "negative": masked_mean((delta < 0).float(), happened)}
