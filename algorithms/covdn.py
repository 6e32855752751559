"""COVDN: additive value decomposition for continuous actions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from algorithms.parts.cem import RecurrentUtility
from algorithms.parts.continuous import act_by_cem, encode_history, maximising
from algorithms.parts.mixers import SumMixer
from algorithms.parts.targets import lambda_return, masked_mean
from harness.algorithm import Count, Loss, Metrics, NonNegative, Positive, Share, Targets
from harness.types import Action, Batch, Continuous, Spec, Step


@dataclass(frozen=True)
class COVDN:
    """COVDN (de Witt et al. 2020, arXiv 2003.06709v1): VDN for continuous actions, with CEM in place of the argmax."""

    gamma: Share = 0.85
    """Discount."""
    td_lambda: Share = 0.0
    """Lambda of the TD(lambda) target; 0 is one step."""
    lr: Positive = 1e-2
    """Learning rate of Adam."""
    adam_eps: Positive = 1e-2
    """Adam's epsilon."""
    clip: Positive = 0.5
    """Largest norm of the gradient."""
    hidden: Count = 64
    """Width of the agents' GRU."""
    samples: Count = 64
    """Actions that CEM draws an iteration."""
    cem_elites: Count = 6
    """Actions that its next Gaussian is fitted to."""
    iterations: Count = 2
    """Iterations of CEM."""
    noise: NonNegative = 0.1
    """Standard deviation of the Gaussian noise on actions, in half-widths of the box."""
    tau: Positive = 1e-3
    """Soft step of the target networks after every update."""
    buffer_episodes: Count = 5_000
    """Episodes that the replay holds."""
    batch_episodes: Count = 32
    """Episodes in a gradient update."""
    num_envs: Count = 1
    """Environments in parallel."""
    updates_per_collect: Count = 1
    """Gradient updates after each round of ``num_envs`` episodes."""

    data: ClassVar[str] = "replay"
    actions: ClassVar[frozenset[str]] = frozenset({"continuous"})
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {}

    def __post_init__(self) -> None:
        """CEM's elites are some of its samples."""
        if self.cem_elites > self.samples:
            raise ValueError(f"cem_elites={self.cem_elites} are more than the samples={self.samples}")

    def networks(self, spec: Spec) -> nn.ModuleDict:
        assert isinstance(spec.action, Continuous)
        return nn.ModuleDict(
            {
                "agent": RecurrentUtility(spec, self.hidden),
                "mixer": SumMixer(),
            }
        )

    def act(self, net: nn.ModuleDict, step: Step, memory: Any, env_steps: int, rng: torch.Generator | None) -> Action:
        """Each agent alone: the maximum of its Q_i found by CEM, plus Gaussian noise."""
        return act_by_cem(net["agent"], step, memory, self.noise, rng, self._cem())

    def losses(self) -> tuple[Loss, ...]:
        return (Loss("td", trains=("agent", "mixer"), of=self.td, lr=self.lr, clip=self.clip, eps=self.adam_eps),)

    def targets(self) -> Targets:
        return Targets(("agent", "mixer"), tau=self.tau)

    def td(
        self, net: nn.ModuleDict, target: nn.ModuleDict, batch: Batch, rng: torch.Generator
    ) -> tuple[Tensor, Metrics]:
        """The squared error of Q_tot(tau, u, s) to r + gamma Q^-_tot(tau', u', s'), u' greedy by CEM."""
        agent, encoded = net["agent"], encode_history(net["agent"], batch)
        q_tot = net["mixer"](agent.value(encoded[:, :-1], batch.action), batch.state[:, :-1])
        with torch.no_grad():
            best = maximising(agent, encoded.detach(), rng, self._cem())
            q_next = target["agent"].value(encode_history(target["agent"], batch), best)
            value = target["mixer"](q_next, batch.state)
            y = lambda_return(batch.reward, value, batch.terminated, batch.mask, self.gamma, self.td_lambda)
        loss = masked_mean((q_tot - y) ** 2, batch.mask)
        return loss, {"loss": loss, "q_tot": masked_mean(q_tot, batch.mask), "target": masked_mean(y, batch.mask)}

    def _cem(self) -> dict[str, int]:
        return {"samples": self.samples, "elites": self.cem_elites, "iterations": self.iterations}

    # read by the diagnostics

    def utilities(self, net: nn.ModuleDict, batch: Batch, action: Tensor) -> Tensor:
        """Q_i of ``action`` [B,T,(M,)N,U]: [B,T,(M,)N]."""
        encoded = encode_history(net["agent"], batch)[:, :-1]
        q: Tensor = net["agent"].value(encoded if action.dim() == 4 else encoded.unsqueeze(2), action)
        return q

    def joint_value(self, net: nn.ModuleDict, batch: Batch, action: Tensor) -> Tensor:
        """Q_tot of ``action`` [B,T,(M,)N,U]: [B,T,(M)]."""
        q, state, mixer = self.utilities(net, batch, action), batch.state[:, :-1], net["mixer"]
        value: Tensor = mixer(q, state) if action.dim() == 4 else mixer.mix(q, mixer.weights(state))
        return value
