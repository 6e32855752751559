"""CDM diagnostics of enumerable games, exactly: pure functions of policies and a joint value table.

Shapes: S states, n agents, A_i actions of agent i, R = product of the teammates' A_j, P parameters of a policy.

    policies  [n] of [S,A_i], rows summing to 1; an illegal action has probability 0
    q         [S,A_1,...,A_n], any function of state and joint action: a payoff, a critic, a true action value
    states    [S] weights of the states, summing to 1; None for uniform
    score     [S,A_i,P], psi^i = grad log pi^i; None for the softmax's, P = A_i, with respect to its logits

Everything is computed in float64, vectorised over states and joint actions: about A^n = 1e6 is a second.
The decomposition is that of Kuba et al. 2021 (arXiv 2108.08612); variances of vectors are traces of covariances.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

Policies = Sequence[Tensor]

TIE = 1e-9
"""Relative difference of values below which two actions are equally good."""


class Decomposition(NamedTuple):
    """Var[g^i] = state + teammates + own, and the mean it varies about."""

    state: float
    """Var_s(E_u g): of the expected gradient over states."""
    teammates: float
    """T_i = E_s[ Var_{u^-i}( E_{u^i} g ) ]: no baseline b(s,u^-i) changes it."""
    own: float
    """O_i = E_{s,u^-i}[ Var_{u^i} g ]."""
    mean: Tensor
    """E g, [P]."""

    @property
    def total(self) -> float:
        """Var[g^i]."""
        return self.state + self.teammates + self.own

    @property
    def share(self) -> float:
        """T_i / (T_i + O_i), in [0,1]; NaN where the gradient does not vary with the joint action."""
        varying = self.teammates + self.own
        return self.teammates / varying if varying > 0 else math.nan

    @property
    def snr(self) -> float:
        """|E g|^2 / Var g; NaN where g does not vary."""
        return float(self.mean.square().sum()) / self.total if self.total > 0 else math.nan


def softmax_score(pi: Tensor) -> Tensor:
    """psi = grad log pi with respect to a softmax's logits, e_u - pi: [S,A] -> [S,A,A] (action, parameter)."""
    return torch.eye(pi.shape[-1], dtype=pi.dtype, device=pi.device) - pi.unsqueeze(-2)


def teammates(policies: Policies, i: int) -> Tensor:
    """pi^-i, the product of the others' policies in the order of their indices, [S,R] float64."""
    weights = torch.ones(len(policies[i]), 1, dtype=torch.float64, device=policies[i].device)
    for j, p in enumerate(policies):
        if j != i:
            weights = (weights.unsqueeze(-1) * p.double().unsqueeze(1)).flatten(1)
    return weights


def unroll(q: Tensor, policies: Policies, i: int) -> tuple[Tensor, Tensor, Tensor]:
    """Agent i's actions against its teammates': values [S,A_i,R], pi^i [S,A_i] and pi^-i [S,R], in float64."""
    pis = [p.double() for p in policies]
    if q.shape != (pis[0].shape[0], *(p.shape[1] for p in pis)):
        raise ValueError(f"q has shape {tuple(q.shape)}, policies {[tuple(p.shape) for p in pis]}")
    return q.double().movedim(1 + i, 1).flatten(2), pis[i], teammates(policies, i)


def state_weights(states: Tensor | None, count: int) -> Tensor:
    """Weights [S] in float64; uniform when None."""
    if states is None:
        return torch.full((count,), 1.0 / count, dtype=torch.float64)
    return states.double()


def decompose(g: Tensor, pi: Tensor, weights: Tensor, states: Tensor | None = None) -> Decomposition:
    """The law of total variance for any gradient estimator that is a function of (s, u).

    ``g`` [S,A_i,R,P] is the estimate of agent i at each joint action, ``pi`` [S,A_i] its policy, ``weights`` [S,R]
    the teammates' (as ``unroll`` gives them).
    """
    d, g, pi, weights = state_weights(states, g.shape[0]).to(g.device), g.double(), pi.double(), weights.double()
    inner = torch.einsum("sa,sarp->srp", pi, g)
    per_state = torch.einsum("sr,srp->sp", weights, inner)
    mean = d @ per_state
    own = torch.einsum("s,sr,sa,sar->", d, weights, pi, (g - inner.unsqueeze(1)).square().sum(-1))
    teammates = torch.einsum("s,sr,sr->", d, weights, (inner - per_state.unsqueeze(1)).square().sum(-1))
    state = d @ (per_state - mean).square().sum(-1)
    return Decomposition(float(state), float(teammates), float(own), mean)


