"""Where a trial's time goes, measured by wrapping the parts of its running loop from outside: no part is changed.

Every moment belongs to the innermost wrapped call that is running, so the shares add up to the whole. With
``profile=on`` a trial's process runs ``run`` of this room in place of ``harness.trial.run``.
"""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from typing import Any

import torch
from torch import nn

from harness import checkpoint, evaluate, learner, trial
from harness.record import Tell
from harness.trial import Loop
from harness.types import Trial

PARTS = (
    "environment", "act", "collect", "store", "sample", "forward", "backward", "optimiser", "targets", "log",
    "checkpoint", "rest",
)  # fmt: skip
"""environment: reset and step. act: the method's. collect: recording and stacking episodes. store, sample: the replay.
forward: losses, targets' networks included. optimiser: clipping included. log: tables, running means, progress."""
PHASES = ("training", "evaluation", "diagnostics")
"""diagnostics: those of ``cdm=on``."""

Now = Callable[[], float]
Function = Callable[..., Any]


class Clock:
    """Seconds and calls by (phase, part)."""

    def __init__(self, now: Now = time.perf_counter) -> None:
        """``now`` tells seconds."""
        self.now = now
        self.seconds: defaultdict[tuple[str, str], float] = defaultdict(float)
        self.calls: defaultdict[tuple[str, str], int] = defaultdict(int)
        self.phase = "training"
        self._stack: list[str] = []
        self._since = 0.0

    def turn(self) -> None:
        """Give the time since the last turn to whatever is innermost."""
        moment = self.now()
        if self._stack:
            self.seconds[self.phase, self._stack[-1]] += moment - self._since
        self._since = moment

    def wrap(self, part: str, function: Function, phase: str | None = None) -> Function:
        """``function``, its time counted for ``part``, except where another part begins inside it.

        ``phase`` None: whatever phase it is called in.
        """

        def timed(*args: Any, **kwargs: Any) -> Any:
            self.turn()
            outer, self.phase = self.phase, phase or self.phase
            self._stack.append(part)
            self.calls[self.phase, part] += 1
            try:
                return function(*args, **kwargs)
            finally:
                self.turn()
                self._stack.pop()
                self.phase = outer

        return timed

    def total(self, *parts: str, phase: str | None = None) -> float:
        """Seconds of ``parts`` (all when none is named) in ``phase`` (all when None)."""
        chosen = parts or PARTS
        return sum(s for (ph, part), s in self.seconds.items() if part in chosen and phase in (None, ph))


class Profile:
    """What was measured of one trial, or of several added up."""

    def __init__(self, now: Now = time.perf_counter) -> None:
        self.clock = Clock(now)
        self.env_steps = 0
        """Of training, while it was measured."""
        self.slots = self.idle = 0
        """Environments times steps in training, and those of them that had finished their episode and waited."""

    @property
    def idle_share(self) -> float:
        """Of the slots; 0 before the first."""
        return self.idle / max(self.slots, 1)

    def counting(self, episodes: Function) -> Function:
        """``episodes`` of ``harness.collect``, its slots counted."""

        def counted(*args: Any, **kwargs: Any) -> Any:
            found = episodes(*args, **kwargs)
            length = found[0].length
            slots, played = length.numel() * int(length.max()), int(length.sum())
            self.slots += slots
            self.idle += slots - played
            self.env_steps += played
            return found

        return counted

    def record(self) -> dict[str, Any]:
        """For trial.json: {"env_steps", "slots": {"all", "idle", "idle_share"}, phase: {part: {"seconds", "calls",
        "share"}}}; shares are of the phase."""
        self.clock.turn()
        found: dict[str, Any] = {
            "env_steps": self.env_steps,
            "slots": {"all": self.slots, "idle": self.idle, "idle_share": round(self.idle_share, 4)},
        }
        for phase in PHASES:
            whole = self.clock.total(phase=phase)
            for part in PARTS:
                if calls := self.clock.calls.get((phase, part)):
                    seconds = self.clock.seconds[phase, part]
                    told = {"seconds": round(seconds, 6), "calls": calls, "share": round(seconds / (whole or 1.0), 4)}
                    found.setdefault(phase, {})[part] = told
        return found

    def add(self, record: Mapping[str, Any]) -> None:
        """Count as well what ``record`` told of an earlier part of the same trial, or of another one."""
        self.env_steps += record["env_steps"]
        self.slots += record["slots"]["all"]
        self.idle += record["slots"]["idle"]
        for phase in PHASES:
            for part, told in record.get(phase, {}).items():
                self.clock.seconds[phase, part] += told["seconds"]
                self.clock.calls[phase, part] += told["calls"]


# -- wrapping ---------------------------------------------------------------------------------------------------------


