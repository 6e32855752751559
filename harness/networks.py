"""Networks that methods are built from: a recurrent agent, an MLP, a hypernetwork."""

from __future__ import annotations

import itertools
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from harness.types import Batch, Spec

WORTH_PARTS = 128
"""Fewer rows than this (episodes x agents) are done whole: calls would cost more than the padding left out."""


def going_on(lengths: Tensor, moments: int) -> list[tuple[int, int, int]]:
    """A sequence in at most four parts (start, end, episodes): from one to the next a quarter of the episodes ends.

    ``lengths`` as ``Batch``'s; an episode of L steps has L+1 moments, of which the first ``moments`` are meant. More
    parts would leave out little more of the padding.
    """
    last = (lengths + 1).clamp(max=moments).tolist()
    parts, start = [], 0
    for quarter in (3, 2, 1, 0):
        end = last[len(last) * quarter // 4]
        if end > start:
            parts.append((start, end, sum(x > start for x in last)))
            start = end
    return parts


def happened(lengths: Tensor, moments: int) -> tuple[Tensor, Tensor] | None:
    """Episode and moment, [R] each, of those of the first ``moments`` that happened; None where all did.

    ``lengths`` as ``Batch``'s. A network without memory can go over these alone: x[episode, moment].
    """
    there = torch.arange(moments) <= lengths.unsqueeze(1)
    if bool(there.all()):
        return None
    episode, moment = there.nonzero(as_tuple=True)
    return episode, moment


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

    def forward(
        self, obs: Tensor, last_action: Tensor | None, hidden: Tensor | None = None, lengths: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """The whole sequence in one call.

        ``obs`` [B,T,N,O]; ``last_action`` [B,T,N] int64 with -1 for none | [B,T,N,U] | None for none anywhere;
        ``hidden`` [1,B*N,H], None for zero. Returns outputs [B,T,N,outputs] and the last hidden state [1,B*N,H].

        ``lengths`` as ``Batch``'s: episodes that have ended may then be left out, a part of the sequence at a time;
        their outputs are 0, and the hidden state returned is that of the episodes still in the last part.
        """
        parts, outputs = [(0, obs.shape[1], obs.shape[0])], []
        if lengths is not None and obs.shape[0] * obs.shape[2] >= WORTH_PARTS:
            parts = going_on(lengths, obs.shape[1])
        for start, end, b in parts:
            before = None if last_action is None else last_action[:b, start:end].transpose(0, 1)
            x = self._embed(obs[:b, start:end].transpose(0, 1), before)  # [T,B*N,H]
            y, hidden = self.gru(x, hidden if hidden is None else hidden[:, : x.shape[1]])
            q = self.head(y).reshape(end - start, b, obs.shape[2], -1).transpose(0, 1)
            outputs.append(q if b == obs.shape[0] else F.pad(q, (0, 0) * 3 + (0, obs.shape[0] - b)))
        assert hidden is not None
        return outputs[0] if len(parts) == 1 else torch.cat(outputs, 1), hidden

    def _embed(self, obs: Tensor, before: Tensor | None) -> Tensor:
        """What the GRU is given, [T,B*N,H], of ``obs`` [T,B,N,O] and ``before`` [T,B,N,(U)].

        In place on what was just made: fewer passes over memory. In two dimensions until the end: what is done in place
        on a view costs the backward pass two copies.
        """
        t, b, n, _ = obs.shape
        from_obs, from_action, from_id = torch.split(self.embed.weight, self.sizes, dim=1)
        row, table = torch.arange(n, device=obs.device).expand(t, b, n), from_id.t()
        if before is not None and self.discrete:
            row = row + (before + 1) * n
            table = (F.pad(from_action.t(), (0, 0, 1, 0)).unsqueeze(1) + table).flatten(0, 1)  # rows 0..N-1: none yet
        x = F.linear(rows(obs), from_obs, self.embed.bias).add_(F.embedding(row.reshape(-1), table))
        if before is not None and not self.discrete:
            x = x.add_(F.linear(rows(before), from_action))
        return x.relu_().view(t, b * n, -1)


def rows(x: Tensor) -> Tensor:
    """``x`` [...,F] as a matrix of rows."""
    return x.reshape(-1, x.shape[-1])


def last_actions(batch: Batch) -> Tensor:
    """Each moment's previous action: [B,T+1,N] int64, -1 at the first | [B,T+1,N,U], 0 at the first."""
    first = torch.full_like(batch.action[:, :1], -1 if batch.action.dtype == torch.int64 else 0)
    return torch.cat([first, batch.action], 1)


def mlp(sizes: tuple[int, ...]) -> nn.Sequential:
    """Linear layers of the given sizes with ReLU between them, in place on what the layer before just made."""
    layers: list[nn.Module] = []
    for i, (a, b) in enumerate(itertools.pairwise(sizes)):
        layers += [nn.ReLU(inplace=True)] * (i > 0) + [nn.Linear(a, b)]
    return nn.Sequential(*layers)
