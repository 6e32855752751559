"""What value decomposition methods for continuous actions share: recurrent utilities maximised by CEM."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from algorithms.parts.cem import RecurrentUtility, cross_entropy_maximum
from algorithms.parts.critics import blocks
from algorithms.parts.policies import around, sample
from harness.networks import Memory, last_actions
from harness.types import Action, Batch, Step


def encode_history(agent: RecurrentUtility, batch: Batch) -> Tensor:
    """Each agent's history at every moment, [B,T+1,N,H]."""
    encoded: Tensor = agent.agent(batch.obs, last_actions(batch), lengths=batch.lengths)[0]
    return encoded


def maximising(agent: RecurrentUtility, encoded: Tensor, rng: torch.Generator | None, cem: dict[str, int]) -> Tensor:
    """The action [...,U] that maximises each Q_i under histories ``encoded`` [...,H], as CEM finds it."""
    shape = encoded.shape[:-1]

    def value(action: Tensor) -> Tensor:
        return torch.cat([agent.value(encoded, action[b]) for b in blocks(action, shape.numel())])

    return cross_entropy_maximum(value, tuple(shape), agent.box, rng, device=encoded.device, **cem)


def act_by_cem(
    agent: RecurrentUtility, step: Step, memory: Any, noise: float, rng: torch.Generator | None, cem: dict[str, int]
) -> Action:
    """Each agent alone: its best action plus Gaussian noise (in half-widths), clipped; none when ``rng`` is None."""
    hidden, last = (None, None) if memory is None else (memory.hidden, memory.last_action.unsqueeze(1))
    encoded, hidden = agent.agent(step.obs.unsqueeze(1), last, hidden)
    best = maximising(agent, encoded, rng, cem).squeeze(1)
    pi = around(best, noise, agent.box)
    action = sample(pi, rng)
    return Action(action, pi.log_prob(action), Memory(hidden, action))
