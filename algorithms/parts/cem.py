"""Greedy continuous actions by the cross-entropy method, each agent for itself (de Witt et al. 2020, COMIX)."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from harness.networks import RecurrentAgent
from harness.types import Continuous, Spec


class RecurrentUtility(nn.Module):
    """Q_i(tau_i, u_i) of continuous actions: a GRU over the history, then two linear layers over it and the action."""

    def __init__(self, spec: Spec, hidden: int) -> None:
        super().__init__()
        assert isinstance(spec.action, Continuous)
        self.box = spec.action
        self.agent = RecurrentAgent(spec, hidden, hidden)
        self.action = nn.Linear(spec.action.dim, hidden, bias=False)
        self.out = nn.Linear(hidden, 1)

    def value(self, encoded: Tensor, action: Tensor) -> Tensor:
        """Q_i [...] of ``action`` [...,U] under histories encoded as [...,H], broadcast over candidates."""
        q: Tensor = self.out(F.relu(self.action(action).add_(encoded), inplace=True)).squeeze(-1)
        return q


@torch.no_grad()
def cross_entropy_maximum(
    value: Callable[[Tensor], Tensor], shape: tuple[int, ...], box: Continuous, rng: torch.Generator | None,
    samples: int, elites: int, iterations: int, device: torch.device,
) -> Tensor:  # fmt: skip
    """An action [*shape,U] near the maximum of ``value`` ([S,*shape,U] -> [S,*shape]), one for each of ``shape``.

    Gaussians start at the middle of the box with its half-width as deviation and are fitted ``iterations`` times to
    the best
    ``elites`` of ``samples``; the best sample of all is returned. With ``rng`` None a fixed stream is drawn from, so
    that evaluation consumes no randomness.
    """
    rng = rng or torch.Generator(device).manual_seed(0)
    middle, half = (box.high + box.low) / 2, (box.high - box.low) / 2
    mean = torch.full((*shape, box.size), middle, device=device)
    std = torch.full_like(mean, half)
    best = mean
    best_value = value(mean.unsqueeze(0)).squeeze(0)
    for _ in range(iterations):
        noise = torch.randn((samples, *mean.shape), generator=rng, device=device)
        drawn = (mean + std * noise).clamp(box.low, box.high)
        worth = value(drawn)
        top, index = worth.topk(elites, dim=0)
        elite = drawn.gather(0, index.unsqueeze(-1).expand(*index.shape, box.size))
        mean, std = elite.mean(0), elite.std(0, unbiased=False)
        better = top[0] > best_value
        best = torch.where(better.unsqueeze(-1), elite[0], best)
        best_value = torch.maximum(best_value, top[0])
    return best