def replace(stack: ExitStack, owner: Any, name: str, made: Callable[[Function], Function]) -> None:
    """``made(function)`` in the place of ``owner``'s function ``name`` until ``stack`` ends.

    In its class, where ``owner`` itself takes no attributes: frozen dataclasses, as methods are, and classes of slots.
    """
    try:
        _set(stack, owner, name, made(getattr(owner, name)))
    except AttributeError:
        _set(stack, type(owner), name, made(getattr(type(owner), name)))


def _set(stack: ExitStack, owner: Any, name: str, value: Any) -> None:
    own = getattr(owner, "__dict__", {})
    there, before = name in own, own.get(name)
    setattr(owner, name, value)
    if there:
        stack.callback(setattr, owner, name, before)
    else:
        stack.callback(delattr, owner, name)


def _places(loop: Loop) -> Iterator[tuple[str, Any, str, str | None]]:
    """(part, owner, function, phase) of everything that is timed by a wrapper of its own."""
    for env in (loop.env, loop.eval_env):
        yield from (("environment", env, name, None) for name in ("reset", "step"))
    yield "act", loop.algorithm, "act", None
    if loop.replay is not None:
        yield from (("store", loop.replay, "add", None), ("sample", loop.replay, "sample", None))
    for optimiser in loop.learner.optimisers:
        yield from (("optimiser", optimiser, name, None) for name in ("step", "zero_grad"))
    yield from (("targets", loop.learner, name, None) for name in ("count", "_soft_targets"))
    yield from (("log", loop.folder, name, None) for name in ("append", "update"))
    yield from (("log", loop.means, name, None) for name in ("add", "take"))
    yield "log", loop, "_say", None
    yield from (("checkpoint", loop, name, None) for name in ("_save", "_resume"))
    yield from (("checkpoint", checkpoint, name, None) for name in ("save_networks", "load_networks"))
    yield from (("rest", loop, name, "evaluation") for name in ("_evaluate", "_final"))
    if loop.diagnostics is not None:
        yield from (("rest", loop.diagnostics, name, "diagnostics") for name in ("at", "record"))
    yield "rest", loop, "run", None
    yield "backward", torch.Tensor, "backward", None
    yield "optimiser", nn.utils, "clip_grad_norm_", None
    yield "sample", learner, "split", None
    yield from (("collect", room, "episodes", None) for room in (trial, evaluate))


@contextlib.contextmanager
def instrumented(loop: Loop, now: Now = time.perf_counter) -> Iterator[Profile]:
    """The profile of ``loop`` while it runs inside; one loop a process at a time."""
    profile = Profile(now)
    clock = profile.clock

    def timed(part: str, phase: str | None = None) -> Callable[[Function], Function]:
        return lambda function: clock.wrap(part, function, phase)

    with ExitStack() as stack:
        replace(stack, trial, "episodes", profile.counting)
        losses = tuple(
            dataclasses.replace(
                x, of=clock.wrap("forward", x.of), prepare=x.prepare and clock.wrap("forward", x.prepare)
            )
            for x in loop.learner.losses
        )
        _set(stack, loop.learner, "losses", losses)
        for part, owner, name, phase in _places(loop):
            replace(stack, owner, name, timed(part, phase))
        yield profile


# -- beside a trial's results -----------------------------------------------------------------------------------------


def waiting(device: torch.device) -> Now:
    """Wall seconds; on a GPU once it has done what it was told, so that each part pays for its own kernels."""
    if device.type != "cuda":
        return time.perf_counter

    def now() -> float:
        torch.cuda.synchronize(device)
        return time.perf_counter()

    return now


@contextlib.contextmanager
def kept(loop: Loop) -> Iterator[None]:
    """Leave the profile of ``loop`` in trial.json, as ``profile``, at each checkpoint and when it has ended.

    A trial that continues from its checkpoint adds to what was measured up to there.
    """
    with instrumented(loop, waiting(loop.device)) as profile, ExitStack() as stack:

        def continued(resume: Function) -> Function:
            def resumed() -> bool:
                found: bool = resume()
                before = (loop.folder.record() or {}).get("profile")
                if found and before:
                    profile.add(before)
                return found

            return resumed

        def noted(save: Function) -> Function:
            def saved() -> None:
                save()
                loop.folder.update(profile=profile.record())

            return saved

        replace(stack, loop, "_resume", continued)
        replace(stack, loop, "_save", noted)
        yield
        loop.folder.update(profile=profile.record())  # not where it failed: a retry does again what this one counted


def run(one: Trial, tell: Tell, stopping: Callable[[], bool]) -> str:
    """``harness.trial.run``, with the breakdown of its time kept beside its results."""
    return trial.run(one, tell, stopping, kept)
