"""By which clock the benchmarks measure."""

from __future__ import annotations

import time

NAME, now = "wall", time.perf_counter


def choose(name: str) -> None:
    """Measure by the "wall" clock, or by "cpu": this process's own time, which others on the machine disturb less."""
    global NAME, now
    clocks = {"wall": time.perf_counter, "cpu": time.process_time}
    if name not in clocks:
        raise SystemExit(f"clock={name}: wall or cpu")
    NAME, now = name, clocks[name]
