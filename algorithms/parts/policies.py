"""Behaviour policies and what they share."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.distributions import Categorical, Distribution, Independent, Normal

from harness.networks import Memory, RecurrentAgent
from harness.types import Action, Continuous, Spec, Step

if TYPE_CHECKING:
    _Gaussian = Independent[Normal]
else:  # generic in newer versions of torch alone
    _Gaussian = Independent


def linear(start: float, end: float, steps: int, now: int) -> float:
    """A schedule: from ``start`` at 0 straight to ``end`` at ``steps``, constant afterwards."""
    return end if now >= steps else start + (end - start) * now / steps


def legal(values: Tensor, avail: Tensor | None) -> Tensor:
    """``values`` [...,A] with illegal actions at the lowest finite number, so that no maximum or softmax picks one."""
    return values if avail is None else values.masked_fill(~avail, torch.finfo(values.dtype).min)


def categorical(logits: Tensor, avail: Tensor | None) -> Categorical:
    """The softmax over legal actions, [...] with A = last size of ``logits``."""
    return Categorical(logits=legal(logits, avail), validate_args=False)


def draw(probs: Tensor, rng: torch.Generator) -> Tensor:
    """One index [...] a row of ``probs`` [...,A], from ``rng``."""
    flat = probs.reshape(-1, probs.shape[-1])
    return torch.multinomial(flat, 1, generator=rng).reshape(probs.shape[:-1])


def epsilon_greedy(
    q: Tensor, avail: Tensor | None, epsilon: float, rng: torch.Generator | None
) -> tuple[Tensor, Tensor]:
    """Greedy with probability 1 - epsilon, else uniform over legal actions; ``rng`` None is greedy.

    ``q`` [...,A] -> action [...] int64 and its log probability [...].
    """
    q = legal(q, avail)
    greedy = q.argmax(-1)
    if rng is None:
        return greedy, torch.zeros_like(q[..., 0])
    uniform = torch.ones_like(q) if avail is None else avail.to(q.dtype)
    probs = uniform * (epsilon / uniform.sum(-1, keepdim=True))
    probs.scatter_add_(-1, greedy[..., None], torch.full_like(probs[..., :1], 1 - epsilon))
    action = draw(probs, rng)
    return action, probs.gather(-1, action[..., None]).squeeze(-1).log()


class ClippedGaussian(_Gaussian):
    """An agent's Gaussian whose draws are clipped to its box, as actions [...,U] are: what is really played.

    A number lies at an edge of the box with the probability that its Gaussian has beyond, so the likelihood is a mass
    there and a density between (Fujita and Maeda 2018, arXiv 1802.07564, eq. 10). With the Gaussian's density in its
    place a ratio of two policies would not be one of probabilities: its mean under the older one would not be 1.
    ``base_dist`` is the Gaussian itself and ``mean`` its mean, the greedy action.
    """

    def __init__(self, mean: Tensor, std: Tensor, box: Continuous) -> None:
        super().__init__(Normal(mean, std, validate_args=False), 1, validate_args=False)
        self.box = box

    def log_prob(self, value: Tensor) -> Tensor:
        """Of ``value`` [...,U] inside the box or on its edges: [...]."""
        normal, low, high = self.base_dist, self.box.low, self.box.high
        below = torch.special.log_ndtr((low - normal.loc) / normal.scale)
        above = torch.special.log_ndtr((normal.loc - high) / normal.scale)
        inside = normal.log_prob(value)
        return torch.where(value <= low, below, torch.where(value >= high, above, inside)).sum(-1)

    def entropy(self) -> Tensor:
        """- E log p over density and masses together, [...]: bounded however wide the Gaussian is."""
        normal, low, high = self.base_dist, self.box.low, self.box.high
        a, b = (low - normal.loc) / normal.scale, (high - normal.loc) / normal.scale
        below, above = torch.special.log_ndtr(a), torch.special.log_ndtr(-b)
        phi_a, phi_b = (torch.exp(-(x**2) / 2) / math.sqrt(2 * math.pi) for x in (a, b))
        within = 1 - below.exp() - above.exp()
        inside = within * (0.5 * math.log(2 * math.pi * math.e) + normal.scale.log()) + (a * phi_a - b * phi_b) / 2
        return (inside - below.exp() * below - above.exp() * above).sum(-1)


def around(mean: Tensor, noise: float, box: Continuous) -> ClippedGaussian:
    """A Gaussian of ``noise`` half-widths of the box around ``mean`` [...,U]."""
    return ClippedGaussian(mean, torch.full_like(mean, max(noise, 1e-6) * (box.high - box.low) / 2), box)


def unclipped(pi: Distribution) -> Distribution:
    """``pi`` before any clipping: of a ``ClippedGaussian`` the Gaussian, of anything else itself."""
    return Independent(pi.base_dist, 1, validate_args=False) if isinstance(pi, ClippedGaussian) else pi


class Actor(nn.Module):
    """A recurrent agent whose output is a policy, shared by all agents.

    Discrete: softmax over legal actions. Continuous: a Gaussian with a tanh mean scaled to the box and a log standard
    deviation (of the box's half-width) within +-log 10, the policy of MCEM's continuous form (Wang et al. 2025); what
    it plays is clipped to the box.
    """

    LOG_STD = math.log(10.0)

    def __init__(self, spec: Spec, hidden: int = 64) -> None:
        super().__init__()
        self.box = spec.action if isinstance(spec.action, Continuous) else None
        self.agent = RecurrentAgent(spec, spec.action.dim if self.box is None else 2 * self.box.size, hidden)

    def forward(
        self, obs: Tensor, last_action: Tensor | None, avail: Tensor | None, hidden: Tensor | None = None,
        lengths: Tensor | None = None,
    ) -> tuple[Distribution, Tensor]:  # fmt: skip
        """Whole sequences, arguments as ``RecurrentAgent``'s: the policies [B,T,N] and the last hidden state."""
        out, hidden = self.agent(obs, last_action, hidden, lengths)
        if self.box is None:
            return categorical(out, avail), hidden
        mean, log_std = out.chunk(2, -1)
        middle, half = (self.box.high + self.box.low) / 2, (self.box.high - self.box.low) / 2
        std = half * log_std.clamp(-self.LOG_STD, self.LOG_STD).exp()
        return ClippedGaussian(middle + half * mean.tanh(), std, self.box), hidden


def sample(pi: Distribution, rng: torch.Generator | None) -> Tensor:
    """One action a policy, from ``rng``; its mode when None. Continuous samples are clipped to the box."""
    if isinstance(pi, Categorical):
        return pi.probs.argmax(-1) if rng is None else draw(pi.probs, rng)
    assert isinstance(pi, ClippedGaussian)
    normal = pi.base_dist
    if rng is None:
        return normal.mean
    noise = torch.randn(normal.mean.shape, generator=rng, device=normal.mean.device)
    return (normal.mean + normal.stddev * noise).clamp(pi.box.low, pi.box.high)


def candidates(pi: Distribution, count: int, rng: torch.Generator) -> Tensor:
    """``count`` joint actions M, each agent's drawn by itself from ``pi`` [B,T,N]: [B,T,M,N] int64 | [B,T,M,N,U]."""
    if isinstance(pi, Categorical):
        probs = pi.probs.reshape(-1, pi.probs.shape[-1])
        drawn = torch.multinomial(probs, count, replacement=True, generator=rng)  # [B*T*N,M]
        return drawn.reshape(*pi.probs.shape[:-1], count).movedim(-1, 2)
    assert isinstance(pi, ClippedGaussian)
    mean, std = pi.base_dist.mean.unsqueeze(2), pi.base_dist.stddev.unsqueeze(2)
    shape = (*mean.shape[:2], count, *mean.shape[3:])
    noise = torch.randn(shape, generator=rng, device=mean.device)
    return torch.addcmul(mean, std, noise).clamp_(pi.box.low, pi.box.high)


def act_stochastic(
    actor: Actor, step: Step, memory: Any, rng: torch.Generator | None, epsilon: float = 0.0, noise: float = 0.0
) -> Action:
    """Each agent alone: a sample of its policy; the mode when ``rng`` is None.

    ``epsilon`` is the share of uniform play mixed in: over legal actions, or over the box. ``noise``, in half-widths of
    the box, is the standard deviation of a second Gaussian added to that of the policy; discrete actions have none. The
    log probability is that of what was drawn from, both included.
    """
    hidden, last = (None, None) if memory is None else (memory.hidden, memory.last_action.unsqueeze(1))
    avail = None if step.avail is None else step.avail.unsqueeze(1)
    pi, hidden = actor(step.obs.unsqueeze(1), last, avail, hidden)
    if epsilon > 0 and rng is not None and isinstance(pi, Categorical):
        legals = torch.ones_like(pi.probs) if avail is None else avail.to(pi.probs.dtype)
        uniform = legals / legals.sum(-1, keepdim=True)
        pi = Categorical(probs=(1 - epsilon) * pi.probs + epsilon * uniform, validate_args=False)
    if noise > 0 and rng is not None and isinstance(pi, ClippedGaussian):
        pi = _noisier(pi, noise)
    action = sample(pi, rng)
    if epsilon > 0 and rng is not None and isinstance(pi, ClippedGaussian):
        action, log_prob = _or_anywhere(pi, action, epsilon, rng)
    else:
        log_prob = pi.log_prob(action)
    return Action(action.squeeze(1), log_prob.squeeze(1), Memory(hidden, action.squeeze(1)))


def _noisier(pi: ClippedGaussian, noise: float) -> ClippedGaussian:
    """``pi`` plus Gaussian noise of its own, of ``noise`` half-widths: variances add."""
    normal, std = pi.base_dist, noise * (pi.box.high - pi.box.low) / 2
    return ClippedGaussian(normal.mean, (normal.variance + std**2).sqrt(), pi.box)


def _or_anywhere(pi: ClippedGaussian, action: Tensor, epsilon: float, rng: torch.Generator) -> tuple[Tensor, Tensor]:
    """``action`` [...,U], an agent's with probability ``epsilon`` put anywhere in the box; and log beta of it [...]."""
    box, width = pi.box, pi.box.high - pi.box.low
    drawn = torch.rand((*action.shape[:-1], action.shape[-1] + 1), generator=rng, device=action.device)
    action = torch.where(drawn[..., :1] < epsilon, box.low + width * drawn[..., 1:], action)
    anywhere = torch.full_like(drawn[..., 0], math.log(epsilon) - box.size * math.log(width))
    if epsilon == 1:
        return action, anywhere
    edge = ((action <= box.low) | (action >= box.high)).any(-1)  # uniform play is never there
    anywhere = anywhere.masked_fill(edge, -torch.inf)
    return action, torch.logaddexp(pi.log_prob(action) + math.log1p(-epsilon), anywhere)


class DeterministicActor(nn.Module):
    """A recurrent agent mu_i(tau_i), shared by all agents: a point in the box, or logits where actions are discrete."""

    def __init__(self, spec: Spec, hidden: int = 64) -> None:
        super().__init__()
        self.box = spec.action if isinstance(spec.action, Continuous) else None
        self.agent = RecurrentAgent(spec, spec.action.dim, hidden)

    def squash(self, out: Tensor) -> Tensor:
        """The agent's output as a point in the box."""
        assert self.box is not None
        return (self.box.high + self.box.low) / 2 + (self.box.high - self.box.low) / 2 * out.tanh()

    def forward(
        self, obs: Tensor, last_action: Tensor | None, avail: Tensor | None, hidden: Tensor | None = None,
        noise: float = 0.0, lengths: Tensor | None = None,
    ) -> tuple[Distribution, Tensor]:  # fmt: skip
        """As ``Actor``'s: the softmax, or a Gaussian of ``noise`` half-widths around mu_i."""
        out, hidden = self.agent(obs, last_action, hidden, lengths)
        if self.box is None:
            return categorical(out, avail), hidden
        return around(self.squash(out), noise, self.box), hidden


def act_noisy(actor: DeterministicActor, step: Step, memory: Any, noise: float, rng: torch.Generator | None) -> Action:
    """Each agent alone: mu_i plus Gaussian noise, clipped to the box; mu_i when ``rng`` is None."""
    hidden, last = (None, None) if memory is None else (memory.hidden, memory.last_action.unsqueeze(1))
    pi, hidden = actor(step.obs.unsqueeze(1), last, None, hidden, noise)
    action = sample(pi, rng)
    return Action(action.squeeze(1), pi.log_prob(action).squeeze(1), Memory(hidden, action.squeeze(1)))


def one_hot(logits: Tensor, avail: Tensor | None) -> Tensor:
    """The best legal action as a one-hot vector [...,A]."""
    best = legal(logits, avail).argmax(-1, keepdim=True)
    return torch.zeros_like(logits).scatter_(-1, best, 1.0)


def gumbel_softmax(logits: Tensor, avail: Tensor | None, rng: torch.Generator) -> Tensor:
    """One-hot samples of softmax(logits) with the relaxed one's gradient (Jang et al. 2017), [...,A].

    Temperature 1, as in FACMAC's code.
    """
    uniform = torch.rand(logits.shape, generator=rng, device=logits.device).clamp_(1e-10, 1 - 1e-7)
    noisy = legal(logits - torch.log(-torch.log(uniform)), avail)
    soft = noisy.softmax(-1)
    hard = torch.zeros_like(soft).scatter_(-1, noisy.argmax(-1, keepdim=True), 1.0)
    return hard + soft - soft.detach()
