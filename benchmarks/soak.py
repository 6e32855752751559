"""Small trials under random SIGKILL, of them and of their runner, for as long as asked: is anything lost?

    python -m benchmarks.soak minutes=30

Every round is one `harness run` of five methods. Now and then a trial's process or the runner itself is killed; a
killed runner is started again with the same command. In the end each trial must have the bytes (rows and final
parameters) of one that ran undisturbed, nothing may be left running or half-written, and the memory of a trial and a
runner that were left alone beside all this must stay flat. Exit code 1 when any of it fails. Linux.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from benchmarks.common import machine, settings, show
from harness.store import TrialFolder, folders
from tests.support.trials import identical, state, tables

METHODS = ("vdn", "qmix", "facmac", "mcem", "ippo")
DEFAULTS = {
    "minutes": 30, "seed": 0, "workers": 2, "env_steps": 12_000, "checkpoint_every": 400, "results": "reports/soak",
    "every": 0,
}  # fmt: skip
"""``every``: seconds between two kills on average; 0 takes them from how long a trial needs to start here."""
RUNNER_SHARE = 0.25
"""Of kills that hit the runner."""
MARK = "HARNESS_SOAK"
"""Environment variable by which every process of a round is known, however it is related to the others."""
PATIENCE = 15.0
"""Seconds after a runner's death in which everything it started must be gone."""
GROWTH = (1.05, 20 << 20)
"""Growth of resident memory that counts: by this factor and by this many bytes."""


@dataclass
class Tally:
    """What has happened so far."""

    killed: Counter[str] = field(default_factory=Counter)
    """By method, and "runner"."""
    finished: Counter[str] = field(default_factory=Counter)
    same: Counter[str] = field(default_factory=Counter)
    orphans: list[str] = field(default_factory=list)
    leftovers: list[str] = field(default_factory=list)
    troubles: list[str] = field(default_factory=list)
    rounds: int = 0


class Run:
    """One `harness run`, in a session of its own, whose processes all bear a mark."""

    def __init__(self, name: str, given: dict[str, str], *more: str) -> None:
        self.name, self.mark = name, f"{os.getpid()}-{name}"
        results = Path(given["results"])
        results.mkdir(parents=True, exist_ok=True)
        command = [
            sys.executable, "-m", "harness", "run", "suite=matrix", "tasks=two_step", "device=cpu", f"name={name}",
            f"results={results}", "eval_episodes=8", "final_episodes=16", *more,
        ]  # fmt: skip
        with open(results / f"{name}.log", "ab") as log:
            self.process = subprocess.Popen(
                command, stdout=log, stderr=log, env={**os.environ, MARK: self.mark}, start_new_session=True
            )

    @property
    def running(self) -> bool:
        """The runner has not ended."""
        return self.process.poll() is None

    def trials(self) -> list[tuple[psutil.Process, str]]:
        """Its trials' processes, each with its method: those whose output goes to a trial's log."""
        found = []
        for child in descendants(self.process.pid):
            log = output(child.pid)
            if log.name == "log.txt":
                with contextlib.suppress(ProcessLookupError):
                    found += [(child, log.parts[-3])] if os.getsid(child.pid) == child.pid else []
        return found

    def family(self) -> list[str]:
        """Command lines of all processes that bear its mark, the runner left out."""
        found = []
        for process in psutil.process_iter():
            try:
                marked = process.environ().get(MARK) == self.mark and process.status() != psutil.STATUS_ZOMBIE
            except psutil.Error:
                continue
            if marked and process.pid != self.process.pid:
                found.append(" ".join(cmdline(process))[-200:])
        return found


def descendants(pid: int) -> list[psutil.Process]:
    """Of a process that may be gone."""
    try:
        return list(psutil.Process(pid).children(recursive=True))
    except psutil.Error:
        return []


def output(pid: int) -> Path:
    """Where the standard output of a process that may be gone goes."""
    try:
        return Path(f"/proc/{pid}/fd/1").readlink()
    except OSError:
        return Path()


def cmdline(process: psutil.Process) -> list[str]:
    """Of a process that may be gone."""
    try:
        return list(process.cmdline())
    except psutil.Error:
        return []


# -- undisturbed --------------------------------------------------------------------------------------------------


