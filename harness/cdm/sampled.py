"""CDM diagnostics by nested Monte Carlo, for tasks whose joint actions cannot be enumerated.

For each state K outer draws of the teammates' joint action u^-i ~ pi^-i; inside, agent i's own actions: all of them
with their probabilities where discrete (``expectation``), L draws crossed with the outer ones where continuous
(``crossed``), or L repetitions inside each outer draw where only an estimator's noise can be redrawn (``nested``). Each
gives one ``Moments`` a state; ``summary`` turns these into the diagnostics, with jackknife standard errors over states.

Shapes: S states, K outer draws, A actions or L inner draws, P parameters. Every estimator of a variance is unbiased
(sample variances divided by K - 1, inner noise taken off: the ANOVA estimators of random effects, Searle et al. 1992),
so that a small part may come out slightly negative; a ratio of two is consistent, not unbiased.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from harness.cdm import exact

CLEAR = 3.0
"""Standard errors by which a squared length must exceed 0 before a cosine is taken."""


class Estimate(NamedTuple):
    """A number and its standard error over sampled states and actions (not over seeds)."""

    value: float
    error: float

    def within(self, truth: float, z: float = 1.959964) -> bool:
        """``truth`` lies in value +- z errors."""
        return abs(self.value - truth) <= z * self.error


class Moments(NamedTuple):
    """What one state contributes, [S] each but ``mean`` [S,P]."""

    teammates: Tensor  # Var_{u^-i}( E_{u^i} g )
    own: Tensor  # E_{u^-i} Var_{u^i} g
    gap: Tensor  # E_{u^i}[ |psi|^2 Var_{u^-i} Q ]; NaN where there is no Q
    mean: Tensor  # E_u g
    noise: Tensor  # expected squared error of ``mean``


def expectation(q: Tensor, pi: Tensor, psi: Tensor | None = None) -> Moments:
    """Discrete: ``q`` [S,K,A] at K draws of the teammates and every own action, ``pi`` [S,A], ``psi`` [S,A,P]."""
    q, pi = q.double(), pi.double()
    psi = exact.softmax_score(pi) if psi is None else psi.double()
    inner = torch.einsum("sa,ska,sap->skp", pi, q, psi)
    lengths = psi.square().sum(-1)
    own = torch.einsum("sa,ska,sa->sk", pi, q.square(), lengths) - inner.square().sum(-1)
    teammates = inner.var(1).sum(-1)
    gap = torch.einsum("sa,sa,sa->s", pi, lengths, q.var(1))
    return Moments(teammates, own.clamp(min=0).mean(1), gap, inner.mean(1), teammates / q.shape[1])


def inner_gradients(q: Tensor, pi: Tensor) -> Tensor:
    """E_{u^i}[Q psi^i] at each of K draws of the teammates, [S,K,A]: ``q`` [S,K,A], ``pi`` [S,A] of a softmax."""
    q, pi = q.double(), pi.double()
    return pi.unsqueeze(1) * (q - torch.einsum("sa,ska->sk", pi, q).unsqueeze(-1))


def crossed(q: Tensor, psi: Tensor) -> Moments:
    """Continuous: ``q`` [S,K,L] at K draws of the teammates times L own draws, ``psi`` [S,L,P] of the latter.

    Two-way layout without replication: the interaction's mean square is taken off the teammates' part.
    """
    q, psi = q.double(), psi.double()
    g = q.unsqueeze(-1) * psi.unsqueeze(1)  # [S,K,L,P]
    k, n = g.shape[1:3]
    rows, columns, mean = g.mean(2), g.mean(1), g.mean((1, 2))
    rest = g - rows.unsqueeze(2) - columns.unsqueeze(1) + mean[:, None, None]
    interaction = rest.square().sum((1, 2, 3)) / ((k - 1) * (n - 1))
    between, across = rows.var(1).sum(-1), columns.var(1).sum(-1)
    own = g.var(2).sum(-1).mean(1)
    gap = (psi.square().sum(-1) * q.var(1)).mean(1)
    noise = between / k + across / n - interaction / (k * n)
    return Moments(between - interaction / n, own, gap, mean, noise)


def nested(g: Tensor) -> Moments:
    """Any estimator: ``g`` [S,J,L,P], the teammates' draws fixed along L, the agent's own redrawn."""
    g = g.double()
    inner, within = g.mean(2), g.var(2).sum(-1).mean(1)
    between = inner.var(1).sum(-1)
    gap = torch.full_like(between, torch.nan)
    return Moments(between - within / g.shape[2], within, gap, inner.mean(1), between / g.shape[1])


def summary(m: Moments) -> dict[str, Estimate]:
    """The diagnostics of one agent from its per-state moments.

    Keys: variance_state, variance_teammates, variance_own, variance_total, teammate_share, gap, gap_share, snr and
    variance_decentralised, which is the total less the gap. Standard errors by the jackknife over states; NaN for one.
    """
    features = torch.cat([torch.stack([m.teammates, m.own, m.gap, m.noise, m.mean.square().sum(-1)], -1), m.mean], -1)
    count = len(features)
    values = _statistics(features.mean(0, keepdim=True), count)
    if count > 1:
        left_out = _statistics((features.sum(0) - features) / (count - 1), count - 1)
        errors = {name: math.sqrt((count - 1) * float((x - x.mean()).square().mean())) for name, x in left_out.items()}
    return {name: Estimate(float(v), errors[name] if count > 1 else math.nan) for name, v in values.items()}


def _statistics(means: Tensor, count: int) -> dict[str, Tensor]:
    """Each diagnostic for rows of ``means`` of features over ``count`` states."""
    teammates, own, gap, noise, squares = means[:, :5].unbind(-1)
    spread = (squares - means[:, 5:].square().sum(-1)) * (count / max(count - 1, 1))  # sample variance of the means
    state = spread - noise if count > 1 else torch.zeros_like(spread)
    signal = means[:, 5:].square().sum(-1) - (spread / count if count > 1 else noise)
    total = state + teammates + own
    return {
        "variance_state": state,
        "variance_teammates": teammates,
        "variance_own": own,
        "variance_total": total,
        "variance_decentralised": total - gap,
        "teammate_share": teammates / (teammates + own),
        "gap": gap,
        "gap_share": gap / total,
        "snr": signal / total,
    }


def agreement(g: Tensor, reference: Tensor, z: float = 2.0) -> tuple[float, float]:
    """``exact.agreement`` from independent draws of both sides, [S,K,P] each.

    The squared lengths are freed of the draws' noise, without which noise would look like disagreement. A component
    counts for the sign-flip rate when it is ``z`` standard errors away from 0 on both sides. NaN when a side cannot be
    told from 0 (its squared length is below ``CLEAR`` standard errors), or no component is clear.
    """
    a, b = g.double(), reference.double()
    (m, v), (n, w) = ((x.mean(1), x.var(1) / x.shape[1]) for x in (a, b))
    lengths = [float((mean.square() - error).sum()) for mean, error in ((m, v), (n, w))]
    noise = [math.sqrt(2 * float(error.square().sum())) for error in (v, w)]  # of a squared length that is really 0
    seen = all(x > 0 and x > CLEAR * y for x, y in zip(lengths, noise, strict=True))
    cosine = float((m * n).sum()) / math.sqrt(lengths[0] * lengths[1]) if seen else math.nan
    clear = (m.abs() > z * v.sqrt()) & (n.abs() > z * w.sqrt()) & (m != 0) & (n != 0)
    flips = (m.sign() != n.sign())[clear].double()
    return (
        cosine if math.isnan(cosine) else max(-1.0, min(1.0, cosine)),
        float(flips.mean()) if len(flips) else math.nan,
    )


# -- drawing --------------------------------------------------------------------------------------------------------


def joint_draws(policies: list[Tensor], count: int, rng: torch.Generator) -> Tensor:
    """``count`` joint actions a state from a product of discrete policies [n] of [S,A]: [S,count,n] int64."""
    return torch.stack([torch.multinomial(p, count, replacement=True, generator=rng) for p in policies], -1)


def deviations(actions: Tensor, i: int, count: int) -> Tensor:
    """Every action of agent i against ``actions`` [S,K,n]: [S,K,count,n]."""
    out = actions.unsqueeze(2).repeat(1, 1, count, 1)
    out[..., i] = torch.arange(count, device=actions.device)
    return out


def igm_candidates(greedy: Tensor, policies: list[Tensor], avail: Tensor, samples: int, rng: torch.Generator) -> Tensor:
    """Joint actions among which a better one than ``greedy`` [S,n] is looked for, [S,C,n].

    The greedy one, ``samples`` draws of the policies, ``samples`` uniform legal ones, and every single agent's
    deviation from the greedy one. ``avail`` [S,n,A]. These are some of all: the violation rate is a lower bound.
    """
    n, actions = avail.shape[1:]
    legal = [avail[:, j].float() for j in range(n)]
    single = torch.cat([deviations(greedy.unsqueeze(1), j, actions).flatten(1, 2) for j in range(n)], 1)
    allowed = avail.gather(-1, single.transpose(1, 2)).transpose(1, 2).all(-1, keepdim=True)
    single = torch.where(allowed, single, greedy.unsqueeze(1))
    drawn = [joint_draws(policies, samples, rng), joint_draws(legal, samples, rng)]
    return torch.cat([greedy.unsqueeze(1), *drawn, single], 1)


def igm_violations(values: Tensor) -> Tensor:
    """[S] bool from Q_tot of ``igm_candidates`` [S,C], the greedy one first: some candidate is better."""
    scale = values.abs().max(-1).values.clamp(min=1e-300)
    return values.max(-1).values - values[:, 0] > exact.TIE * scale.double()
