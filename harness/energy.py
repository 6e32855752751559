"""What a trial takes of its machine: CPU seconds everywhere, joules where the machine counts them.

CPU energy is that of the packages (Linux powercap, RAPL), idle power included, times the trial's share of the CPU time
that the whole machine was busy between two readings. GPU energy is the counter of the trial's GPU (NVML), split evenly
over the processes that compute on it. What cannot be read is "not measured" with the reason, never 0.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import resource
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

import psutil
import torch

COLUMNS = ("cpu_seconds", "cpu_joules", "gpu_joules")
"""What ``timings.csv`` holds of training up to a point; empty where it was not measured."""
COUNTED = ("training", "evaluation")
"""Phases that the record's totals consist of, as ``wall_seconds`` does."""
EVERY = 20.0
"""Seconds after which ``Meter.tick`` reads."""
MOST_WATTS = 500.0
"""No package draws more. A counter that may have gone round twice between two readings tells nothing."""
POWERCAP, STAT = Path("/sys/class/powercap"), Path("/proc/stat")


class NotMeasured(Exception):
    """Why a counter cannot be read; stands in the record after "not measured: "."""


# -- CPU time ---------------------------------------------------------------------------------------------------------


def cpu_seconds() -> float:
    """User and system time of this process and of everything it started, whether that still runs or has ended."""
    total = 0.0
    for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN):
        used = resource.getrusage(who)
        total += used.ru_utime + used.ru_stime
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):  # it has just ended
            times = child.cpu_times()
            total += times.user + times.system + times.children_user + times.children_system
    return total


def busy_seconds(stat: Path = STAT) -> float:
    """CPU time that all cores of the machine have spent working. Raises ``NotMeasured``."""
    try:
        user, nice, system, _, _, irq, softirq = map(int, stat.read_text().split("\n", 1)[0].split()[1:8])
    except (OSError, ValueError) as error:
        raise NotMeasured(f"{stat} does not tell how busy the machine is ({error})") from error
    return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")


# -- counters ---------------------------------------------------------------------------------------------------------


class Counter(Protocol):
    """Of energy."""

    def joules(self, share: float, passed: float) -> float:
        """This trial's since the last call; ``share`` is its part of the busy CPU time in those ``passed`` seconds.

        Raises ``NotMeasured``.
        """


class Packages:
    """The CPU packages' counters. Raises ``NotMeasured`` where there are none that may be read."""

    def __init__(self, root: Path = POWERCAP) -> None:
        zones = [z for z in sorted(root.glob("intel-rapl:*")) if z.name.count(":") == 1]
        self.zones = [z for z in zones if _text(z / "name").startswith("package")]  # not psys, which holds them
        if not self.zones:
            raise NotMeasured(f"no energy counter of a CPU package in {root}")
        self.ranges = [_microjoules(z / "max_energy_range_uj") for z in self.zones]
        self.before = self._now()

    def _now(self) -> list[int]:
        return [_microjoules(z / "energy_uj") for z in self.zones]

    def joules(self, share: float, passed: float) -> float:
        """See ``Counter``. A counter that went round once is followed."""
        if passed > min(self.ranges) / 1e6 / MOST_WATTS:
            raise NotMeasured(f"{passed:.0f} s between two readings, in which the counter may have gone round unseen")
        now = self._now()
        used = sum(n - b + (r if n < b else 0) for n, b, r in zip(now, self.before, self.ranges, strict=True))
        self.before = now
        return share * used / 1e6


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError as error:
        raise NotMeasured(f"{path}: {error.strerror or error}") from error


def _microjoules(path: Path) -> int:
    text = _text(path)
    if not text.isdigit():
        raise NotMeasured(f"{path} holds {text!r}, no number")
    return int(text)


class Gpu:
    """One NVIDIA GPU's counter. Raises ``NotMeasured`` without nvidia-ml-py, or where the GPU has none."""

    def __init__(self, uuid: str) -> None:
        try:
            self.nvml: Any = importlib.import_module("pynvml")
        except ImportError as error:
            raise NotMeasured("the package nvidia-ml-py is not installed") from error
        self.most = 1
        """Most processes seen on it at once, this one included."""
        self.asked(self.nvml.nvmlInit)
        self.handle = self.asked(self.nvml.nvmlDeviceGetHandleByUUID, uuid)
        self.before, self.sharing = self._now()

    def asked(self, question: Callable[..., Any], *arguments: Any) -> Any:
        """NVML's answer. Raises ``NotMeasured``."""
        try:
            return question(*arguments)
        except self.nvml.NVMLError as error:
            raise NotMeasured(f"NVML: {error}") from error

    def _now(self) -> tuple[int, int]:
        """Millijoules, and processes that compute on it."""
        spent = int(self.asked(self.nvml.nvmlDeviceGetTotalEnergyConsumption, self.handle))
        sharing = max(1, len(self.asked(self.nvml.nvmlDeviceGetComputeRunningProcesses, self.handle)))
        self.most = max(self.most, sharing)
        return spent, sharing

    def joules(self, share: float, passed: float) -> float:
        """See ``Counter``: an even part for each process, of the mean of their numbers at both ends."""
        before, then = self.before, self.sharing
        self.before, self.sharing = self._now()
        if self.before < before:
            raise NotMeasured("the GPU's counter began again: its driver was reloaded")
        return (self.before - before) / 1e3 / ((then + self.sharing) / 2)