def task(given: dict[str, str]) -> list[str]:
    """What every round runs."""
    steps = int(given["env_steps"])
    return [
        f"algorithms={','.join(METHODS)}", "seeds=1", f"env_steps={steps}", f"eval_every={steps // 10}",
        f"checkpoint_every={given['checkpoint_every']}", f"workers={given['workers']}", "retries=1000000",
    ]  # fmt: skip


def undisturbed(given: dict[str, str]) -> tuple[Path, float]:
    """Folder of trials left alone, and the seconds until the first of them had begun to learn."""
    began, first = time.monotonic(), 0.0
    run, root = Run("whole", given, *task(given)), Path(given["results"]) / "whole"
    while run.running:
        if not first and list(root.rglob("evaluations.csv")):
            first = time.monotonic() - began
        time.sleep(0.1)
    if run.process.returncode != 0:
        raise SystemExit(f"undisturbed trials failed: {root}.log")
    return root, first


# -- disturbed ----------------------------------------------------------------------------------------------------


def play(given: dict[str, str], draw: random.Random, every: float, until: float, tally: Tally) -> Path:
    """One round: run it to its end, killing now and then until ``until``; its folder."""
    name = f"round_{tally.rounds}"
    run = Run(name, given, *task(given))
    strike = time.monotonic() + draw.expovariate(1 / every)
    while True:
        time.sleep(0.05)
        if not run.running:
            if run.process.returncode != 0:
                tally.troubles.append(f"{name}: exit code {run.process.returncode}")
            break
        now = time.monotonic()
        if now < strike or now > until:
            continue
        strike = now + draw.expovariate(1 / every)
        if draw.random() < RUNNER_SHARE:
            run.process.kill()
            run.process.wait()
            tally.killed["runner"] += 1
            check_orphans(run, tally)
            run = Run(name, given, *task(given))
        elif victims := run.trials():
            process, method = draw.choice(victims)
            try:
                process.kill()
            except psutil.Error:
                continue
            tally.killed[method] += 1
    check_orphans(run, tally)
    tally.rounds += 1
    return Path(given["results"]) / name


def check_orphans(run: Run, tally: Tally) -> None:
    """Nothing that bears the mark may be left a while after the runner's end."""
    until = time.monotonic() + PATIENCE
    while (left := run.family()) and time.monotonic() < until:
        time.sleep(0.1)
    tally.orphans += left


def compare(whole: Path, root: Path, tally: Tally) -> bool:
    """Count what is as it was undisturbed; False where something is not."""
    before, wrong = len(tally.leftovers), 0
    tally.leftovers += [str(p) for p in root.rglob("*") if ".damaged" in p.name]
    found = {str(f.path.relative_to(root)) for f in folders(root)}
    for folder in folders(whole):
        key = str(folder.path.relative_to(whole))
        method, mine = folder.path.parts[-2], root / key
        tally.finished[method] += 1
        try:
            assert key in found, "no record"
            assert (TrialFolder(mine).record() or {}).get("status") == "complete", "not complete"
            assert tables(mine) == tables(folder.path), "rows differ"
            identical(state(folder.path), state(mine))
        except (AssertionError, OSError, ValueError) as error:
            tally.troubles.append(f"{mine}: {error}")
            wrong += 1
            continue
        tally.same[method] += 1
        tally.leftovers += [str(p) for p in mine.rglob(".*") if p.name != ".lock"]
    return not wrong and len(tally.leftovers) == before


# -- a witness ----------------------------------------------------------------------------------------------------


