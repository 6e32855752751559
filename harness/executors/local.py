"""Trials as processes of this machine: start, listen, stop, and say in words how one ended."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

import psutil

from harness.executors.nursery import Nursery
from harness.executors.worker import COMPLETE, DAMAGED, INTERRUPTED, REFUSED
from harness.plan import size
from harness.store import TrialFolder
from harness.types import Progress, Trial

TARGET = "harness.trial:run"
"""What the child runs: (trial, tell, stopping) -> "complete" | "interrupted"."""
PROFILED = "harness.profile:run"
"""The same, with a breakdown of its time left in the trial's record."""


def environment(device: str) -> dict[str, str]:
    """The child's environment: one thread for every library, the GPU that is its own, the same hashes every time."""
    one = dict.fromkeys(("OMP", "MKL", "OPENBLAS", "NUMEXPR", "VECLIB_MAXIMUM"), "1")
    env = {**os.environ, **{f"{k}_NUM_THREADS": v for k, v in one.items()}}
    env |= {"NPROC": "1", "PYTHONHASHSEED": "0", "PYTHONUNBUFFERED": "1", "CUBLAS_WORKSPACE_CONFIG": ":4096:8"}
    kind, _, index = device.partition(":")
    if kind == "cpu":
        env |= {"CUDA_VISIBLE_DEVICES": "", "JAX_PLATFORMS": "cpu"}
    else:  # trials share a GPU: JAX must not take it whole
        visible = [g for g in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if g]
        env["CUDA_VISIBLE_DEVICES"] = visible[int(index)] if visible else index
        env["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
    return env


@dataclass(frozen=True)
class Ending:
    """How an attempt ended."""

    status: str
    """"complete" | "interrupted" | "failed"."""
    reason: str = ""
    traceback: str = ""
    again: bool = True
    """Another attempt could end otherwise."""
    damaged: bool = False
    """What an earlier attempt left cannot be read: another must begin anew."""


class Process:
    """One attempt at one trial. ``handle`` is the trial's lock; the caller keeps it."""

    def __init__(self, nursery: Nursery, trial: Trial, device: str, handle: int, target: str | None = None) -> None:
        self.trial, self.device = trial, device
        self.progress: Progress | None = None
        self.started = self.heard = time.monotonic()
        self.rss = 0
        self._sent: dict[str, str] = {}
        self._partial = b""
        self._killed = ""
        self._ooms = _oom_kills()
        folder = TrialFolder.of(trial)
        self.log = folder.path / "log.txt"
        self._log_start = self.log.stat().st_size if self.log.exists() else 0
        ours, theirs = os.pipe()
        os.set_blocking(ours, False)
        self.pipe = ours
        life, self._life = os.pipe()  # ends with the runner, however that ends
        own = dataclasses.replace(trial, device=device.partition(":")[0])
        job = {"trial": dataclasses.asdict(own), "target": target or TARGET}
        try:
            with open(self.log, "ab") as log:
                files = (log.fileno(), theirs, life, handle)
                self._child = nursery.start("harness.executors.worker:main", job, environment(device), files)
        except BaseException:
            os.close(ours)
            os.close(self._life)
            raise
        finally:
            os.close(theirs)
            os.close(life)
        self._probe: psutil.Process | None = None
        with contextlib.suppress(psutil.Error):  # it may have ended already
            self._probe = psutil.Process(self._child.pid)

    @property
    def pid(self) -> int:
        """Of the child, which leads a process group of its own."""
        return self._child.pid

    # -- listening ------------------------------------------------------------------------------------------------

    def listen(self) -> bool:
        """Read what the child has said since; True when there was something."""
        data = b""
        with contextlib.suppress(BlockingIOError):
            while part := os.read(self.pipe, 65536):
                data += part
        *lines, self._partial = (self._partial + data).split(b"\n")
        for line in lines:
            message = json.loads(line)
            if "progress" in message:
                self.progress = Progress(*message["progress"])
            else:
                self._sent = message
        if data:
            self.heard = time.monotonic()
        return bool(data)

    def sample_memory(self) -> None:
        """Note the child's resident memory, for the case that the system kills it."""
        if self._probe is not None:
            with contextlib.suppress(psutil.Error):
                self.rss = self._probe.memory_info().rss

    @property
    def silent(self) -> float:
        """Seconds without a sign of life."""
        return time.monotonic() - self.heard

    @property
    def running(self) -> bool:
        """The child has not ended."""
        return self._child.poll() is None

    # -- stopping -------------------------------------------------------------------------------------------------

    def stop(self) -> None:
        """Ask it to write its checkpoint and end."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGTERM)

    def kill(self, reason: str) -> None:
        """End it and its own children now. Where it hangs goes to its log first."""
        self._killed = reason
        if self.running:
            os.kill(self.pid, signal.SIGUSR1)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._child.wait(0.5)
        self._kill_group()

    def _kill_group(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)

    def end(self) -> Ending:
        """Collect an ended child and whatever it left running, and say how it ended."""
        code = self._child.wait()
        self._kill_group()
        self.listen()
        os.close(self.pipe)
        os.close(self._life)
        if code == COMPLETE:
            return Ending("complete")
        if code == INTERRUPTED:
            return Ending("interrupted")
        if self._killed:
            return Ending("failed", self._killed, self._log_tail())
        if self._sent:
            return Ending("failed", self._sent["reason"], self._sent["traceback"], code != REFUSED, code == DAMAGED)
        return Ending("failed", self._in_words(code), self._log_tail())

    def _in_words(self, code: int) -> str:
        if code >= 0:
            return f"the process ended with exit code {code} and without a word; see {self.log}"
        if -code == signal.SIGKILL:
            seen = f" (last seen at {size(self.rss)})" if self.rss else ""
            if _oom_kills() > self._ooms:
                return f"out of memory: killed by the system{seen}"
            return f"killed from outside (SIGKILL){seen}; the system does this when memory runs out"
        name = signal.Signals(-code).name
        words = {
            "SIGSEGV": "segmentation fault",
            "SIGBUS": "bus error",
            "SIGABRT": "aborted",
            "SIGILL": "bad instruction",
        }
        return f"{words.get(name, 'killed by a signal')} ({name}); see {self.log}"

    def _log_tail(self, limit: int = 4000) -> str:
        with contextlib.suppress(OSError), open(self.log, "rb") as file:
            file.seek(max(self._log_start, self.log.stat().st_size - limit))
            return file.read().decode(errors="replace")
        return ""


def _oom_kills() -> int:
    """Processes that the kernel has killed for lack of memory since it started."""
    with contextlib.suppress(OSError, ValueError):
        for line in Path("/proc/vmstat").read_text().splitlines():
            if line.startswith("oom_kill "):
                return int(line.split()[1])
    return 0
