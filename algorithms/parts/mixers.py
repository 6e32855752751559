"""Mixers: from utilities Q^1..Q^N and the state to Q_tot."""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from harness.networks import mlp, rows


class Weights(NamedTuple):
    """A mixer's layers for given states, as its hypernetworks put them out; H is the mixer's embedding."""

    w1: Tensor  # [...,N,H]
    b1: Tensor  # [...,H]
    w2: Tensor  # [...,H]
    b2: Tensor  # [...]

    def part(self, episodes: slice) -> Weights:
        """Those of some episodes."""
        return Weights(*(x[episodes] for x in self))


class HyperMixer(nn.Module):
    """QMIX's mixing network (Rashid et al. 2018, fig. 2): two layers whose weights are functions of the state.

    Q_tot = w2 . elu(W1 q + b1) + b2, with |W1|, |w2| when ``monotonic`` (so dQ_tot/dQ_i >= 0), and as they come when
    not (FACMAC-nonmonotonic, Peng et al. 2021).
    """

    def __init__(self, n_agents: int, state_dim: int, embed: int = 32, hyper: int = 64, monotonic: bool = True) -> None:
        super().__init__()
        self.n_agents, self.embed, self.monotonic = n_agents, embed, monotonic
        self.hyper_w1 = mlp((state_dim, hyper, n_agents * embed))
        self.hyper_b1 = nn.Linear(state_dim, embed)
        self.hyper_w2 = mlp((state_dim, hyper, embed))
        self.hyper_b2 = mlp((state_dim, embed, 1))

    def weights(self, state: Tensor) -> Weights:
        """The layers for ``state`` [...,G]; computed once, they serve any number of candidate actions."""
        shape, state = state.shape[:-1], rows(state)
        w1, w2 = self.hyper_w1(state), self.hyper_w2(state)
        if self.monotonic:
            w1, w2 = w1.abs(), w2.abs()
        b1, b2 = self.hyper_b1(state), self.hyper_b2(state)
        return Weights(
            w1.view(*shape, self.n_agents, self.embed), b1.view(*shape, -1), w2.view(*shape, -1), b2.view(shape)
        )

    @staticmethod
    def mix(q: Tensor, w: Weights) -> Tensor:
        """Q_tot [...,M] of utilities ``q`` [...,M,N] under weights for [...]."""
        hidden = F.elu(torch.matmul(q, w.w1).add_(w.b1.unsqueeze(-2)), inplace=True)  # [...,M,H]
        return torch.matmul(hidden, w.w2.unsqueeze(-1)).squeeze(-1) + w.b2.unsqueeze(-1)

    def forward(self, q: Tensor, state: Tensor) -> Tensor:
        """Q_tot [...] of ``q`` [...,N] in ``state`` [...,G]."""
        return self.mix(q.unsqueeze(-2), self.weights(state)).squeeze(-1)


class SumMixer(nn.Module):
    """VDN's mixer (Sunehag et al. 2018): the sum of the utilities; no parameters, the state is not read."""

    def weights(self, state: Tensor) -> None:
        """Nothing depends on the state."""

    @staticmethod
    def mix(q: Tensor, w: None) -> Tensor:
        """Q_tot [...,M] of utilities ``q`` [...,M,N]."""
        return q.sum(-1)

    def forward(self, q: Tensor, state: Tensor) -> Tensor:
        """Q_tot [...] of ``q`` [...,N]."""
        return q.sum(-1)


MixerKind = Literal["monotonic", "linear", "unconstrained"]


def mixer(kind: MixerKind, n_agents: int, state_dim: int, embed: int, hyper: int) -> HyperMixer | SumMixer:
    """QMIX's monotonic mixer, VDN's sum, or QMIX's without the absolute values."""
    if kind == "linear":
        return SumMixer()
    return HyperMixer(n_agents, state_dim, embed, hyper, monotonic=kind == "monotonic")
