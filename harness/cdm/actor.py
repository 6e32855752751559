"""The diagnostics of score-function gradients Q psi: exact where a table of joint values is given, sampled elsewhere.

One vector holds all agents' gradients side by side, [S, n P]: variances are sums over agents, shares are ratios of such
sums, and the cosine is that of the whole team's gradient, each agent's with its own teammates perturbed.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from harness.cdm import exact, sampled
from harness.cdm.definitions import EPSILONS
from harness.cdm.read import Reader

Values = dict[str, float]


def combine(parts: list[exact.Decomposition], gaps: list[float] | None = None) -> Values:
    """The team's diagnostics from every agent's decomposition and, where there is a Q, gap."""
    state, teammates, own = (math.fsum(getattr(p, k) for p in parts) for k in ("state", "teammates", "own"))
    team = exact.Decomposition(state, teammates, own, torch.cat([p.mean for p in parts]))
    found = {
        "variance_state": state,
        "variance_teammates": teammates,
        "variance_own": own,
        "variance_total": team.total,
        "teammate_share": team.share,
        "snr": team.snr,
    }
    if gaps is not None:
        gap = math.fsum(gaps)
        found |= {"gap": gap, "gap_share": gap / team.total if team.total > 0 else math.nan}
        found["variance_decentralised"] = team.total - gap
    return found


def join(moments: list[sampled.Moments]) -> sampled.Moments:
    """All agents' moments as those of one vector."""
    sums = [torch.stack([getattr(m, k) for m in moments]).sum(0) for k in ("teammates", "own", "gap", "noise")]
    return sampled.Moments(sums[0], sums[1], sums[2], torch.cat([m.mean for m in moments], -1), sums[3])


def curve_name(eps: float | str) -> tuple[str, str]:
    """Metric names at one perturbation, e.g. ("cosine@0.25", "sign_flip@0.25")."""
    return f"cosine@{eps}", f"sign_flip@{eps}"


def from_table(q: Tensor, policies: list[Tensor], avail: list[Tensor]) -> Values:
    """Everything, exactly, from joint values [S,A,...,A]."""
    agents = range(len(policies))
    found = combine([exact.centralised(q, policies, i) for i in agents], [exact.gap(q, policies, i) for i in agents])
    reference = torch.cat([exact.expected_gradient(q, policies, i) for i in agents], -1)
    for eps in EPSILONS:
        changed = [exact.expected_gradient(q, exact.perturbed(policies, i, eps, avail), i) for i in agents]
        cosine, flips = exact.agreement(torch.cat(changed, -1), reference)
        found |= dict(zip(curve_name(eps), (cosine, flips), strict=True))
    return found


def from_draws(reader: Reader, policies: list[Tensor], samples: int, rng: torch.Generator) -> Values:
    """The same from ``samples`` draws of the teammates a state and all own actions (discrete)."""
    avail = [a.double() for a in reader.avail.unbind(1)]
    agents, count = range(len(policies)), policies[0].shape[-1]

    def values(pis: list[Tensor], i: int) -> Tensor:
        drawn = sampled.deviations(sampled.joint_draws(pis, samples, rng), i, count)
        return reader.joint_values(drawn.flatten(1, 2)).reshape(-1, samples, count)

    first = [values(policies, i) for i in agents]
    moments = [sampled.expectation(q, policies[i]) for i, q in zip(agents, first, strict=True)]
    found = {name: e.value for name, e in sampled.summary(join(moments)).items()}
    reference = torch.cat([sampled.inner_gradients(first[i], policies[i]) for i in agents], -1)
    for eps in EPSILONS:
        changed = [
            sampled.inner_gradients(values(exact.perturbed(policies, i, eps, avail), i), policies[i]) for i in agents
        ]
        cosine, flips = sampled.agreement(torch.cat(changed, -1), reference)
        found |= dict(zip(curve_name(eps), (cosine, flips), strict=True))
    return found


def gaussian_score(u: Tensor, mean: Tensor, std: Tensor) -> Tensor:
    """grad log N(u; mean, std) with respect to (mean, log std), [...,2U] of [...,U]."""
    z = (u - mean) / std
    return torch.cat([z / std, z.square() - 1], -1)


def from_gaussian_draws(reader: Reader, samples: int, rng: torch.Generator) -> Values:
    """The same for Gaussian policies: sqrt(samples) draws of the teammates crossed with as many own ones.

    Greedy teammates play their mean; "uniform" is over the box. psi is that of a draw before it is clipped to the box.
    """
    mean, std = reader.gaussian()
    agents, side = range(mean.shape[1]), max(2, math.isqrt(samples))

    def draw(count: int) -> Tensor:
        noise = torch.randn(len(mean), count, *mean.shape[1:], generator=rng, dtype=mean.dtype, device=mean.device)
        return mean.unsqueeze(1) + std.unsqueeze(1) * noise

    moments = []
    for i in agents:
        mine, mates = draw(side)[:, :, i], draw(side)
        grid = mates.unsqueeze(2).repeat(1, 1, side, 1, 1)
        grid[..., i, :] = mine.unsqueeze(1)
        q = reader.joint_values(reader.clipped(grid.flatten(1, 2))).reshape(-1, side, side)
        psi = gaussian_score(mine, mean[:, i].unsqueeze(1), std[:, i].unsqueeze(1))
        moments.append(sampled.crossed(q, psi))
    found = {name: e.value for name, e in sampled.summary(join(moments)).items()}

    def gradients(eps: float | str) -> Tensor:
        return torch.cat([_paired_gradient(reader, draw(samples), i, eps, mean, std, rng) for i in agents], -1)

    reference = gradients(0.0)
    for eps in EPSILONS:
        cosine, flips = sampled.agreement(gradients(eps), reference)
        found |= dict(zip(curve_name(eps), (cosine, flips), strict=True))
    return found


def _paired_gradient(
    reader: Reader, u: Tensor, i: int, eps: float | str, mean: Tensor, std: Tensor, rng: torch.Generator
) -> Tensor:
    """Q psi^i at independent joint draws ``u`` [S,K,n,U] with i's teammates perturbed: [S,K,2U]."""
    box, mine = reader.spec.action, u[:, :, i].clone()
    if isinstance(eps, str):
        played = mean.unsqueeze(1).expand_as(u).clone()
    else:
        unit = torch.rand(u.shape, generator=rng, dtype=u.dtype, device=u.device)
        swap = torch.rand(u.shape[:-1], generator=rng, dtype=u.dtype, device=u.device) < eps
        anywhere = box.low + (box.high - box.low) * unit  # type: ignore[union-attr]
        played = torch.where(swap.unsqueeze(-1), anywhere, u)
    played[:, :, i] = mine
    q = reader.joint_values(reader.clipped(played))
    # the mean over draws as baseline: it changes no expectation beyond a factor (K-1)/K, and much of the noise
    q = q - q.mean(1, keepdim=True)
    return q.unsqueeze(-1) * gaussian_score(mine, mean[:, i].unsqueeze(1), std[:, i].unsqueeze(1))
