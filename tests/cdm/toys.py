"""Small methods that nobody registered: what a third party might write, with known answers."""

import dataclasses

import torch
from torch import nn
from torch.distributions import Categorical

from harness.algorithm import Loss, Targets
from harness.types import Action

CLIMBING = torch.tensor([[11.0, -30.0, 0.0], [-30.0, 7.0, 0.0], [0.0, 6.0, 5.0]])


class Table(nn.Module):
    """Logits [N,A], the same in every state: output [B,T,N,A]."""

    def __init__(self, logits):
        super().__init__()
        self.logits = nn.Parameter(logits)

    def forward(self, obs):
        return self.logits.expand(*obs.shape[:-2], *self.logits.shape)


@dataclasses.dataclass(frozen=True)
class Score:
    """REINFORCE: reads the action played and its reward."""

    num_envs: int = 1
    gamma: float = 1.0
    data = "on_policy"
    actions = frozenset({"discrete"})
    presets = {}  # noqa: RUF012

    def networks(self, spec):
        rng = torch.Generator().manual_seed(0)
        return nn.ModuleDict({"actor": Table(torch.randn(spec.n_agents, spec.action.n, generator=rng))})

    def act(self, net, step, memory, env_steps, rng):
        pi = Categorical(logits=net["actor"](step.obs))
        flat = pi.probs.flatten(0, 1)
        action = flat.argmax(-1) if rng is None else torch.multinomial(flat, 1, generator=rng).squeeze(-1)
        action = action.reshape(step.obs.shape[:2])
        return Action(action, pi.log_prob(action), None)

    def policy(self, net, batch):
        return Categorical(logits=net["actor"](batch.obs[:, :-1]))

    def loss(self, net, target, batch, rng):
        gain = self.policy(net, batch).log_prob(batch.action).sum(-1) * batch.reward
        return -(gain * batch.mask).sum() / batch.mask.sum(), {}

    def losses(self):
        return (Loss("reinforce", ("actor",), self.loss, 1e-3),)

    def targets(self):
        return Targets()


@dataclasses.dataclass(frozen=True)
class Sampler(Score):
    """Draws one joint action itself and weighs it by a table it knows: ``joint_value``."""

    table: object = None

    def joint_value(self, net, batch, action):
        return self.table[action.unbind(-1)]

    def loss(self, net, target, batch, rng):
        pi = self.policy(net, batch)
        flat = pi.probs.reshape(-1, pi.probs.shape[-1])
        action = torch.multinomial(flat, 1, generator=rng).reshape(pi.probs.shape[:-1])
        gain = pi.log_prob(action).sum(-1) * self.joint_value(net, batch, action)
        return -(gain * batch.mask).sum() / batch.mask.sum(), {}


@dataclasses.dataclass(frozen=True)
class Gumbel(Sampler):
    """The same with the Gumbel trick: noise [B,T,N,A]."""

    def loss(self, net, target, batch, rng):
        pi = self.policy(net, batch)
        noise = torch.empty_like(pi.logits).exponential_(generator=rng).log().neg()
        action = (pi.logits.detach() + noise).argmax(-1)
        gain = pi.log_prob(action).sum(-1) * self.joint_value(net, batch, action)
        return -(gain * batch.mask).sum() / batch.mask.sum(), {}


@dataclasses.dataclass(frozen=True)
class Expected(Sampler):
    """The exact policy gradient: a function of the state alone."""

    def loss(self, net, target, batch, rng):
        probs = self.policy(net, batch).probs
        value = torch.einsum("bti,btj,ij->bt", probs[:, :, 0], probs[:, :, 1], self.table[:2, :2])
        return -(value * batch.mask).sum() / batch.mask.sum(), {}


@dataclasses.dataclass(frozen=True)
class Hidden(Score):
    """Draws from torch's global generator, which no loss may."""

    def loss(self, net, target, batch, rng):
        pi = self.policy(net, batch)
        return -pi.log_prob(pi.sample()).sum(), {}


class Greedy:
    """Acts and nothing else: no policy, no utilities, no joint value."""

    num_envs, gamma, data, presets = 1, 1.0, "replay", {}
    actions = frozenset({"discrete"})

    def networks(self, spec):
        return nn.ModuleDict({"q": nn.Linear(1, 1)})

    def act(self, net, step, memory, env_steps, rng):
        action = torch.zeros(step.obs.shape[:2], dtype=torch.int64)
        return Action(action, torch.zeros(action.shape), None)

    def losses(self):
        return (Loss("q", ("q",), lambda net, target, batch, rng: (net["q"].weight.sum(), {}), 1e-3),)

    def targets(self):
        return Targets()
