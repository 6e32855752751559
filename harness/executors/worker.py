"""The child's side of a trial's process: dies with its parent, reports over a pipe, leaves its failure on record."""

from __future__ import annotations

import contextlib
import errno
import faulthandler
import json
import os
import pkgutil
import re
import resource
import signal
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from types import FrameType
from typing import Any

from harness.errors import Diverged, UserError
from harness.life import die_together, die_with_parent

COMPLETE, FAILED, REFUSED, INTERRUPTED, DAMAGED = 0, 1, 2, 3, 4
"""Exit codes. REFUSED is a ``UserError`` or ``Diverged``, whose line says all: trying again would change nothing.
DAMAGED: what an earlier attempt left cannot be read."""


class Pipe:
    """Lines of JSON to the runner. Progress is dropped rather than waited for; a failure is waited for."""

    def __init__(self, handle: int) -> None:
        self.handle = handle
        os.set_inheritable(handle, False)
        os.set_blocking(handle, False)

    def tell(self, progress: Any) -> None:
        """A ``Progress``, if the runner keeps up reading."""
        with contextlib.suppress(BlockingIOError):
            self._write({"progress": list(progress)})

    def fail(self, reason: str, trace: str) -> None:
        """Why the trial failed, for the case that its folder can't be written."""
        os.set_blocking(self.handle, True)
        self._write({"reason": reason, "traceback": trace[-20_000:]})

    def _write(self, message: Mapping[str, Any]) -> None:
        try:
            os.write(self.handle, (json.dumps(message) + "\n").encode())
        except BrokenPipeError:  # no runner any more
            os._exit(FAILED)


class Stop:
    """Set by SIGTERM. Before the trial has begun there is nothing to save, so it ends at once."""

    def __init__(self) -> None:
        self.asked = self.begun = False
        signal.signal(signal.SIGTERM, self._ask)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the runner's to translate

    def _ask(self, number: int, frame: FrameType | None) -> None:
        self.asked = True
        if not self.begun:
            os._exit(INTERRUPTED)

    def __call__(self) -> bool:
        """The trial asks whether to stop."""
        return self.asked


_NO_MEMORY = re.compile(r"can't allocate memory|Cannot allocate memory|std::bad_alloc|RESOURCE_EXHAUSTED|Out of memory")
"""As torch, the system, C++ and XLA say it, in errors of no type of its own."""


def reason_of(error: BaseException) -> str:
    """A failure in words, one line."""
    text = " ".join(str(error).split())
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError" or _NO_MEMORY.search(text):
        return f"out of memory: {text}" if text else "out of memory"
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return f"no space left on the disk: {text}"
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _damaged(error: BaseException) -> bool:
    """A ``ValueError`` of the two rooms that read a trial's folder: by their contract it names a damaged file."""
    frames = [frame.f_globals.get("__name__") for frame, _ in traceback.walk_tb(error.__traceback__)]
    return isinstance(error, ValueError) and frames[-1:] in (["harness.checkpoint"], ["harness.store"])


def main(job: Mapping[str, Any], files: Sequence[int]) -> None:
    """Run ``job``: {"trial", "parent", "target"}; ends the process with one of the exit codes above.

    ``files``: the pipe to the runner, the pipe that ends with the runner, the trial's lock (held by being open).
    """
    die_with_parent(job["parent"])
    shell = die_together(files[1])
    stop, pipe = Stop(), Pipe(files[0])
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, all_threads=True)  # the runner asks a hung trial where it hangs
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        code = _run(job, stop, pipe)
    except BaseException as error:
        code = _failed(job, error, pipe)
    sys.stdout.flush()
    sys.stderr.flush()
    shell.kill()
    shell.wait()
    os._exit(code)  # no atexit handler of a library may hang or change what is done


def _run(job: Mapping[str, Any], stop: Stop, pipe: Pipe) -> int:
    import torch

    from harness.store import TrialFolder
    from harness.types import Trial

    trial = Trial(**job["trial"])
    torch.set_num_threads(1)
    if trial.device != "cpu":  # on the CPU one thread is deterministic by itself
        torch.use_deterministic_algorithms(True, warn_only=True)
    run = pkgutil.resolve_name(job["target"])
    folder = TrialFolder.of(trial)
    record = {k: v for k, v in job["trial"].items() if k not in ("results",)}
    record |= {"engine": trial.settings["engine"], "pid": os.getpid()}
    folder.update(**record, status="running", reason=None, traceback=None)
    stop.begun = True
    outcome = run(trial, pipe.tell, stop)
    folder.update(
        status=outcome, ended=time.time(), bytes=folder.positions()
    )  # a table cut later is found out by its size
    return COMPLETE if outcome == "complete" else INTERRUPTED


def _failed(job: Mapping[str, Any], error: BaseException, pipe: Pipe) -> int:
    reason, trace = reason_of(error), traceback.format_exc()
    refused = isinstance(error, UserError | Diverged)
    if refused:
        reason, trace = str(error), ""
    with contextlib.suppress(OSError):
        print(trace or reason, file=sys.stderr, flush=True)  # noqa: T201 - stderr is log.txt
    pipe.fail(reason, trace)
    if _damaged(error):
        return DAMAGED
    return REFUSED if refused else FAILED
