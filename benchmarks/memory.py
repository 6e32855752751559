"""Memory of a trial's process: after start-up, and while it trains; and the replay's share.

    python -m benchmarks.memory [suite=smac] [tasks=3m,2s3z] [algorithms=qmix] [env_steps=100000] [METHOD.FIELD=VALUE]

Each trial runs in a process of its own, as in ``harness run``; "late growth" is resident memory at the end against the
middle of the run, where the replay is not yet full it grows with it.
"""

from __future__ import annotations

import itertools
import multiprocessing
import os
import resource
from typing import Any

import psutil

from benchmarks import common

DEFAULTS = {"suite": "smac", "tasks": "3m,2s3z", "algorithms": "qmix", "env_steps": 100_000}
MB = 2**20


def measure(suite: str, task: str, algorithm: str, env_steps: int, more: tuple[str, ...]) -> dict[str, Any]:
    """Megabytes of one trial in this process."""
    me, seen = psutil.Process(os.getpid()), []
    imported = me.memory_info().rss
    budget = (f"env_steps={env_steps}", f"eval_every={env_steps}", "final_episodes=32")
    with common.loop(suite, task, algorithm, *budget, *more) as loop:
        built = me.memory_info().rss

        def stopping() -> bool:
            seen.append((loop.env_steps, me.memory_info().rss))
            return False

        loop.run(stopping)
        held = 0
        if loop.replay is not None:
            used = int(loop.replay.length.sum())
            full = sum(x.numel() * x.element_size() for x in loop.replay.store.values())
            held = full * used // (loop.replay.capacity * loop.replay.limit)
        middle = next(rss for steps, rss in seen if steps >= env_steps / 2)
        return {
            "suite": suite,
            "task": task,
            "algorithm": algorithm,
            "imported_mb": imported / MB,
            "built_mb": built / MB,
            "middle_mb": middle / MB,
            "end_mb": seen[-1][1] / MB,
            "late_growth_mb": (seen[-1][1] - middle) / MB,
            "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
            "replay_held_mb": held / MB,
            "replay_full_mb": 0.0 if loop.replay is None else full / MB,
        }


def main() -> None:
    """Print the table."""
    given = common.settings(DEFAULTS)
    print(common.machine())
    rows = []
    for task, algorithm in itertools.product(given["tasks"].split(","), given["algorithms"].split(",")):
        job = (
            given["suite"],
            task,
            algorithm,
            int(float(given["env_steps"])),
            tuple(common.overrides(given, algorithm)),
        )
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            rows.append(pool.apply(measure, job))
    common.show(f"Resident memory of a trial of {int(float(given['env_steps'])):,} env steps", rows, "memory.csv")


if __name__ == "__main__":
    main()