class Witness:
    """A runner with one endless trial, never killed: what happens to the memory of both?"""

    def __init__(self, given: dict[str, str]) -> None:
        self.run = Run(
            "witness", given, f"algorithms={METHODS[1]}", "seeds=1", "env_steps=1000000000", "eval_every=20000",
            "checkpoint_every=2000", "workers=1", f"{METHODS[1]}.buffer_episodes=500",
        )  # fmt: skip
        self.began, self.ended = time.monotonic(), 0.0
        self.seen: dict[str, list[tuple[float, int]]] = {"runner": [], "trial": []}
        self.over = threading.Event()
        self.watcher = threading.Thread(target=self.watch, daemon=True)
        self.watcher.start()

    def watch(self) -> None:
        """In a thread: a look every second."""
        while not self.over.wait(1.0):
            self.look()

    def look(self) -> None:
        """Note how much memory they hold."""
        now = time.monotonic() - self.began
        for name, processes in (("runner", [self.run.process.pid]), ("trial", [p.pid for p, _ in self.run.trials()])):
            for pid in processes:
                try:
                    self.seen[name].append((now, int(psutil.Process(pid).memory_info().rss)))
                except psutil.Error:
                    continue

    def memory(self, name: str) -> tuple[int, int] | None:
        """Median bytes in the second and in the last fifth of its life; None where too little was seen."""
        end = self.ended
        parts = [[b for t, b in self.seen[name] if lo * end <= t < hi * end] for lo, hi in ((0.2, 0.4), (0.8, 1.0))]
        if not all(parts):
            return None
        early, late = (sorted(p)[len(p) // 2] for p in parts)
        return early, late

    def end(self, tally: Tally) -> None:
        """Stop it as Ctrl-C does."""
        self.over.set()
        self.watcher.join()
        self.ended = time.monotonic() - self.began
        self.run.process.send_signal(signal.SIGINT)
        if self.run.process.wait(120) != 130:
            tally.troubles.append(f"witness: exit code {self.run.process.returncode}")
        check_orphans(self.run, tally)


# -- all of it ----------------------------------------------------------------------------------------------------


def row(
    what: str,
    killed: int | None = None,
    trials: int | None = None,
    same: int | None = None,
    memory: tuple[int, int] | None = None,
) -> dict[str, Any]:
    """Of the table."""
    early, late = (b >> 20 for b in memory) if memory else (None, None)
    return {"what": what, "killed": killed, "trials": trials, "same bytes": same, "MB early": early, "MB late": late}


def summary(tally: Tally, witness: Witness, minutes: float) -> tuple[list[dict[str, Any]], list[str]]:
    """Rows of the table, and what is wrong, a line each."""
    rows = [row(m, tally.killed[m], tally.finished[m], tally.same[m]) for m in METHODS]
    wrong = list(tally.troubles)
    for name in ("runner", "trial"):
        found = witness.memory(name)
        if found is None:
            wrong.append(f"memory of the {name} left alone: not seen long enough")
        elif found[1] > GROWTH[0] * found[0] and found[1] - found[0] > GROWTH[1]:
            wrong.append(f"memory of the {name} left alone grew from {found[0] >> 20} to {found[1] >> 20} MB")
        rows.append(row(f"{name} left alone", memory=found))
    rows.append(row("runner", tally.killed["runner"]))
    total = tally.killed.total()
    rows.append(
        row(f"all, {tally.rounds} rounds, {minutes:.0f} min", total, tally.finished.total(), tally.same.total())
    )
    wrong += [f"left running: {o}" for o in tally.orphans] + [f"left behind: {p}" for p in tally.leftovers]
    if total < 50 and minutes >= 30:
        wrong.append(f"only {total} kills")
    return rows, wrong


def main(arguments: Sequence[str] | None = None) -> int:
    """1 when something was lost, left behind or grew."""
    given = settings(DEFAULTS, arguments)
    place, minutes = Path(given["results"]), float(given["minutes"])
    shutil.rmtree(place, ignore_errors=True)
    print(machine(), flush=True)
    whole, first = undisturbed(given)
    every = float(given["every"]) or first + 2  # so that a trial can get somewhere between two kills
    print(f"undisturbed trials done; a kill every {every:.1f} s on average", flush=True)
    draw, tally, witness = random.Random(int(given["seed"])), Tally(), Witness(given)
    began = time.monotonic()
    until = began + 60 * minutes
    while time.monotonic() < until:
        root = play(given, draw, every, until, tally)
        if compare(whole, root, tally):
            shutil.rmtree(root)
        print(f"round {tally.rounds}: {tally.killed.total()} kills, {tally.same.total()} of {tally.finished.total()} "
              f"trials with the same bytes, {(time.monotonic() - began) / 60:.1f} min", flush=True)  # fmt: skip
    witness.end(tally)
    rows, wrong = summary(tally, witness, (time.monotonic() - began) / 60)
    show("Killed at random and taken up again", rows, "soak.csv")
    for line in wrong:
        print(line)
    print("nothing lost, nothing left running or behind, no growth" if not wrong else f"{len(wrong)} things wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
