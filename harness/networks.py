"""Networks that methods are built from: a recurrent agent, an MLP, a hypernetwork."""

from __future__ import annotations

import itertools
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from harness.types import Batch, Spec


class Memory(NamedTuple):
    """What a recurrent agent carries from one step of an episode to the next."""

    hidden: Tensor  # [1,E*N,H]
    last_action: Tensor  # [E,N] int64 | [E,N,U]


class RecurrentAgent(nn.Module):
    """Linear, ReLU, GRU, linear, shared by all agents (the agent of QMIX, Rashid et al. 2018, and its successors).

    Input of agent i: its observation, its last action (one-hot, or as is when continuous; zero at the first step) and
    its own one-hot index. The products with the two one-hots are table look-ups, so nothing is concatenated.
    """

    def __init__(self, spec: Spec, outputs: int, hidden: int = 64) -> None:
        super().__init__()
        self.discrete = spec.action.kind == "discrete"
        self.sizes = [spec.obs_dim, spec.action.dim, spec.n_agents]
        self.embed = nn.Linear(sum(self.sizes), hidden)
        self.gru = nn.GRU(hidden, hidden)
        self.head = nn.Linear(hidden, outputs)

    def forward(self, obs: Tensor, last_action: Tensor | None, hidden: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """The whole sequence in one call.

        ``obs`` [B,T,N,O]; ``last_action`` [B,T,N] int64 with -1 for none | [B,T,N,U] | None for none anywhere;
        ``hidden`` [1,B*N,H], None for zero. Returns outputs [B,T,N,outputs] and the last hidden state [1,B*N,H].
        """
        b, t, n, _ = obs.shape
        from_obs, from_action, from_id = torch.split(self.embed.weight, self.sizes, dim=1)
        # Sums and ReLUs in place, on what was just made: the same numbers with fewer passes over memory.
        x = F.linear(obs.transpose(0, 1), from_obs, self.embed.bias).add_(from_id.t())  # [T,B,N,H]
        if last_action is not None:
            before = last_action.transpose(0, 1)
            if self.discrete:
                table = F.pad(from_action.t(), (0, 0, 1, 0))  # row 0: no action yet
                x = x.add_(F.embedding(before + 1, table))
            else:
                x = x.add_(F.linear(before, from_action))
        y, hidden = self.gru(x.relu_().reshape(t, b * n, -1), hidden)
        return self.head(y).reshape(t, b, n, -1).transpose(0, 1), hidden


def last_actions(batch: Batch) -> Tensor:
    """Each moment's previous action: [B,T+1,N] int64, -1 at the first | [B,T+1,N,U], 0 at the first."""
    first = torch.full_like(batch.action[:, :1], -1 if batch.action.dtype == torch.int64 else 0)
    return torch.cat([first, batch.action], 1)


def mlp(sizes: tuple[int, ...]) -> nn.Sequential:
    """Linear layers of the given sizes with ReLU between them."""
    layers: list[nn.Module] = []
    for i, (a, b) in enumerate(itertools.pairwise(sizes)):
        layers += [nn.ReLU()] * (i > 0) + [nn.Linear(a, b)]
    return nn.Sequential(*layers)
