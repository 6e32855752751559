"""VDN: value decomposition networks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.distributions import Categorical

from algorithms.parts.policies import categorical, linear
from algorithms.parts.targets import lambda_return, masked_mean
from algorithms.parts.values import act_epsilon_greedy, all_utilities, candidate_utilities, chosen, double_q
from harness.algorithm import Count, Loss, Metrics, Natural, Positive, Share, Targets
from harness.networks import RecurrentAgent
from harness.types import Action, Batch, Spec, Step


@dataclass(frozen=True)
class VDN:
    """VDN (Sunehag et al. 2018, arXiv 1706.05296): Q_tot is the sum of the agents' utilities."""

    gamma: Share = 0.99
    """Discount."""
    td_lambda: Share = 0.0
    """Lambda of the TD(lambda) target; 0 is the paper's one-step target."""
    lr: Positive = 5e-4
    """Learning rate of Adam."""
    anneal: bool = False
    """Learning rate falls linearly to 0 over the budget."""
    clip: Positive = 10.0
    """Largest norm of the gradient."""
    hidden: Count = 64
    """Width of the agents' GRU."""
    epsilon_start: Share = 1.0
    """Exploration at the first step."""
    epsilon_end: Share = 0.05
    """Exploration after ``epsilon_steps``."""
    epsilon_steps: Natural = 50_000
    """Environment steps over which epsilon falls."""
    target_episodes: Count = 200
    """Episodes between hard copies into the target network."""
    buffer_episodes: Count = 5_000
    """Episodes that the replay holds."""
    batch_episodes: Count = 32
    """Episodes in a gradient update."""
    num_envs: Count = 8
    """Environments in parallel."""
    updates_per_collect: Count = 8
    """Gradient updates after each round of ``num_envs`` episodes; the default is one an episode, as published."""

    data: ClassVar[str] = "replay"
    actions: ClassVar[frozenset[str]] = frozenset({"discrete"})
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "matrix": {"num_envs": 32, "updates_per_collect": 2, "lr": 2e-3, "epsilon_steps": 5_000},
        "lbf": {"gamma": 0.95, "lr": 1e-3, "td_lambda": 0.6, "epsilon_steps": 100_000, "target_episodes": 50},
        "smac": {
            "lr": 1e-3,
            "anneal": True,
            "td_lambda": 0.6,
            "epsilon_end": 0.02,
            "hidden": 128,
            "num_envs": 32,
        },
        "pymarl2": {
            "lr": 1e-3,
            "td_lambda": 0.6,
            "batch_episodes": 128,
            "epsilon_steps": 100_000,
            "updates_per_collect": 1,
        },
    }

    def networks(self, spec: Spec) -> nn.ModuleDict:
        return nn.ModuleDict({"agent": RecurrentAgent(spec, spec.action.dim, self.hidden)})

    def act(self, net: nn.ModuleDict, step: Step, memory: Any, env_steps: int, rng: torch.Generator | None) -> Action:
        epsilon = linear(self.epsilon_start, self.epsilon_end, self.epsilon_steps, env_steps)
        return act_epsilon_greedy(net, step, memory, epsilon, rng)

    def losses(self) -> tuple[Loss, ...]:
        return (Loss("td", trains=("agent",), of=self.td, lr=self.lr, anneal=self.anneal, clip=self.clip),)

    def targets(self) -> Targets:
        return Targets(("agent",), every_episodes=self.target_episodes)

    def td(
        self, net: nn.ModuleDict, target: nn.ModuleDict, batch: Batch, rng: torch.Generator
    ) -> tuple[Tensor, Metrics]:
        """The squared error of sum_i Q_i(tau_i, u_i) to r + gamma sum_i Q^-_i(tau_i', argmax Q_i(tau_i', .))."""
        q = all_utilities(net, batch)
        q_tot = chosen(q[:, :-1], batch.action).sum(-1)
        with torch.no_grad():
            value = double_q(q, all_utilities(target, batch), batch.avail).sum(-1)
            y = lambda_return(batch.reward, value, batch.terminated, batch.mask, self.gamma, self.td_lambda)
        loss = masked_mean((q_tot - y) ** 2, batch.mask)
        return loss, {"loss": loss, "q_tot": masked_mean(q_tot, batch.mask), "target": masked_mean(y, batch.mask)}

    # read by the diagnostics

    def policy(self, net: nn.ModuleDict, batch: Batch) -> Categorical:
        """Softmax of the utilities over legal actions, temperature 1, [B,T,N]: a smooth stand-in for greedy."""
        avail = None if batch.avail is None else batch.avail[:, :-1]
        return categorical(all_utilities(net, batch)[:, :-1], avail)

    def utilities(self, net: nn.ModuleDict, batch: Batch, action: Tensor) -> Tensor:
        """Q_i of ``action`` [B,T,(M,)N], same shape."""
        return candidate_utilities(all_utilities(net, batch), action)

    def joint_value(self, net: nn.ModuleDict, batch: Batch, action: Tensor) -> Tensor:
        """Q_tot of ``action`` [B,T,(M,)N]: [B,T,(M)]."""
        return self.utilities(net, batch, action).sum(-1)