def gpu_uuid(device: torch.device) -> str:
    """Of a CUDA device, as NVML names it. Raises ``NotMeasured``."""
    uuid = getattr(torch.cuda.get_device_properties(device), "uuid", None)
    if uuid is None:
        raise NotMeasured("this version of torch does not tell which GPU it computes on")
    return f"GPU-{uuid}"


# -- one trial --------------------------------------------------------------------------------------------------------


class Meter:
    """What one trial has taken, by phase, over all its starts.

    Counters that a machine lacks, or that fail once, leave that energy not measured for the whole trial: a sum with a
    gap would be too small.
    """

    def __init__(self, device: torch.device, powercap: Path | None = None, stat: Path = STAT) -> None:
        self.stat = stat
        self.used: dict[str, dict[str, float]] = {}
        """Phase -> cpu_seconds, cpu, gpu (joules)."""
        self.why: dict[str, str] = {}
        """Of "cpu_seconds", "cpu" and "gpu" the reason, where it is not measured."""
        self.counters: dict[str, Counter] = {}
        self._open("cpu", lambda: Packages(powercap or POWERCAP))
        if device.type == "cuda":
            self._open("gpu", lambda: Gpu(gpu_uuid(device)))
        self.kinds = ("cpu", "gpu") if device.type == "cuda" else ("cpu",)
        self._then, self._cpu, self._busy = time.monotonic(), cpu_seconds(), self._busy_now()

    def _open(self, kind: str, counter: Callable[[], Counter]) -> None:
        try:
            self.counters[kind] = counter()
        except NotMeasured as error:
            self.why[kind] = str(error)

    def _busy_now(self) -> float:
        if "cpu" not in self.counters:  # nobody asks
            return 0.0
        try:
            return busy_seconds(self.stat)
        except NotMeasured as error:
            self._lost("cpu", error)
            return 0.0

    def _lost(self, kind: str, error: NotMeasured) -> None:
        self.why.setdefault(kind, str(error))
        self.counters.pop(kind, None)

    # -- measuring ------------------------------------------------------------------------------------------------

    def charge(self, phase: str) -> None:
        """Put what was taken since the last reading down to ``phase``; only ``COUNTED`` ones enter the totals."""
        now, cpu, busy = time.monotonic(), cpu_seconds(), self._busy_now()
        own = max(0.0, cpu - self._cpu)  # a child that nobody waited for takes its time with it
        share = own / max(own, busy - self._busy, 1e-9)
        into = self.used.setdefault(phase, {})
        into["cpu_seconds"] = into.get("cpu_seconds", 0.0) + own
        for kind, counter in list(self.counters.items()):
            try:
                into[kind] = into.get(kind, 0.0) + counter.joules(share, now - self._then)
            except NotMeasured as error:
                self._lost(kind, error)
        self._then, self._cpu, self._busy = now, cpu, busy

    def tick(self, phase: str) -> None:
        """``charge`` where the last reading is a while ago: counters go round within minutes."""
        if time.monotonic() - self._then >= EVERY:
            self.charge(phase)

    # -- what was measured ------------------------------------------------------------------------------------------

    @property
    def columns(self) -> tuple[str, ...]:
        """Of this trial's timings.csv; none in one that an earlier version began without them."""
        return () if "cpu_seconds" in self.why else COLUMNS

    def row(self) -> tuple[float | str, ...]:
        """Values of ``columns``: of training so far, empty where not measured."""
        found = (self._total(kind, COUNTED[:1]) for kind in ("cpu_seconds", "cpu", "gpu"))
        return tuple("" if x is None else x for x in found) if self.columns else ()

    def record(self) -> dict[str, Any]:
        """For trial.json: ``cpu_seconds`` (None where unknown), ``energy_joules`` by kind, a number or why not."""
        energy = {k: self._total(k, COUNTED) for k in self.kinds}
        told = {k: f"not measured: {self.why.get(k)}" if v is None else v for k, v in energy.items()}
        shared = getattr(self.counters.get("gpu"), "most", 1)
        return {
            "cpu_seconds": self._total("cpu_seconds", COUNTED),
            "train_cpu_seconds": self._total("cpu_seconds", COUNTED[:1]),
            "energy_joules": told,
            **({"gpu_processes": shared} if shared > 1 else {}),
        }

    def _total(self, kind: str, phases: tuple[str, ...]) -> float | None:
        if kind in self.why or (kind != "cpu_seconds" and kind not in self.kinds):
            return None
        return sum(self.used.get(phase, {}).get(kind, 0.0) for phase in phases)

    # -- over a restart ---------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """For the checkpoint."""
        return {"used": {k: dict(v) for k, v in self.used.items()}, "why": dict(self.why)}

    def load_state_dict(self, state: Mapping[str, Any] | None) -> None:
        """Go on from ``state``; None where the checkpoint holds none: what was taken before it is unknown."""
        if state is None:
            unknown = "the trial was begun by a version that did not measure it"
            state = {"used": {}, "why": dict.fromkeys(("cpu_seconds", *self.kinds), unknown)}
        for kind, why in state["why"].items():
            self._lost(kind, NotMeasured(why))
        self.used = {k: dict(v) for k, v in state["used"].items()}
        self.charge("starting")
