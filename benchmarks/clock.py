"""Exclusive times of a running trial, measured by wrapping its parts from outside: no part is changed.

Every moment belongs to the innermost wrapped call that is running, so the shares add up to the whole.
"""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import torch
from torch import nn

from harness import evaluate, learner, trial
from harness.trial import Loop

PARTS = (
    "environment", "act", "collect", "store", "sample", "forward", "backward", "optimiser", "targets", "log",
    "checkpoint", "rest",
)  # fmt: skip
"""environment: reset and step. act: the method's. collect: recording and stacking episodes. store, sample: the replay.
forward: losses, targets' networks included. optimiser: clipping included. log: tables, running means, progress."""


NAME, now = "wall", time.perf_counter


def choose(name: str) -> None:
    """Measure by the "wall" clock, or by "cpu": this process's own time, which others on the machine disturb less."""
    global NAME, now
    clocks = {"wall": time.perf_counter, "cpu": time.process_time}
    if name not in clocks:
        raise SystemExit(f"clock={name}: wall or cpu")
    NAME, now = name, clocks[name]


class Clock:
    """Seconds and calls by (phase, part); phase is "training" or "evaluation"."""

    def __init__(self) -> None:
        self.seconds: defaultdict[tuple[str, str], float] = defaultdict(float)
        self.calls: defaultdict[tuple[str, str], int] = defaultdict(int)
        self.phase = "training"
        self._stack: list[str] = []
        self._since = 0.0

    def _turn(self) -> None:
        """Give the time since the last turn to whatever is innermost."""
        moment = now()
        if self._stack:
            self.seconds[self.phase, self._stack[-1]] += moment - self._since
        self._since = moment

    @contextlib.contextmanager
    def part(self, name: str, phase: str | None = None) -> Iterator[None]:
        """Time inside counts for ``name``, except where another part begins inside it."""
        self._turn()
        outer, self.phase = self.phase, phase or self.phase
        self._stack.append(name)
        self.calls[self.phase, name] += 1
        try:
            yield
        finally:
            self._turn()
            self._stack.pop()
            self.phase = outer

    def wrap(self, name: str, function: Callable[..., Any], phase: str | None = None) -> Callable[..., Any]:
        """``function``, timed."""

        def timed(*args: Any, **kwargs: Any) -> Any:
            with self.part(name, phase):
                return function(*args, **kwargs)

        return timed

    def total(self, *parts: str, phase: str | None = None) -> float:
        """Seconds of ``parts`` (all when none is named) in ``phase`` (both when None)."""
        chosen = parts or PARTS
        return sum(s for (ph, part), s in self.seconds.items() if part in chosen and phase in (None, ph))


class Slots:
    """Counts environments that step and those that idle, finished, beside them."""

    def __init__(self) -> None:
        self.all = self.idle = 0

    def watch(self, env: Any) -> None:
        """Count on ``env`` from now on."""
        reset, step = env.reset, env.step
        done = torch.zeros(env.num_envs, dtype=torch.bool)

        def counted_reset(seed: int) -> Any:
            done.zero_()
            return reset(seed)

        def counted_step(action: Any) -> Any:
            self.all += env.num_envs
            self.idle += int(done.sum())
            after = step(action)
            done.logical_or_((after.terminated | after.truncated).cpu())
            return after

        env.reset, env.step = counted_reset, counted_step


@contextlib.contextmanager
def instrumented(loop: Loop) -> Iterator[tuple[Clock, Slots]]:
    """Times of ``loop`` while it runs inside; ``loop`` is spent afterwards."""
    clock, slots = Clock(), Slots()
    for env in (loop.env, loop.eval_env):
        env.reset, env.step = clock.wrap("environment", env.reset), clock.wrap("environment", env.step)  # type: ignore[method-assign]
    slots.watch(loop.env)
    object.__setattr__(loop.algorithm, "act", clock.wrap("act", loop.algorithm.act))
    if loop.replay is not None:
        loop.replay.add = clock.wrap("store", loop.replay.add)  # type: ignore[method-assign]
        loop.replay.sample = clock.wrap("sample", loop.replay.sample)  # type: ignore[method-assign]
    loop.learner.losses = tuple(
        dataclasses.replace(x, of=clock.wrap("forward", x.of), prepare=x.prepare and clock.wrap("forward", x.prepare))
        for x in loop.learner.losses
    )
    for optimiser in loop.learner.optimisers:
        optimiser.step = clock.wrap("optimiser", optimiser.step)  # type: ignore[method-assign]
        optimiser.zero_grad = clock.wrap("optimiser", optimiser.zero_grad)  # type: ignore[method-assign]
    for part, owner, names in (
        ("targets", loop.learner, ("count", "_soft_targets")),
        ("log", loop.folder, ("append", "update")),
        ("log", loop.means, ("add", "take")),
        ("log", loop, ("_say",)),
        ("checkpoint", loop, ("_save",)),
    ):
        for name in names:
            setattr(owner, name, clock.wrap(part, getattr(owner, name)))
    for name in ("_evaluate", "_final"):
        setattr(loop, name, clock.wrap("rest", getattr(loop, name), "evaluation"))
    loop.run = clock.wrap("rest", loop.run)  # type: ignore[method-assign]
    with contextlib.ExitStack() as stack:
        for part, owner, name in (
            ("backward", torch.Tensor, "backward"),
            ("optimiser", nn.utils, "clip_grad_norm_"),
            ("sample", learner, "split"),
            ("collect", trial, "episodes"),
            ("collect", evaluate, "episodes"),
        ):
            stack.enter_context(mock.patch.object(owner, name, clock.wrap(part, getattr(owner, name))))
        yield clock, slots
