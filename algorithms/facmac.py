"""FACMAC: factored multi-agent centralised policy gradients."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.distributions import Distribution

from algorithms.parts.critics import ActionsIn, encode
from algorithms.parts.mixers import MixerKind, mixer
from algorithms.parts.policies import (
    DeterministicActor,
    act_noisy,
    act_stochastic,
    gumbel_softmax,
    linear,
    one_hot,
)
from algorithms.parts.targets import lambda_return, masked_mean
from harness.algorithm import Count, Loss, Metrics, Natural, NonNegative, Positive, Share, Targets
from harness.networks import last_actions
from harness.types import Action, Batch, Spec, Step


@dataclass(frozen=True)
class FACMAC:
    """FACMAC (Peng et al. 2021, arXiv 2003.06709): a centralised gradient through a factored critic.

    Actions of a critic are vectors: as they are when continuous, one-hot when discrete.
    """

    gamma: Share = 0.99
    """Discount."""
    mixer: MixerKind = "monotonic"
    """How Q_tot is made of the Q_i: "monotonic", "unconstrained" (FACMAC-nonmonotonic) or "linear" (a sum)."""
    td_lambda: Share = 0.8
    """Lambda of the critic's TD(lambda) target."""
    lr_actor: Positive = 2.5e-3
    """Learning rate of the actor (Adam)."""
    lr_critic: Positive = 5e-4
    """Learning rate of critic and mixer (Adam)."""
    adam_eps: Positive = 1e-8
    """Adam's epsilon."""
    clip: Positive = 10.0
    """Largest norm of each gradient."""
    hidden: Count = 64
    """Width of the actor's GRU."""
    critic_hidden: Count = 64
    """Width of the critic's two hidden layers."""
    embed: Count = 32
    """Width of the mixing network."""
    hyper: Count = 64
    """Hidden width of the hypernetworks."""
    regulariser: NonNegative = 1e-3
    """Weight of the mean square of the actor's outputs in its loss; not in the paper, near to the authors' code."""
    epsilon_start: Share = 0.5
    """Share of uniform play in the behaviour policy at the first step (discrete actions)."""
    epsilon_end: Share = 0.05
    """The same after ``epsilon_steps``."""
    epsilon_steps: Natural = 50_000
    """Environment steps over which it falls."""
    noise: NonNegative = 0.1
    """Standard deviation of the Gaussian noise on actions, in half-widths of the box (continuous actions)."""
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
            "num_envs": 32, "updates_per_collect": 2, "lr_actor": 1e-2, "lr_critic": 5e-3, "epsilon_steps": 5_000,
        },
        "matrix-continuous": {"num_envs": 16, "updates_per_collect": 4, "lr_critic": 1e-2},
        "continuous": {
            "gamma": 0.85, "lr_actor": 1e-2, "lr_critic": 1e-2, "adam_eps": 1e-2, "clip": 0.5, "embed": 64, "tau": 1e-3,
        },
        "predator_prey": {
            "gamma": 0.9, "noise": 1.0, "regulariser": 1e-2, "lr_actor": 1e-3, "lr_critic": 3e-3, "adam_eps": 1e-8,
            "clip": 10.0, "critic_hidden": 128, "tau": 1e-2, "num_envs": 32, "updates_per_collect": 8,
            "batch_episodes": 128,
        },
        "mamujoco": {
            "gamma": 0.99, "noise": 0.3, "lr_actor": 1e-3, "lr_critic": 1e-3, "adam_eps": 1e-8, "clip": 10.0,
            "critic_hidden": 128, "tau": 1e-2, "num_envs": 8, "updates_per_collect": 8,
        },
    }  # fmt: skip

    def networks(self, spec: Spec) -> nn.ModuleDict:
        return nn.ModuleDict(
            {
                "actor": DeterministicActor(spec, self.hidden),
                "critic": ActionsIn(spec, self.critic_hidden),
                "mixer": mixer(self.mixer, spec.n_agents, spec.state_dim, self.embed, self.hyper),
            }
        )

    def act(self, net: nn.ModuleDict, step: Step, memory: Any, env_steps: int, rng: torch.Generator | None) -> Action:
        """Continuous: mu_i plus Gaussian noise. Discrete: a sample of the softmax, mixed with uniform play."""
        actor = net["actor"]
        if actor.box is not None:
            return act_noisy(actor, step, memory, self.noise, rng)
        epsilon = linear(self.epsilon_start, self.epsilon_end, self.epsilon_steps, env_steps)
        return act_stochastic(actor, step, memory, rng, epsilon)

    def losses(self) -> tuple[Loss, ...]:
        return (
            Loss("critic", ("critic", "mixer"), self.critic_loss, self.lr_critic, self.clip, self.adam_eps),
            Loss("actor", ("actor",), self.actor_loss, self.lr_actor, self.clip, self.adam_eps),
        )

    def targets(self) -> Targets:
        names = ("actor", "critic", "mixer")
        return Targets(names, tau=self.tau) if self.tau else Targets(names, every_episodes=self.target_episodes)

    def critic_loss(
        self, net: nn.ModuleDict, target: nn.ModuleDict, batch: Batch, rng: torch.Generator
    ) -> tuple[Tensor, Metrics]:
        """Eq. 5: the squared error of Q_tot(s, u) to y, the TD(lambda) return of Q^-_tot(s', mu^-(tau'))."""
        with torch.no_grad():
            best = self._greedy(target["actor"], batch)
            v = target["mixer"](target["critic"].value(encode(target["critic"], batch), best), batch.state)
            y = lambda_return(batch.reward, v, batch.terminated, batch.mask, self.gamma, self.td_lambda)
        q_tot = self.joint_value(net, batch, batch.action)
        loss = masked_mean((q_tot - y) ** 2, batch.mask)
        return loss, {"loss": loss, "q_tot": masked_mean(q_tot, batch.mask), "target": masked_mean(y, batch.mask)}

    def actor_loss(
        self, net: nn.ModuleDict, target: nn.ModuleDict, batch: Batch, rng: torch.Generator
    ) -> tuple[Tensor, Metrics]:
        """Eq. 7, negated: Q_tot(s, mu_1(tau_1), ..., mu_n(tau_n)), all agents' actions from their current policies.

        Discrete actions are relaxed: one-hot samples whose gradient is the Gumbel-softmax's (straight through).
        """
        avail = None if batch.avail is None else batch.avail[:, :-1]
        out, _ = net["actor"].agent(batch.obs[:, :-1], last_actions(batch)[:, :-1], lengths=batch.lengths)
        action = gumbel_softmax(out, avail, rng) if net["actor"].box is None else net["actor"].squash(out)
        gain = masked_mean(self._q_tot(net, batch, action), batch.mask)
        squares = masked_mean((out**2).mean((-1, -2)), batch.mask)
        return self.regulariser * squares - gain, {"loss": -gain, "output_square": squares}

    # -- parts ----------------------------------------------------------------------------------------------------

    @staticmethod
    def _greedy(actor: DeterministicActor, batch: Batch) -> Tensor:
        """mu_i(tau_i) at every moment, as vectors [B,T+1,N,U|A]."""
        out, _ = actor.agent(batch.obs, last_actions(batch), lengths=batch.lengths)
        return actor.squash(out) if actor.box is not None else one_hot(out, batch.avail)

    @staticmethod
    def _q_tot(net: nn.ModuleDict, batch: Batch, action: Tensor) -> Tensor:
        """Q_tot [B,T,(M)] of action vectors [B,T,(M,)N,U|A]."""
        q, state = (
            net["critic"].value(net["critic"].encode(batch.obs[:, :-1], batch.state), action),
            batch.state[:, :-1],
        )
        if action.dim() == batch.obs.dim():
            value: Tensor = net["mixer"](q, state)
            return value
        mixed: Tensor = net["mixer"].mix(q, net["mixer"].weights(state))
        return mixed

    @staticmethod
    def _vectors(net: nn.ModuleDict, action: Tensor) -> Tensor:
        if net["actor"].box is not None:
            return action
        return nn.functional.one_hot(action, net["critic"].sizes[2]).float()

    # -- read by the diagnostics ----------------------------------------------------------------------------------

    def policy(self, net: nn.ModuleDict, batch: Batch) -> Distribution:
        """The behaviour policy without uniform play, [B,T,N]: the softmax, or the Gaussian around mu_i."""
        avail = None if batch.avail is None else batch.avail[:, :-1]
        actor, before = net["actor"], last_actions(batch)[:, :-1]
        pi: Distribution = actor(batch.obs[:, :-1], before, avail, noise=self.noise, lengths=batch.lengths)[0]
        return pi

    def utilities(self, net: nn.ModuleDict, batch: Batch, action: Tensor) -> Tensor:
        """Q_i of ``action`` [B,T,(M,)N,(U)]: [B,T,(M,)N]."""
        encoded = net["critic"].encode(batch.obs[:, :-1], batch.state)
        q: Tensor = net["critic"].value(encoded, self._vectors(net, action))
        return q

    def joint_value(self, net: nn.ModuleDict, batch: Batch, action: Tensor) -> Tensor:
        """Q_tot of ``action`` [B,T,(M,)N,(U)]: [B,T,(M)]."""
        return self._q_tot(net, batch, self._vectors(net, action))
