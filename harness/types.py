"""The glossary of shapes: every array that crosses a room's door is one of these.

N agents, O observation size, G state size, A discrete actions, U continuous action size,
E parallel environments, B episodes, T steps, M candidate joint actions.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor


@dataclass(frozen=True)
class Discrete:
    """``n`` actions an agent, A in the shapes; which are legal is said by ``Step.avail``."""

    n: int
    kind = "discrete"

    @property
    def dim(self) -> int:
        """Size of an action as a network reads it: one-hot, so A."""
        return self.n


@dataclass(frozen=True)
class Continuous:
    """``size`` numbers an agent, U in the shapes, each in [low, high]."""

    low: float
    high: float
    size: int
    kind = "continuous"

    @property
    def dim(self) -> int:
        """Size of an action as a network reads it: U."""
        return self.size


@dataclass(frozen=True)
class Spec:
    """What a method may know of a task."""

    n_agents: int
    obs_dim: int
    state_dim: int
    episode_limit: int
    action: Discrete | Continuous
    outcomes: tuple[str, ...] = ()
    """Names of what an episode ends with beside its return, e.g. ``("won",)``; each 0 or 1."""


class Step(NamedTuple):
    """One moment of E environments, after ``reset`` or ``step``.

    After ``reset`` the reward is 0 and nothing is finished. A finished environment idles: its flags
    stay up, its reward is 0, its observation stays, some action stays legal.
    """

    obs: Tensor  # [E,N,O] float32
    state: Tensor  # [E,G] float32
    avail: Tensor | None  # [E,N,A] bool; None for continuous actions
    alive: Tensor  # [E,N] bool
    reward: Tensor  # [E] float32, the team's
    terminated: Tensor  # [E] bool: a true end, worth nothing afterwards
    truncated: Tensor  # [E] bool: a time limit, worth what comes after
    outcome: dict[str, Tensor]  # name -> [E] float32, read where an environment has just finished


class Action(NamedTuple):
    """What a method does with a ``Step``."""

    action: Tensor  # [E,N] int64 | [E,N,U] float32
    log_prob: Tensor  # [E,N] float32, of the behaviour policy that drew it
    memory: Any  # whatever the method wants back at the next step


@dataclass(frozen=True)
class Batch:
    """Whole episodes from their first step, padded at the end to a common length.

    ``obs``, ``state``, ``avail`` and ``alive`` hold T+1 moments: the last real one follows the last action.
    Padding is zero, and legal where it is ``avail``.
    """

    obs: Tensor  # [B,T+1,N,O] float32
    state: Tensor  # [B,T+1,G] float32
    avail: Tensor | None  # [B,T+1,N,A] bool; None for continuous actions
    alive: Tensor  # [B,T+1,N] bool
    action: Tensor  # [B,T,N] int64 | [B,T,N,U] float32
    log_prob: Tensor  # [B,T,N] float32, of the behaviour policy
    reward: Tensor  # [B,T] float32
    terminated: Tensor  # [B,T] float32: 1 at a true end only, never at a time limit
    mask: Tensor  # [B,T] float32: 1 where this step happened
    lengths: Tensor | None = None
    """[B] int64 on the CPU: steps of each episode, where they lie longest first; None in any other order."""
    extra: dict[str, Tensor] = field(default_factory=dict)
    """What a loss's ``prepare`` computed once for all its epochs; each [B], [B,T,...] or [B,T+1,...]."""

    @property
    def valid(self) -> Tensor:
        """[B,T+1] bool: this moment happened (the one after the last action included)."""
        return torch.cat([torch.ones_like(self.mask[:, :1]), self.mask], 1) > 0

    def map(self, f: Callable[[Tensor], Tensor]) -> Batch:
        """``f`` applied to every tensor but ``lengths``, which is left out: ``f`` may change their order."""
        changed: dict[str, Any] = {k: v if v is None else f(v) for k, v in self.tensors().items()}
        return dataclasses.replace(self, **changed, lengths=None, extra={k: f(v) for k, v in self.extra.items()})

    def tensors(self) -> dict[str, Tensor | None]:
        """Fields by name, ``lengths`` and ``extra`` left out."""
        return {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name not in ("lengths", "extra")}

    def clean(self) -> Batch:
        """The same episodes with padding and the observations of dead agents set to neutral values.

        Losses are only ever given clean batches, so no garbage (NaN included) in what did not happen can reach
        a loss or a gradient: 0 * NaN is NaN, which a mask alone would let through.
        """
        valid, step = self.valid, self.mask > 0

        def keep(x: Tensor, where: Tensor) -> Tensor:
            return torch.where(where.reshape(where.shape + (1,) * (x.dim() - where.dim())), x, torch.zeros_like(x))

        alive = self.alive & valid[..., None]
        return dataclasses.replace(
            self,
            obs=keep(self.obs, alive),
            state=keep(self.state, valid),
            avail=None if self.avail is None else self.avail | ~valid[..., None, None],
            alive=alive,
            action=keep(self.action, step),
            log_prob=keep(self.log_prob, step),
            reward=keep(self.reward, step),
            terminated=keep(self.terminated, step),
        )


class Row(NamedTuple):
    """One measured number, as the store keeps it."""

    env_steps: int
    split: str  # "train" | "eval" | "final"
    metric: str
    value: float
    episodes: tuple[float, ...] = ()  # raw values, one an episode, of eval and final rows


@dataclass(frozen=True)
class Trial:
    """One seeded run: everything needed to repeat it. Only JSON values inside, so that any executor can send it."""

    experiment: str
    suite: str
    task: str
    algorithm: str
    """Label: a registered name, or a variant of it (``harness.variant``): ``name@preset``, ``name@field=value``."""
    seed: int
    settings: Mapping[str, Any]
    """``{"algorithm": every field, "suite": every field, "budget": every field of Budget, "engine": str}``; where asked
    for also ``"corrupt"`` (text, see ``harness.cdm.corrupt``) and ``"cdm": True`` or ``"final"``."""
    results: str = "results"
    """Root folder of all experiments."""
    device: str = "cpu"

    @property
    def key(self) -> str:
        """Its folder below ``results``: experiment/suite/task/algorithm/seed_k."""
        return f"{self.experiment}/{self.suite}/{self.task}/{self.algorithm}/seed_{self.seed}"


class Progress(NamedTuple):
    """What a running trial tells its runner, a few times a second at most."""

    env_steps: int
    total: int
    steps_per_s: float
    phase: str  # "starting" | "training" | "evaluating" | "final" | "done"
    metric: str = ""
    last_eval: float | None = None
