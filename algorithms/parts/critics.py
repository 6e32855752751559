"""Per-agent critics Q_i that a mixer turns into Q_tot, and a critic of the state."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from algorithms.parts.values import candidate_utilities
from harness.networks import happened, mlp, rows
from harness.types import Batch, Spec


class ActionsOut(nn.Module):
    """Q_i of every discrete action from (observation, state, agent index): an MLP with two hidden layers.

    The state's part of the first layer is computed once and added for all agents; nothing is concatenated.
    """

    def __init__(self, spec: Spec, hidden: int) -> None:
        super().__init__()
        self.sizes = [spec.obs_dim, spec.state_dim, spec.n_agents]
        self.first = nn.Linear(sum(self.sizes), hidden)
        self.rest = nn.Sequential(nn.ReLU(), *mlp((hidden, hidden, spec.action.dim)))

    def encode(self, obs: Tensor, state: Tensor, lengths: Tensor | None = None) -> Tensor:
        """``obs`` [B,T,N,O], ``state`` [B,T,G] -> Q_i of all actions [B,T,N,A]; ``lengths`` as ``Batch``'s: what comes
        after an episode's end may then be left out, and is 0."""
        there = None if lengths is None else happened(lengths, obs.shape[1])
        if there is not None:
            there = there[0].to(obs.device), there[1].to(obs.device)
            q = self._all(obs[there], state[there])  # [R,N,A]
            return q.new_zeros(*obs.shape[:-1], q.shape[-1]).index_put(there, q)
        return self._all(obs, state)

    def _all(self, obs: Tensor, state: Tensor) -> Tensor:
        """Q_i of all actions [...,N,A] of ``obs`` [...,N,O] and ``state`` [...,G]."""
        from_obs, from_state, from_id = torch.split(self.first.weight, self.sizes, dim=1)
        x = F.linear(obs, from_obs).add_(F.linear(state, from_state, self.first.bias).unsqueeze(-2)).add_(from_id.t())
        q: Tensor = self.rest(rows(x))
        return q.view(*obs.shape[:-1], -1)

    @staticmethod
    def value(encoded: Tensor, action: Tensor) -> Tensor:
        """Q_i of ``action`` [B,T,(M,)N] int64, same shape."""
        return candidate_utilities(encoded, action)


class ActionsIn(nn.Module):
    """Q_i of one action from (observation, action vector, agent index): an MLP with two hidden layers.

    The observation's part of the first layer is computed once and added for all candidate actions.
    """

    def __init__(self, spec: Spec, hidden: int) -> None:
        super().__init__()
        self.sizes = [spec.obs_dim, spec.n_agents, spec.action.dim]
        self.first = nn.Linear(sum(self.sizes), hidden)
        self.second = nn.Linear(hidden, hidden)
        self.out = nn.Linear(hidden, 1)

    def encode(self, obs: Tensor, state: Tensor, lengths: Tensor | None = None) -> Tensor:
        """``obs`` [B,T,N,O] -> what the first layer makes of it [B,T,N,H]; ``state`` and ``lengths`` are not read."""
        from_obs, from_id, _ = torch.split(self.first.weight, self.sizes, dim=1)
        return F.linear(obs, from_obs, self.first.bias) + from_id.t()

    def value(self, encoded: Tensor, action: Tensor) -> Tensor:
        """Q_i [B,T,(M,)N] of ``action`` [B,T,(M,)N,U] float (U = A for one-hot or relaxed discrete actions)."""
        from_action = self.first.weight[:, -self.sizes[2] :]
        # In place on what was just made, in two dimensions: on a view it would cost the backward pass two copies.
        x = F.linear(rows(action), from_action)
        if action.dim() == encoded.dim():
            x = x.add_(rows(encoded))
        else:
            x = rows(x.view(*action.shape[:-1], -1).add_(encoded.unsqueeze(-3)))
        q: Tensor = self.out(self.second(x.relu_()).relu_())
        return q.view(action.shape[:-1])


BLOCK = 8192
"""Candidate actions (each an agent's) that are valued at a time on the CPU: what the layers make of them stays in its
cache. 100 million activations took 206 ms at once and 91 to 98 in blocks of 1,500 to 24,000 (docs/performance.md)."""


def blocks(action: Tensor, each: int) -> list[slice]:
    """Parts of the first dimension of ``action`` with about ``BLOCK`` actions each, of which one entry holds ``each``;
    all of it on a GPU, where large kernels are the fast ones."""
    count = len(action)
    size = max(BLOCK // each, 1) if action.device.type == "cpu" else count
    return [slice(start, start + size) for start in range(0, count, size)]


def encode(critic: nn.Module, batch: Batch) -> Tensor:
    """The critic's encoding of every moment of ``batch``, [B,T+1,N,...]."""
    encoded: Tensor = critic.encode(batch.obs, batch.state, batch.lengths)  # type: ignore[operator]
    return encoded


class StateValue(nn.Module):
    """V(s_1..s_t) from the sequence of states: linear, ReLU, GRU, linear; with the returns' running mean and variance.

    It puts out values on the scale where returns have mean 0 and variance 1 (Yu et al. 2022, value normalisation).
    """

    mean: Tensor
    square: Tensor
    weight: Tensor

    def __init__(self, state_dim: int, hidden: int, decay: float = 0.995) -> None:
        super().__init__()
        self.decay = decay
        self.embed = nn.Linear(state_dim, hidden)
        self.gru = nn.GRU(hidden, hidden)
        self.head = nn.Linear(hidden, 1)
        for name in ("mean", "square", "weight"):
            self.register_buffer(name, torch.zeros(()))

    def forward(self, state: Tensor) -> Tensor:
        """Normalised values [B,T] of ``state`` [B,T,G]."""
        x, _ = self.gru(F.relu(self.embed(state.transpose(0, 1))))
        value: Tensor = self.head(x).squeeze(-1).transpose(0, 1)
        return value

    @torch.no_grad()
    def observe(self, returns: Tensor, mask: Tensor) -> None:
        """Move the running moments towards those of ``returns`` [B,T] where ``mask`` is 1."""
        count = mask.sum().clamp(min=1)
        kept = torch.where(mask > 0, returns, torch.zeros_like(returns))
        for buffer, now in ((self.mean, kept.sum() / count), (self.square, (kept**2).sum() / count)):
            buffer.lerp_(now, 1 - self.decay)
        self.weight.lerp_(torch.ones_like(self.weight), 1 - self.decay)

    def _moments(self) -> tuple[Tensor, Tensor]:
        seen = self.weight.clamp(min=1e-8)  # undoes the pull of the zeros that the running means began with
        mean = self.mean / seen
        std = (self.square / seen - mean**2).clamp(min=1e-2).sqrt()
        blank = self.weight == 0
        return torch.where(blank, torch.zeros_like(mean), mean), torch.where(blank, torch.ones_like(std), std)

    def normalise(self, returns: Tensor) -> Tensor:
        """Returns on the network's scale."""
        mean, std = self._moments()
        return (returns - mean) / std

    def denormalise(self, value: Tensor) -> Tensor:
        """The network's values on the returns' scale."""
        mean, std = self._moments()
        return value * std + mean
