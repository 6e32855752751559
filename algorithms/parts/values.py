"""What value decomposition methods with a greedy policy share: recurrent utilities and double Q-learning."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from algorithms.parts.policies import epsilon_greedy, legal
from harness.networks import Memory, last_actions
from harness.types import Action, Batch, Step


def all_utilities(net: nn.ModuleDict, batch: Batch) -> Tensor:
    """Q_i(tau_i, .) at every moment, [B,T+1,N,A]."""
    q: Tensor = net["agent"](batch.obs, last_actions(batch), lengths=batch.lengths)[0]
    return q


def chosen(q: Tensor, action: Tensor) -> Tensor:
    """The utilities of ``action`` [...,N] in ``q`` [...,N,A]: [...,N]."""
    return q.gather(-1, action.unsqueeze(-1)).squeeze(-1)


def candidate_utilities(q: Tensor, action: Tensor) -> Tensor:
    """The utilities of ``action`` [B,T,(M,)N] in ``q`` [B,T+1,N,A]: [B,T,(M,)N]."""
    q = q[:, : action.shape[1]]
    if action.dim() == 3:
        return chosen(q, action)
    return q.gather(-1, action.transpose(-1, -2)).transpose(-1, -2)


def double_q(q: Tensor, q_target: Tensor, avail: Tensor | None) -> Tensor:
    """Q^-_i of the action that is greedy under the current Q_i, among legal ones (van Hasselt et al. 2016): [...,N]."""
    return chosen(q_target, legal(q.detach(), avail).argmax(-1))


def act_epsilon_greedy(
    net: nn.ModuleDict, step: Step, memory: Memory | None, epsilon: float, rng: torch.Generator | None
) -> Action:
    """Each agent alone: epsilon-greedy on its own utilities; greedy when ``rng`` is None."""
    hidden, last = (None, None) if memory is None else (memory.hidden, memory.last_action.unsqueeze(1))
    q, hidden = net["agent"](step.obs.unsqueeze(1), last, hidden)
    action, log_prob = epsilon_greedy(q.squeeze(1), step.avail, epsilon, rng)
    return Action(action, log_prob, Memory(hidden, action))
