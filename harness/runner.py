"""Trials -> processes: as many at once as there are slots, failures isolated and retried, Ctrl-C clean."""

from __future__ import annotations

import contextlib
import os
import selectors
import shutil
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, Protocol

from harness import lock
from harness.executors.local import PROFILED, Ending, Process, environment
from harness.executors.nursery import Nursery
from harness.plan import Item, Plan, status
from harness.store import TrialFolder, ask, write_atomic
from harness.types import Progress, Trial

TICK = 0.25
"""Seconds between two looks at the children."""
RESERVE, RESERVE_BYTES = ".reserve", 64 * 1024
"""A file beside a running trial, given up for its record when the disk is full."""
ELSEWHERE = 2.0
"""Seconds between two looks at trials that another `harness run` holds."""


class Display(Protocol):
    """What shows the user how it goes."""

    def started(self, trial: Trial) -> None: ...  # noqa: D102
    def progress(self, trial: Trial, progress: Progress) -> None: ...  # noqa: D102
    def ended(self, trial: Trial, ending: Ending, again: bool, seconds: float) -> None: ...  # noqa: D102
    def say(self, text: str) -> None: ...  # noqa: D102
    def tick(self) -> None: ...  # noqa: D102


@dataclass
class Job:
    """A trial on its way: its lock is held from the first attempt to the verdict."""

    item: Item
    handle: int | None = None
    attempts: int = 0
    anew: bool = False
    """It had to be begun anew, its files being damaged."""

    @property
    def trial(self) -> Trial:
        """The trial."""
        return self.item.trial

    @property
    def folder(self) -> TrialFolder:
        """Its folder."""
        return TrialFolder.of(self.trial)

    def release(self) -> None:
        """Let others have it."""
        if self.handle is not None:
            os.close(self.handle)
            self.handle = None


@dataclass
class Outcome:
    """What became of every trial of the plan, by key."""

    endings: dict[str, Ending] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    signal: int | None = None
    """That ended it early."""

    @property
    def exit_code(self) -> int:
        """0; 1 when a trial failed; 128 + the signal that stopped it."""
        if self.signal is not None:
            return 128 + self.signal
        return 1 if any(e.status == "failed" for e in self.endings.values()) else 0