def total_variance(g: Tensor, pi: Tensor, weights: Tensor, states: Tensor | None = None) -> float:
    """Var[g^i] straight from its definition, E|g|^2 - |E g|^2; arguments as ``decompose``. For checking the latter."""
    d = state_weights(states, g.shape[0]).to(g.device)
    p = d[:, None, None] * pi.double().unsqueeze(-1) * weights.double().unsqueeze(1)
    mean = torch.einsum("sar,sarp->p", p, g.double())
    return float((p * (g.double() - mean).square().sum(-1)).sum())


def centralised(
    q: Tensor,
    policies: Policies,
    i: int,
    states: Tensor | None = None,
    baseline: Tensor | None = None,
    score: Tensor | None = None,
) -> Decomposition:
    """Of g_C^i = (Q(s,u) - b(s,u^-i)) psi^i. ``baseline`` [S,R] or [S,1], 0 when None."""
    x, pi, weights = unroll(q, policies, i)
    if baseline is not None:
        x = x - baseline.double().unsqueeze(1)
    psi = softmax_score(pi) if score is None else score.double()
    return decompose(x.unsqueeze(-1) * psi.unsqueeze(2), pi, weights, states)


def decentralised(
    q: Tensor, policies: Policies, i: int, states: Tensor | None = None, score: Tensor | None = None
) -> Decomposition:
    """Of g_D^i = E_{u^-i}[Q] psi^i: what a critic that never saw the teammates' actions would give. T_i is 0."""
    x, pi, weights = unroll(q, policies, i)
    psi = softmax_score(pi) if score is None else score.double()
    local = torch.einsum("sar,sr->sa", x, weights)
    g = (local.unsqueeze(-1) * psi).unsqueeze(2)
    return decompose(g, pi, torch.ones_like(weights[:, :1]), states)


def gap(q: Tensor, policies: Policies, i: int, states: Tensor | None = None, score: Tensor | None = None) -> float:
    """Var[g_C] - Var[g_D] = E_{s,u^i}[ |psi^i|^2 Var_{u^-i} Q(s,u) ], never negative (Kuba et al. 2021, sec. 3)."""
    x, pi, weights = unroll(q, policies, i)
    psi = softmax_score(pi) if score is None else score.double()
    local = torch.einsum("sar,sr->sa", x, weights)
    spread = torch.einsum("sar,sr->sa", (x - local.unsqueeze(-1)).square(), weights)
    d = state_weights(states, q.shape[0]).to(q.device)
    return float(torch.einsum("s,sa,sa,sa->", d, pi, psi.square().sum(-1), spread))


def counterfactual_baseline(q: Tensor, policies: Policies, i: int) -> Tensor:
    """COMA's b(s,u^-i) = E_{u^i}[Q] (Foerster et al. 2018, eq. 4), [S,R]. It moves O_i only."""
    x, pi, _ = unroll(q, policies, i)
    return torch.einsum("sa,sar->sr", pi, x)


# -- teammate perturbation ------------------------------------------------------------------------------------------


def uniform(pi: Tensor, avail: Tensor | None = None) -> Tensor:
    """Uniform over the legal actions (all, when ``avail`` [S,A] is None), shaped as ``pi`` [S,A]."""
    legal = torch.ones_like(pi) if avail is None else avail.to(pi.dtype)
    return legal / legal.sum(-1, keepdim=True)


def greedy(pi: Tensor) -> Tensor:
    """All probability on the likeliest action, ties shared equally, [S,A]."""
    top = (pi >= pi.max(-1, keepdim=True).values * (1 - TIE)).to(pi.dtype)
    return top / top.sum(-1, keepdim=True)


def perturbed(policies: Policies, i: int, eps: float | str, avail: Policies | None = None) -> list[Tensor]:
    """Teammates of i at (1-eps) pi + eps uniform, or greedy with ``eps="greedy"``; pi^i stays."""

    def other(j: int, pi: Tensor) -> Tensor:
        if isinstance(eps, str):
            return greedy(pi)
        return (1 - eps) * pi + eps * uniform(pi, None if avail is None else avail[j])

    return [pi if j == i else other(j, pi) for j, pi in enumerate(policies)]


