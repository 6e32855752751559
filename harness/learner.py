"""Optimisers, clipping, target networks, minibatches: the only place with ``.backward()``."""

from __future__ import annotations

import copy
import math
from typing import Any

import torch
from torch import Tensor, nn

from harness import contract
from harness.algorithm import Algorithm, Loss
from harness.replay import split
from harness.types import Batch


class Learner:
    """Descends a method's losses in their order and moves its target networks."""

    def __init__(self, algorithm: Algorithm, net: nn.ModuleDict) -> None:
        self.net = net
        self.losses = algorithm.losses()
        self.rule = algorithm.targets()
        contract.learning(net, self.losses, self.rule)
        self.target = nn.ModuleDict({name: copy.deepcopy(net[name]) for name in self.rule.networks})
        self.target.requires_grad_(False)
        self.parameters = [[p for name in loss.trains for p in net[name].parameters()] for loss in self.losses]
        self.optimisers = [_optimiser(loss, params) for loss, params in zip(self.losses, self.parameters, strict=True)]
        self.updates = 0
        """Gradient steps of the first loss so far."""
        self.episodes = 0
        self._copied = 0
        self._worst: list[Tensor | None] = [None] * len(self.losses)  # [2]: greatest |value| and gradient norm

    def update(self, batch: Batch, progress: float, rng: torch.Generator, order: torch.Generator) -> dict[str, Tensor]:
        """One pass of every loss over ``batch``. Returns each metric's mean over its gradient steps.

        ``progress`` in [0,1] is the share of the budget used; ``rng`` (on the device) is for the losses, ``order``
        (CPU) for shuffling minibatches.
        """
        metrics: dict[str, Tensor] = {}
        for k, (loss, optimiser, params) in enumerate(zip(self.losses, self.optimisers, self.parameters, strict=True)):
            if loss.prepare is not None:
                with torch.no_grad():
                    batch = loss.prepare(self.net, self.target, batch, rng)
            if loss.anneal:
                for group in optimiser.param_groups:
                    group["lr"] = loss.lr * (1 - progress)
            values: list[Tensor] = []
            found: list[dict[str, Tensor]] = []
            for _ in range(loss.epochs):
                for part in split(batch, loss.minibatches, order):
                    value, seen = self._step(loss, optimiser, params, part, rng)
                    values.append(value)
                    found.append(seen)
                    self.updates += k == 0
            self._watch(k, values, [f["grad_norm"] for f in found])
            metrics |= {f"{loss.name}/{m}": torch.stack([f[m] for f in found]).mean() for m in found[0]}
        self._soft_targets()
        return metrics

    def _step(
        self,
        loss: Loss,
        optimiser: torch.optim.Optimizer,
        params: list[nn.Parameter],
        batch: Batch,
        rng: torch.Generator,
    ) -> tuple[Tensor, dict[str, Tensor]]:
        value, metrics = loss.of(self.net, self.target, batch, rng)
        optimiser.zero_grad(set_to_none=True)
        value.backward(inputs=params)  # type: ignore[no-untyped-call]
        norm = nn.utils.clip_grad_norm_(params, loss.clip, foreach=True)
        optimiser.step()
        return value.detach(), {name: m.detach() for name, m in metrics.items()} | {"grad_norm": norm}

    # -- divergence -----------------------------------------------------------------------------------------------

    def _watch(self, k: int, values: list[Tensor], norms: list[Tensor]) -> None:
        """Keep the worst that the ``k``-th loss has shown, on the device: a maximum lets neither NaN nor inf go."""
        worst = torch.stack([*values, *norms]).view(2, -1).abs().amax(1)
        before = self._worst[k]
        self._worst[k] = worst if before is None else torch.maximum(before, worst)

    @torch.no_grad()
    def trouble(self) -> str | None:
        """What is no longer finite, in words: "loss td is NaN"; None while all is well.

        A loss or its gradient at any update since this was last asked, or a network's parameters now. It waits for the
        device once, so it is for every round, not for every update.
        """
        looked: dict[str, Tensor] = {}
        for k, loss in enumerate(self.losses):
            if (worst := self._worst[k]) is not None:
                looked[f"loss {loss.name}"], looked[f"the gradient of loss {loss.name}"] = worst.unbind()
                self._worst[k] = None
        for name, child in self.net.items():
            parameters: list[Tensor] = list(child.parameters())
            if parameters:
                norms = torch._foreach_norm(parameters)
                looked[f"a parameter of network {name}"] = torch.stack(list(norms)).amax()
        for what, size in zip(looked, torch.stack([x.float() for x in looked.values()]).tolist(), strict=True):
            if not math.isfinite(size):
                return f"{what} is {'NaN' if math.isnan(size) else 'infinite'}"
        return None

    # -- targets --------------------------------------------------------------------------------------------------

    @torch.no_grad()
    def _soft_targets(self) -> None:
        """One step of ``tau`` towards the parameters; buffers are statistics already slow, and follow whole."""
        if self.rule.tau is not None:
            for name in self.rule.networks:
                ours: list[Tensor] = list(self.target[name].parameters())
                theirs: list[Tensor] = list(self.net[name].parameters())
                if ours:  # a sum has none
                    torch._foreach_lerp_(ours, theirs, self.rule.tau)
                _copy(list(self.target[name].buffers()), list(self.net[name].buffers()))

    @torch.no_grad()
    def count(self, episodes: int) -> None:
        """Told how many training episodes were played, for hard target copies every so many."""
        self.episodes += episodes
        every = self.rule.every_episodes
        if every is not None and self.episodes - self._copied >= every:
            self._copied = self.episodes
            for name in self.rule.networks:
                ours, theirs = self.target[name], self.net[name]
                _copy([*ours.parameters(), *ours.buffers()], [*theirs.parameters(), *theirs.buffers()])

    # -- checkpoint -----------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Everything: networks, targets, optimisers, counters."""
        return {
            "net": self.net.state_dict(),
            "target": self.target.state_dict(),
            "optimisers": [o.state_dict() for o in self.optimisers],
            "counters": [self.updates, self.episodes, self._copied],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Put back what ``state_dict`` gave."""
        self.net.load_state_dict(state["net"])
        self.target.load_state_dict(state["target"])
        for optimiser, saved in zip(self.optimisers, state["optimisers"], strict=True):
            optimiser.load_state_dict(saved)
        self.updates, self.episodes, self._copied = state["counters"]


def _copy(ours: list[Tensor], theirs: list[Tensor]) -> None:
    if ours or theirs:
        torch._foreach_copy_(ours, theirs)


def _optimiser(loss: Loss, params: list[nn.Parameter]) -> torch.optim.Optimizer:
    if loss.optimiser == "rmsprop":
        return torch.optim.RMSprop(params, lr=loss.lr, alpha=0.99, eps=loss.eps, foreach=True)
    return torch.optim.Adam(params, lr=loss.lr, eps=loss.eps, fused=True)
