"""MCEM-NCD: the multi-agent cross-entropy method with monotonic nonlinear critic decomposition."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.distributions import Distribution

from algorithms.parts.critics import ActionsIn, ActionsOut, blocks, encode
from algorithms.parts.mixers import MixerKind, mixer
from algorithms.parts.policies import Actor, act_stochastic, candidates, linear, unclipped
from algorithms.parts.targets import acting, masked_mean, retrace
from harness.algorithm import Count, Loss, Metrics, Natural, NonNegative, Positive, Share, Targets
from harness.networks import last_actions
from harness.types import Action, Batch, Spec, Step


@dataclass(frozen=True)
class MCEM:
    """MCEM-NCD (Wang, Deng, Ren 2025, arXiv 2511.18671): policies follow the elites of a decomposed critic."""

    gamma: Share = 0.99
    """Discount."""
    mixer: MixerKind = "monotonic"
    """How Q_tot is made of the Q_i: "monotonic" (the paper), "linear" (a sum) or "unconstrained" (no |w|)."""
    candidates: Count = 10
    """M, joint actions drawn a step."""
    rho: Share = 0.1
    """Share of the candidates that are elites: the top ceil(rho M)."""
    elites: Natural = 0
    """Number of elites; 0 means that ``rho`` says it."""
    entropy: NonNegative = 0.1
    """alpha, the weight of the proposal's entropy, which is normalised by its own value."""
    retrace_lambda: Share = 1.0
    """lambda of the trace."""
    trace_floor: Share = 0.5
    """Least importance ratio in the trace; the paper's Retrace has 0, the authors' code 0.5."""
    lr_actor: Positive = 1.5e-3
    """Learning rate of policy and proposal (Adam)."""
    lr_critic: Positive = 5e-4
    """Learning rate of the critic and its mixer (Adam)."""
    adam_eps: Positive = 1e-8
    """Adam's epsilon."""
    clip: Positive = 10.0
    """Largest norm of each gradient."""
    hidden: Count = 64
    """Width of the GRUs of policy and proposal."""
    critic_hidden: Count = 256
    """Width of the critic's two hidden layers."""
    embed: Count = 32
    """Width of the mixing network."""
    hyper: Count = 64
    """Hidden width of the hypernetworks."""
    epsilon_start: Share = 0.5
    """Share of uniform play in the behaviour policy at the first step."""
    epsilon_end: Share = 0.0
    """The same after ``epsilon_steps``."""
    epsilon_steps: Natural = 100_000
    """Environment steps over which it falls."""
    noise: NonNegative = 0.0
    """Standard deviation of Gaussian noise added to the behaviour policy's own, in half-widths of the box (continuous
    actions)."""
    target_episodes: Count = 200
    """Episodes between hard copies into the target networks, where ``tau`` is 0."""
    tau: Share = 0.0
    """Soft step of the target networks after every update; 0 means hard copies."""
    buffer_episodes: Count = 5_000
    """Episodes that the replay holds."""
    batch_episodes: Count = 32
    """Episodes in a gradient update."""
    num_envs: Count = 1
    """Environments in parallel."""
    updates_per_collect: Count = 1
    """Gradient updates after each round of ``num_envs`` episodes."""

    data: ClassVar[str] = "replay"
    actions: ClassVar[frozenset[str]] = frozenset({"discrete", "continuous"})
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "smac": {"num_envs": 32, "updates_per_collect": 8, "batch_episodes": 64},
        "matrix": {
            "num_envs": 32, "updates_per_collect": 2, "lr_actor": 6e-3, "lr_critic": 5e-3, "epsilon_steps": 5_000,
        },
        "matrix-continuous": {"num_envs": 16, "updates_per_collect": 4, "lr_actor": 1e-2, "lr_critic": 1e-2},
        "continuous": {
            "gamma": 0.85, "candidates": 20, "lr_actor": 1e-2, "lr_critic": 1e-2, "adam_eps": 1e-2, "clip": 0.5,
            "critic_hidden": 64, "embed": 128, "hyper": 128, "tau": 5e-4, "epsilon_start": 0.0,
        },
        "predator_prey": {
            "gamma": 0.9, "entropy": 0.3, "lr_actor": 1e-3, "lr_critic": 3e-3, "adam_eps": 1e-8, "clip": 10.0,
            "critic_hidden": 128, "tau": 1e-2, "num_envs": 32, "updates_per_collect": 8, "batch_episodes": 128,
        },
        "mpe": {
            "num_envs": 32, "updates_per_collect": 16, "batch_episodes": 64, "lr_actor": 5e-4, "lr_critic": 1e-3,
            "tau": 1e-2, "epsilon_steps": 50_000,
        },
        "mamujoco": {
            "gamma": 0.99, "noise": 0.3, "lr_actor": 1e-3, "lr_critic": 1e-3, "adam_eps": 1e-8, "clip": 10.0,
            "critic_hidden": 128, "tau": 1e-2, "num_envs": 8, "updates_per_collect": 8,
        },
    }  # fmt: skip

    def __post_init__(self) -> None:
        """Elites are some of the candidates, and at least one."""
        if not 1 <= self._elites() <= self.candidates:
            asked = f"elites={self.elites}" if self.elites else f"rho={self.rho:g}"
            raise ValueError(f"{asked} makes {self._elites()} elites of {self.candidates} candidates")

    def networks(self, spec: Spec) -> nn.ModuleDict:
        discrete = spec.action.kind == "discrete"
        return nn.ModuleDict(
            {
                "actor": Actor(spec, self.hidden),
                "proposal": Actor(spec, self.hidden),
                "critic": (ActionsOut if discrete else ActionsIn)(spec, self.critic_hidden),
                "mixer": mixer(self.mixer, spec.n_agents, spec.state_dim, self.embed, self.hyper),
            }
        )

    def act(self, net: nn.ModuleDict, step: Step, memory: Any, env_steps: int, rng: torch.Generator | None) -> Action:
        """A sample of pi^i (with ``noise`` where continuous), mixed with uniform play over legal actions or the box."""
        epsilon = linear(self.epsilon_start, self.epsilon_end, self.epsilon_steps, env_steps)
        return act_stochastic(net["actor"], step, memory, rng, epsilon, self.noise)

    def losses(self) -> tuple[Loss, ...]:
        critic = Loss("critic", ("critic", "mixer"), self.critic_loss, self.lr_critic, self.clip, self.adam_eps)
        actor = Loss(
            "policy", ("actor",), self.policy_loss, self.lr_actor, self.clip, self.adam_eps, prepare=self.select
        )
        proposal = Loss("proposal", ("proposal",), self.proposal_loss, self.lr_actor, self.clip, self.adam_eps)
        return critic, actor, proposal

    def targets(self) -> Targets:
        names = ("actor", "critic", "mixer")
        return Targets(names, tau=self.tau) if self.tau else Targets(names, every_episodes=self.target_episodes)

    def critic_loss(
        self, net: nn.ModuleDict, target: nn.ModuleDict, batch: Batch, rng: torch.Generator
    ) -> tuple[Tensor, Metrics]:
        """The squared error of Q_tot(s_t, u_t) to the Sarsa target with Retrace, from target networks:

        y_t = r_t + gamma (1-d_t) [ V_{t+1} + c_{t+1} (y_{t+1} - Q^-_tot(s_{t+1}, u_{t+1})) ],   V_t = Q^-_tot(s_t,
        u'_t), u' ~ pi^-,   c_t = lambda min(1, max(floor, prod_i pi^-i(u^i_t) / beta^i(u^i_t))).
        """
        with torch.no_grad():
            pi = self._pi(target["actor"], batch)  # [B,T+1,N]
            drawn = candidates(pi, 1, rng).squeeze(2)
            encoded, weights = encode(target["critic"], batch), target["mixer"].weights(batch.state)
            v = target["mixer"].mix(target["critic"].value(encoded, drawn).unsqueeze(-2), weights).squeeze(-1)
            q = target["mixer"](target["critic"].value(encoded[:, :-1], batch.action), batch.state[:, :-1])
            log_ratio = (self._log_prob(pi, batch.action) - batch.log_prob).sum(-1)
            ratio = log_ratio.clamp(max=20.0).exp()
            trace = self.retrace_lambda * ratio.clamp(self.trace_floor, 1.0)
            y = retrace(batch.reward, v, q, trace, batch.terminated, batch.mask, self.gamma)
            clipped = ((ratio < self.trace_floor) | (ratio > 1)).to(ratio.dtype)
        q_tot = net["mixer"](
            net["critic"].value(encode(net["critic"], _steps(batch)), batch.action),
            batch.state[:, :-1],
        )
        loss = masked_mean((q_tot - y) ** 2, batch.mask)
        means = {"q_tot": q_tot, "target": y, "ratio": ratio, "ratio_clipped": clipped}
        return loss, {"loss": loss} | {k: masked_mean(x.detach(), batch.mask) for k, x in means.items()}

    def select(self, net: nn.ModuleDict, target: nn.ModuleDict, batch: Batch, rng: torch.Generator) -> Batch:
        """M joint actions u_m ~ prod_i proposal^i a step; the elites are the best by the critic just updated.

        No gradient flows through the candidates' values. The hypernetwork is evaluated once a step for all of them.
        """
        steps = _steps(batch)
        drawn = candidates(self._pi(net["proposal"], steps), self.candidates, rng)  # [B,T,M,N,(U)]
        q_tot = self._q_tot(net, steps, drawn)  # [B,T,M]
        top, index = q_tot.topk(self._elites(), dim=-1)
        index = index.reshape(index.shape + (1,) * (drawn.dim() - 3)).expand(-1, -1, -1, *drawn.shape[3:])
        gap = top.mean(-1) - q_tot.mean(-1)
        return dataclasses.replace(batch, extra={"elite": drawn.gather(2, index), "gap": gap})

    def policy_loss(
        self, net: nn.ModuleDict, target: nn.ModuleDict, batch: Batch, rng: torch.Generator
    ) -> tuple[Tensor, Metrics]:
        """- mean over elites of sum_i log pi^i(u^i)."""
        pi = unclipped(self._pi(net["actor"], _steps(batch)))
        loss = -self._elite_likelihood(pi, batch)
        gap, entropy = masked_mean(batch.extra["gap"], batch.mask), masked_mean(pi.entropy(), acting(batch))
        return loss, {"loss": loss, "elite_gap": gap, "entropy": entropy}

    def proposal_loss(
        self, net: nn.ModuleDict, target: nn.ModuleDict, batch: Batch, rng: torch.Generator
    ) -> tuple[Tensor, Metrics]:
        """- mean over elites of sum_i log proposal^i(u^i) - alpha H(proposal) / |H(proposal)|."""
        proposal = unclipped(self._pi(net["proposal"], _steps(batch)))
        entropy = masked_mean(proposal.entropy(), acting(batch))
        loss = -self._elite_likelihood(proposal, batch)
        total = loss - self.entropy * entropy / entropy.detach().abs().clamp(min=1e-3)
        return total, {"loss": loss, "entropy": entropy}

    # -- parts ----------------------------------------------------------------------------------------------------

    def _elites(self) -> int:
        """K, elites among the candidates of a step."""
        return self.elites or math.ceil(self.rho * self.candidates - 1e-9)  # .07 * 100 is a little over 7

    @staticmethod
    def _pi(actor: nn.Module, batch: Batch) -> Distribution:
        before = last_actions(batch)[:, : batch.obs.shape[1]]
        pi: Distribution = actor(batch.obs, before, batch.avail, lengths=batch.lengths)[0]
        return pi

    @staticmethod
    def _log_prob(pi: Distribution, action: Tensor) -> Tensor:
        """log pi of ``action`` [B,T,N,...] under policies of T+1 moments: [B,T,N]."""
        return pi.log_prob(torch.cat([action, action[:, -1:]], 1))[:, :-1]

    @staticmethod
    def _elite_likelihood(pi: Distribution, batch: Batch) -> Tensor:
        """Mean over steps and elites of sum_i log pi^i(u^i); agents that are dead have nothing to choose."""
        elite = batch.extra["elite"]  # [B,T,K,N,...]
        log_prob = torch.stack([pi.log_prob(elite[:, :, k]) for k in range(elite.shape[2])], 2)
        alive = batch.alive[:, :-1].unsqueeze(2)
        total = torch.where(alive, log_prob, torch.zeros_like(log_prob)).sum(-1).mean(-1)
        return masked_mean(total, batch.mask)

    @staticmethod
    def _q_tot(net: nn.ModuleDict, batch: Batch, action: Tensor) -> Tensor:
        """Q_tot [B,T,M] of ``action`` [B,T,M,N,(U)] at the moments of ``batch``."""
        critic, mixer = net["critic"], net["mixer"]
        encoded, weights = encode(critic, batch), mixer.weights(batch.state)
        parts = blocks(action, action.shape[1:4].numel())
        return torch.cat([mixer.mix(critic.value(encoded[b], action[b]), weights and weights.part(b)) for b in parts])

    # -- read by the diagnostics ----------------------------------------------------------------------------------

    def policy(self, net: nn.ModuleDict, batch: Batch) -> Distribution:
        """pi(.|tau_i) at each of the T steps, [B,T,N]."""
        return self._pi(net["actor"], _steps(batch))

    def utilities(self, net: nn.ModuleDict, batch: Batch, action: Tensor) -> Tensor:
        """Q_i of ``action`` [B,T,(M,)N,(U)]: [B,T,(M,)N]."""
        q: Tensor = net["critic"].value(encode(net["critic"], _steps(batch)), action)
        return q

    def joint_value(self, net: nn.ModuleDict, batch: Batch, action: Tensor) -> Tensor:
        """Q_tot of ``action`` [B,T,(M,)N,(U)]: [B,T,(M)]."""
        steps = _steps(batch)
        if action.dim() == batch.action.dim():
            return self._q_tot(net, steps, action.unsqueeze(2)).squeeze(2)
        return self._q_tot(net, steps, action)


def _steps(batch: Batch) -> Batch:
    """The moments at which an action is chosen: the first T of T+1."""
    avail = None if batch.avail is None else batch.avail[:, :-1]
    return dataclasses.replace(batch, obs=batch.obs[:, :-1], state=batch.state[:, :-1], avail=avail)
