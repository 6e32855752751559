"""Targets and advantages, computed backwards over whole padded episodes.

All take T steps; ``value`` is indexed by moments, T+1 of them. ``terminated`` [B,T] is 1 at true ends only: there
nothing follows. At a time limit (and wherever an episode's record ends) the value of the last moment follows.
"""

from __future__ import annotations

import torch
from torch import Tensor

from harness.types import Batch


def _backwards(base: Tensor, carry: Tensor) -> Tensor:
    """x_t = base_t + carry_t x_{t+1}, and 0 after the last step; both [B,T,...]."""
    x = torch.empty_like(base)
    following = torch.zeros_like(base[:, 0])
    for t in range(base.shape[1] - 1, -1, -1):
        following = torch.addcmul(base[:, t], carry[:, t], following)
        x[:, t] = following
    return x


def lambda_return(reward: Tensor, value: Tensor, terminated: Tensor, mask: Tensor, gamma: float, lam: float) -> Tensor:
    """TD(lambda) returns (Sutton & Barto 2018, eq. 12.18, backwards), [B,T]:

        y_t = r_t + gamma (1 - d_t) [ (1 - lam) V_{t+1} + lam y_{t+1} ]      with y_T = V_T after the last real step

    ``reward``, ``terminated``, ``mask`` [B,T]; ``value`` [B,T+1].
    """
    live = gamma * (1 - terminated)
    if lam == 0:
        return reward + live * value[:, 1:]
    follows = torch.zeros_like(mask)
    follows[:, :-1] = mask[:, 1:]  # whether step t+1 happened
    weight = lam * follows
    base = reward + live * (1 - weight) * value[:, 1:]
    carry = live * weight
    return _backwards(base, carry)


def gae(reward: Tensor, value: Tensor, terminated: Tensor, mask: Tensor, gamma: float, lam: float) -> Tensor:
    """Generalised advantage estimates (Schulman et al. 2016, eq. 16), of the same leading shape as ``value``'s T steps:

        A_t = delta_t + gamma lam (1 - d_t) A_{t+1},    delta_t = r_t + gamma (1 - d_t) V_{t+1} - V_t

    ``value`` [B,T+1,...]; the others [B,T], broadcast over what follows.
    """
    shape = reward.shape + (1,) * (value.dim() - reward.dim())
    reward, terminated, mask = (x.reshape(shape) for x in (reward, terminated, mask))
    live = gamma * (1 - terminated)
    delta = mask * (reward + live * value[:, 1:] - value[:, :-1])
    carry = (lam * live * mask).expand_as(delta)
    return _backwards(delta, carry)


def acting(batch: Batch) -> Tensor:
    """[B,T,N] float: the agent was alive at this step, and the step happened. The dead decide nothing."""
    return batch.alive[:, :-1] * batch.mask.unsqueeze(-1)


def masked_mean(x: Tensor, mask: Tensor) -> Tensor:
    """Mean of ``x`` where ``mask`` is 1; both of one shape. Padding never counts, whatever its value."""
    return (torch.where(mask > 0, x, torch.zeros_like(x)) * mask).sum() / mask.sum().clamp(min=1)


def retrace(
    reward: Tensor, value: Tensor, q_taken: Tensor, trace: Tensor, terminated: Tensor, mask: Tensor, gamma: float
) -> Tensor:
    """Multi-step Sarsa targets with Retrace's traces (Munos et al. 2016), backwards, [B,T]:

        y_t = r_t + gamma (1 - d_t) [ V_{t+1} + c_{t+1} (y_{t+1} - Q_{t+1}) ]      c = 0 after the last real step

    ``reward``, ``q_taken`` (Q of the action taken), ``trace`` (c), ``terminated``, ``mask`` [B,T]; ``value`` (V of an
    action of the current policy) [B,T+1].
    """
    live = gamma * (1 - terminated)
    follows = torch.zeros_like(mask)
    follows[:, :-1] = mask[:, 1:] * trace[:, 1:]  # c_{t+1} where step t+1 happened
    q_next = torch.zeros_like(q_taken)
    q_next[:, :-1] = q_taken[:, 1:]
    base = reward + live * (value[:, 1:] - follows * q_next)
    carry = live * follows
    return _backwards(base, carry)