class Runner:
    """Runs what a plan leaves to do."""

    def __init__(
        self, plan: Plan, display: Display, target: str | None = None, between: Callable[[], None] = lambda: None
    ) -> None:
        """``target`` is what children run in place of a trial; ``between`` is called at each look at them, and must
        return at once."""
        self.options = plan.experiment.options
        self.display, self.between = display, between
        self.target = target or (PROFILED if self.options.profile == "on" else None)
        self.asked_for = [i.trial for i in plan.items]
        self.queue = deque(Job(i) for i in plan.todo)
        self.elsewhere: deque[Job] = deque()
        self.slots = list(plan.slots)
        self.running: dict[Process, Job] = {}
        self.outcome = Outcome()
        self.began = time.time()
        self.asked = self.stops = 0
        """Signals to stop: received, and acted on."""
        self.looked = 0.0
        self.selector = selectors.DefaultSelector()
        self.nursery: Nursery | None = None

    def run(self) -> Outcome:
        """Until every trial has its verdict, or the user stops it. No child is left when this returns or raises."""
        ask(self.asked_for)
        with self._signals():
            try:
                while self.running or (not self.stops and (self.queue or self.elsewhere)):
                    self._launch()
                    self.selector.select(TICK) if self.running else time.sleep(TICK)
                    self._obey()
                    self._listen()
                    self.between()
                    self.display.tick()
            finally:
                for process in list(self.running):
                    process.kill("the runner ended")
                    process.end()
                for job in [*self.running.values(), *self.queue]:
                    job.release()
                self.selector.close()
                if self.nursery is not None:
                    self.nursery.close()
        return self.outcome

    # -- starting -------------------------------------------------------------------------------------------------

    def _launch(self) -> None:
        while self.queue and self.slots and not self.stops:
            job = self.queue.popleft()
            if self._claim(job):
                self._start(job)
        now = time.monotonic()
        if self.elsewhere and not self.queue and self.slots and now - self.looked > ELSEWHERE:
            if not self.looked:
                self.display.say(f"waiting for trials of another `harness run`: {len(self.elsewhere)}")
            self.looked = now
            self.queue, self.elsewhere = self.elsewhere, deque()

    def _claim(self, job: Job) -> bool:
        """Lock the trial and look again: another runner may have it, or may have finished it meanwhile."""
        if job.handle is not None:
            return True
        job.handle = lock.acquire(job.folder.path)
        if job.handle is None:
            self.elsewhere.append(job)
            return False
        job.folder.tidy()
        found = status(job.folder, locked=True)
        if found == "damaged":
            place = set_aside(job.folder.path)
            self.display.say(f"{job.trial.key}: damaged, set aside in {place}; starting anew")
        record = {} if found in ("damaged", "new") else job.folder.record() or {}
        if found == "complete" or (found == "failed" and (record.get("ended") or 0) > self.began):
            self._verdict(job, Ending(found, record.get("reason") or "", again=False), 0.0)
            return False
        return True

    def _start(self, job: Job) -> None:
        assert job.handle is not None
        job.attempts += 1
        device = self.slots.pop(0)
        reserve(job.folder.path)
        try:
            if self.nursery is None or not self.nursery.alive:
                self.nursery = Nursery(environment(device))
            process = Process(self.nursery, job.trial, device, job.handle, self.target)
        except OSError as error:  # no memory for another process, no space for its log
            self.slots.append(device)
            self._verdict(job, Ending("failed", f"could not be started: {error}"), 0.0)
            return
        self.running[process] = job
        self.selector.register(process.pipe, selectors.EVENT_READ, process)
        self.display.started(job.trial)

    # -- listening ------------------------------------------------------------------------------------------------

    def _listen(self) -> None:
        for process, job in list(self.running.items()):
            if process.listen() and process.progress:
                self.display.progress(job.trial, process.progress)
            if not process.running:
                self._end(process, job)
            elif process.silent > self.options.stall_timeout:
                process.kill(f"no sign of life for {self.options.stall_timeout:g} s (stall_timeout); stopped")
            else:
                process.sample_memory()

    def _end(self, process: Process, job: Job) -> None:
        self.selector.unregister(process.pipe)
        del self.running[process]
        self.slots.append(process.device)
        ending, seconds = process.end(), time.monotonic() - process.started
        job.folder.tidy()
        if ending.status == "interrupted" and not self.stops:
            ending = Ending("failed", "asked to stop from outside (SIGTERM)")
        if ending.status == "failed" and self.stops:
            ending = Ending("interrupted", "stopped before its checkpoint was written") if self.stops > 1 else ending
        self.outcome.seconds[job.trial.key] = self.outcome.seconds.get(job.trial.key, 0.0) + seconds
        self._record(job, ending, seconds)
        if ending.damaged and not job.anew and not self.stops:
            self.display.ended(job.trial, ending, True, seconds)
            self._begin_anew(job)
            return
        if ending.status == "failed" and ending.again and job.attempts <= self.options.retries and not self.stops:
            self.display.ended(job.trial, ending, True, seconds)
            self.queue.append(job)
            return
        self._verdict(job, ending, seconds)

    def _begin_anew(self, job: Job) -> None:
        """What it should have continued from is damaged: that is kept aside, and no retry is spent on it."""
        give_up_reserve(job.folder.path)
        place = set_aside(job.folder.path)
        self.display.say(f"{job.trial.key}: set aside in {place}; starting anew")
        job.anew, job.attempts = True, job.attempts - 1
        self.queue.append(job)

    def _verdict(self, job: Job, ending: Ending, seconds: float) -> None:
        self.outcome.endings[job.trial.key] = ending
        give_up_reserve(job.folder.path)
        job.release()
        self.display.ended(job.trial, ending, False, seconds)

    def _record(self, job: Job, ending: Ending, seconds: float) -> None:
        """Leave the verdict in trial.json; a full disk or a damaged record is no reason to stop the others."""
        try:
            record = job.folder.record() or {}
            changed: dict[str, Any] = {"status": ending.status, "ended": time.time()}
            changed["wall_s"] = round(float(record.get("wall_s") or 0.0) + seconds, 3)
            if ending.status == "failed":
                changed |= {"reason": ending.reason, "traceback": ending.traceback}
                changed["failures"] = [*(record.get("failures") or ()), ending.reason]
            if "experiment" not in record:  # it died before it could say who it is
                trial = job.trial
                identity = ("experiment", "suite", "task", "algorithm", "seed", "settings")
                changed |= {k: getattr(trial, k) for k in identity} | {"engine": trial.settings["engine"]}
            try:
                job.folder.update(**changed)
            except OSError:  # the disk is full: what was kept free for this is enough for the record
                give_up_reserve(job.folder.path)
                job.folder.update(**changed)
        except (OSError, ValueError) as error:
            self.display.say(f"{job.trial.key}: its record can't be written: {error}")

    # -- stopping -------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {s: signal.signal(s, self._ask) for s in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _ask(self, number: int, frame: FrameType | None) -> None:
        self.asked += 1
        self.outcome.signal = self.outcome.signal or number

    def _obey(self) -> None:
        """First signal: every child writes its checkpoint and ends. Second: they end at once."""
        if self.asked == self.stops:
            return
        self.stops = self.asked
        for process in list(self.running):
            if self.stops == 1:
                process.stop()
            else:
                process.kill("stopped by the user")
        if self.stops == 1 and self.running:
            self.display.say(
                f"stopping: checkpoints are being written ({len(self.running)}); Ctrl-C again ends at once"
            )


def reserve(folder: Path) -> None:
    """Keep space for the record of a trial that fills the disk; random bytes, so that no file system squeezes them."""
    with contextlib.suppress(OSError):  # full already: the trial will say so
        write_atomic(folder / RESERVE, os.urandom(RESERVE_BYTES))


def give_up_reserve(folder: Path) -> None:
    """Let go of that space."""
    (folder / RESERVE).unlink(missing_ok=True)


def set_aside(folder: Path) -> Path:
    """Move what a damaged trial left out of the readers' sight; its lock stays. Returns where it went."""
    place = next(p for k in range(1, 10_000) if not (p := folder.with_name(f"{folder.name}.damaged-{k}")).exists())
    place.mkdir()
    for path in folder.iterdir():
        if path.name != ".lock":
            shutil.move(path, place / (path.name + ".damaged" if path.name == "trial.json" else path.name))
    return place
