"""Real trials that meet with a misfortune on their way: ``run`` in place of ``harness.trial:run``.

Which one is the trial's seed's: FAULTS[seed]. It strikes once, in the middle, after a checkpoint.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from fake_marl import exhaust

from harness.store import TrialFolder
from harness.trial import run as real
from harness.types import Progress, Trial

FAULTS = ("none", "sigkill", "allocate", "limit", "full", "children")
AFTER = 4
"""Checkpoints' worth of rounds before it strikes."""


def run(trial: Trial, tell: Callable[[Progress], None], stopping: Callable[[], bool]) -> str:
    folder, rounds = TrialFolder.of(trial).path, [0]

    def asked() -> bool:
        rounds[0] += 1
        if rounds[0] > AFTER and (folder / "checkpoint.pt").exists() and not (folder / "struck").exists():
            (folder / "struck").write_text("1")
            strike(FAULTS[trial.seed], Path(trial.results), folder)
        return stopping()

    return real(trial, tell, asked)


def strike(how: str, results: Path, folder: Path) -> None:
    if how == "sigkill":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "allocate":
        exhaust()
    if how == "limit":  # as a quota: the next file that grows beyond it fails
        resource.setrlimit(resource.RLIMIT_FSIZE, (2048, resource.RLIM_INFINITY))
    if how == "full":
        fill(results / "ballast")
    if how == "children":
        beget(folder)


def fill(path: Path) -> None:
    """Leave no byte on this file system, which must be a small one."""
    with open(path, "wb", buffering=0) as file, contextlib.suppress(OSError):
        for size in (65536, 4096, 1):
            with contextlib.suppress(OSError):
                while file.tell() < 1 << 26:
                    file.write(b"x" * size)


def beget(folder: Path) -> None:
    """Processes of every kind that a trial may start: a forked one, an environment's worker, and what that started."""
    from functools import partial

    sys.path.append(str(Path(__file__).parents[1] / "suites" / "adapters" / "standins"))
    from standin_envs import Misbehaving

    from suites.adapters.subprocess import Subprocess

    plan = folder / "plan"
    plan.write_text("child reset")
    child = os.fork()
    if child == 0:
        time.sleep(600)
        os._exit(0)
    env = Subprocess(partial(Misbehaving, str(plan)), 2, torch.device("cpu"), "standin", own_children=True)
    env.reset(0)
    pids = [os.getpid(), child, int(plan.with_suffix(".child").read_text()), *(w._process.pid for w in env._workers)]
    (folder / "pids.part").write_text(" ".join(map(str, pids)))
    (folder / "pids.part").rename(folder / "pids")
    time.sleep(600)
