"""A method at chosen states, read only through ``policy``, ``utilities`` and ``joint_value``.

S states out of the [B,T] moments of a batch; n agents, A actions or U numbers, M candidate joint actions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributions import Categorical, Independent, Normal

from harness.cdm.own import Unmeasurable
from harness.cdm.truth import joint_actions
from harness.types import Batch, Continuous, Discrete, Spec

ROWS = 2_000_000
"""Most (moment, candidate, agent) triples that a network is given at once."""


@dataclass
class Reader:
    """One method's networks on one batch."""

    method: Any
    net: nn.ModuleDict
    batch: Batch
    index: Tensor
    """[S] into the flattened [B*T] moments."""
    spec: Spec
    counts: dict[str, int] = field(default_factory=lambda: {"joint_value": 0, "utilities": 0})
    """Evaluations at the S states so far: what measuring cost."""

    @property
    def avail(self) -> Tensor:
        """Legal actions, [S,n,A] bool."""
        assert self.batch.avail is not None
        return self.batch.avail[:, :-1].flatten(0, 1)[self.index]

    def at(self, x: Tensor) -> Tensor:
        """The states' rows of a tensor [B,T,...]: [S,...]."""
        return x.flatten(0, 1)[self.index]

    @torch.no_grad()
    def policies(self) -> list[Tensor]:
        """Each agent's action probabilities, [n] of [S,A] float64: ``policy``, or else softmax of the utilities."""
        assert isinstance(self.spec.action, Discrete)
        if not hasattr(self.method, "policy"):
            table = self.utility_table().masked_fill(~self.avail, -torch.inf)
            return list(table.softmax(-1).unbind(1))
        pi = self.method.policy(self.net, self.batch)
        if not isinstance(pi, Categorical):
            raise Unmeasurable(f"policy gives a {type(pi).__name__}, not the Categorical of a discrete task")
        probs = self.at(pi.logits).double().masked_fill(~self.avail, -torch.inf).softmax(-1)
        return list(probs.unbind(1))

    @torch.no_grad()
    def gaussian(self) -> tuple[Tensor, Tensor]:
        """Mean and standard deviation of each agent's policy, [S,n,U] float64."""
        if not hasattr(self.method, "policy"):
            raise Unmeasurable("it has no policy")
        pi = self.method.policy(self.net, self.batch)
        base = pi.base_dist if isinstance(pi, Independent) else pi
        if not isinstance(base, Normal):
            raise Unmeasurable(f"policy gives a {type(base).__name__}, neither a softmax nor a Gaussian")
        return self.at(base.mean).double(), self.at(base.stddev).double()

    def joint_values(self, actions: Tensor) -> Tensor:
        """Q_tot of ``actions`` [S,M,n] | [S,M,n,U]: [S,M] float64."""
        if not hasattr(self.method, "joint_value"):
            raise Unmeasurable("it has no joint_value")
        self.counts["joint_value"] += actions.shape[0] * actions.shape[1]
        return self._ask(self.method.joint_value, actions)

    def utilities(self, actions: Tensor) -> Tensor:
        """Q_i of ``actions``: [S,M,n] float64."""
        if not hasattr(self.method, "utilities"):
            raise Unmeasurable("it has no utilities")
        self.counts["utilities"] += actions.shape[0] * actions.shape[1]
        return self._ask(self.method.utilities, actions)

    def utility_table(self) -> Tensor:
        """Q_i of every action, [S,n,A] float64."""
        assert isinstance(self.spec.action, Discrete)
        a, n = self.spec.action.n, self.spec.n_agents
        every = torch.arange(a, device=self.index.device)[None, :, None].expand(len(self.index), a, n)
        return self.utilities(every).transpose(1, 2)

    def joint_table(self) -> Tensor:
        """Q_tot of every joint action, [S,A,...,A] float64."""
        assert isinstance(self.spec.action, Discrete)
        a, n = self.spec.action.n, self.spec.n_agents
        every = joint_actions(n, a, self.index.device)
        values = self.joint_values(every.unsqueeze(0).expand(len(self.index), -1, -1))
        return values.reshape(len(self.index), *[a] * n)

    @torch.no_grad()
    def _ask(self, of: Callable[[nn.ModuleDict, Batch, Tensor], Tensor], actions: Tensor) -> Tensor:
        b, t = self.batch.mask.shape
        chunk = max(1, ROWS // (b * t * self.spec.n_agents))
        found = []
        for part in torch.split(actions, chunk, 1):
            room = self.batch.action.new_zeros(b * t, *part.shape[1:])
            room[self.index] = part.to(room.dtype)
            found.append(self.at(of(self.net, self.batch, room.reshape(b, t, *room.shape[1:]))).double())
        return torch.cat(found, 1)

    def clipped(self, actions: Tensor) -> Tensor:
        """Continuous actions as the environment plays them: inside the box."""
        assert isinstance(self.spec.action, Continuous)
        return actions.clamp(self.spec.action.low, self.spec.action.high)
