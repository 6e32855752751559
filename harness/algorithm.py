"""What a method is: hyperparameters are fields, equations are methods."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, Protocol, runtime_checkable

import torch
from annotated_types import Ge, Gt, Le
from torch import Tensor, nn

from harness.types import Action, Batch, Spec, Step

Share = Annotated[float, Ge(0), Le(1)]
Positive = Annotated[float, Gt(0)]
NonNegative = Annotated[float, Ge(0)]
Count = Annotated[int, Ge(1)]
Natural = Annotated[int, Ge(0)]
"""Types of hyperparameters: a value outside the range is refused by the field's name before anything starts."""

Metrics = dict[str, Tensor]
LossFunction = Callable[[nn.ModuleDict, nn.ModuleDict, Batch, torch.Generator], tuple[Tensor, Metrics]]
Prepare = Callable[[nn.ModuleDict, nn.ModuleDict, Batch, torch.Generator], Batch]


@dataclass(frozen=True)
class Loss:
    """One objective and how it is descended."""

    name: str
    """Prefix of its metrics, e.g. "critic"."""
    trains: tuple[str, ...]
    """Names of the networks it may move; a gradient never reaches another."""
    of: LossFunction
    """(net, target, batch, rng) -> (scalar, metrics of scalars). No loop over devices, no optimiser, no ``.item()``."""
    lr: float
    clip: float = 10.0
    """Largest norm of the gradient over ``trains``."""
    eps: float = 1e-8
    """Adam's epsilon."""
    optimiser: Literal["adam", "rmsprop"] = "adam"
    anneal: bool = False
    """Learning rate falls linearly to 0 over the budget."""
    epochs: int = 1
    minibatches: int = 1
    """Parts into which the episodes are shuffled anew each epoch."""
    prepare: Prepare | None = None
    """Done once before the epochs; returns the batch with ``extra`` filled (each [B,...], split with the episodes)."""


@dataclass(frozen=True)
class Targets:
    """Slowly moving copies of networks: a hard copy every so many episodes, or a soft step after every update."""

    networks: tuple[str, ...] = ()
    every_episodes: int | None = None
    tau: float | None = None


@runtime_checkable
class Algorithm(Protocol):
    """A frozen dataclass whose fields are its hyperparameters, each with a docstring below it.

    The docstring's first line is what ``harness list algorithms`` prints. No inheritance between methods.

    Fields every method has: ``num_envs`` (parallel environments) and ``gamma``. Methods with ``data = "replay"`` also
    have ``buffer_episodes``, ``batch_episodes`` and ``updates_per_collect`` (gradient updates after each round
    of ``num_envs`` episodes); those with ``data = "on_policy"`` learn once from each round of episodes.
    """

    data: ClassVar[Literal["replay", "on_policy"]]
    actions: ClassVar[frozenset[str]]
    """Action kinds it can play: "discrete" and/or "continuous"."""
    presets: ClassVar[Mapping[str, Mapping[str, Any]]]
    """Named sets of field values, used as ``qmix@pymarl2``. One named after an action kind, a suite or both
    ("continuous", "matrix", "matrix-continuous") is taken there by default; the later of these wins."""

    num_envs: int
    gamma: float

    def networks(self, spec: Spec) -> nn.ModuleDict:
        """Fresh networks, children named as in the paper."""
        ...

    def act(self, net: nn.ModuleDict, step: Step, memory: Any, env_steps: int, rng: torch.Generator | None) -> Action:
        """Decentralised: agent i reads only its own observations. ``memory`` is None at an episode's first step.

        With ``rng`` None it acts greedily and without randomness (evaluation).
        """
        ...

    def losses(self) -> tuple[Loss, ...]:
        """In the paper's order; each sees the networks that the one before it has just moved."""
        ...

    def targets(self) -> Targets:
        """Which networks have target copies, and how these follow."""
        ...


# Read by the diagnostics; a method without one of them leaves it out:
#   policy(net, batch) -> torch.distributions.Distribution   batch shape [B,T,N] (or [B,T,N] with event [U])
#   utilities(net, batch, action) -> Tensor   Q_i   action [B,T,(M,)N] | [B,T,(M,)N,U] -> [B,T,(M,)N]
#   joint_value(net, batch, action) -> Tensor Q_tot action [B,T,(M,)N] | [B,T,(M,)N,U] -> [B,T,(M)]