def expected_gradient(q: Tensor, policies: Policies, i: int, score: Tensor | None = None) -> Tensor:
    """E_{u}[Q psi^i] in each state, [S,P]."""
    x, pi, weights = unroll(q, policies, i)
    psi = softmax_score(pi) if score is None else score.double()
    return torch.einsum("sa,sar,sr,sap->sp", pi, x, weights, psi)


def agreement(g: Tensor, reference: Tensor) -> tuple[float, float]:
    """Cosine of ``g`` with ``reference``, both [S,P] as one vector, and the share of components that changed sign.

    Stacked over states they are the gradient of a tabular policy, so a state counts by the size of its gradient.
    Components that are 0 on either side (below 1e-12 of the largest) have no sign and are left out. NaN when a side
    is 0 altogether.
    """
    floor = 1e-12 * max(float(reference.abs().max()), float(g.abs().max()), 1e-300)
    lengths = float(g.norm()) * float(reference.norm())
    cosine = (
        float((g * reference).sum()) / lengths if min(float(g.norm()), float(reference.norm())) > floor else math.nan
    )
    signed = (g.abs() > floor) & (reference.abs() > floor)
    flips = (g.sign() != reference.sign())[signed].double()
    return max(-1.0, min(1.0, cosine)) if cosine == cosine else cosine, float(flips.mean()) if len(flips) else math.nan


def perturbation(
    q: Tensor, policies: Policies, i: int, eps: float | str, avail: Policies | None = None
) -> tuple[float, float]:
    """Cosine and sign-flip rate of agent i's expected gradient, teammates perturbed, against the unperturbed one."""
    changed = expected_gradient(q, perturbed(policies, i, eps, avail), i)
    return agreement(changed, expected_gradient(q, policies, i))


# -- values ---------------------------------------------------------------------------------------------------------


def legal_joint(shape: Sequence[int], avail: Policies | None, device: torch.device | None = None) -> Tensor:
    """[S,A_1,...,A_n] bool: every agent's action is legal."""
    legal = torch.ones(*shape, dtype=torch.bool, device=device)
    for j, a in enumerate(avail or ()):
        legal &= a.bool().reshape(a.shape[0], *(a.shape[1] if k == j else 1 for k in range(len(shape) - 1)))
    return legal


def shortfall(q: Tensor, actions: Tensor, avail: Policies | None = None) -> Tensor:
    """max_u Q(s,u) - Q(s,actions), over legal u, [S]; ``actions`` [S,n]."""
    best = q.masked_fill(~legal_joint(q.shape, avail, q.device), -torch.inf).flatten(1).max(-1).values
    here = q[(torch.arange(q.shape[0], device=q.device), *actions.long().unbind(-1))]
    return (best - here).clamp(min=0).double()


def igm_violations(q: Tensor, actions: Tensor, avail: Policies | None = None) -> Tensor:
    """[S] bool: the agents' greedy actions ``actions`` [S,n] are not a joint argmax of Q_tot (Son et al. 2019, eq. 1).

    Of two joint actions equally good either is an argmax, so a tie is no violation.
    """
    scale = q.double().flatten(1).abs().max(-1).values.clamp(min=1e-300)
    return shortfall(q, actions, avail) > TIE * scale


def joint_policy(policies: Policies) -> Tensor:
    """The product of the policies, [S,A_1,...,A_n]."""
    out = policies[0].double()
    for p in policies[1:]:
        out = out.unsqueeze(-1) * p.double().reshape(p.shape[0], *[1] * (out.dim() - 1), p.shape[1])
    return out


def representation_error(q_tot: Tensor, truth: Tensor, weights: Tensor | None = None) -> float:
    """Root mean squared error of ``q_tot`` to the true joint value, both [S,A_1,...,A_n].

    ``weights`` of the same shape, summing to 1: uniform when None; ``joint_policy(...) * states`` for on-policy.
    """
    error = (q_tot.double() - truth.double()).square()
    return float((error.mean() if weights is None else (weights * error).sum()).sqrt())
