"""How rates change with workers, environments, agents and batch size.

    python -m benchmarks.scaling [what=workers,envs,agents,batch] [suite=smac] [task=3m] [algorithm=qmix]
        [clock=wall|cpu] [env_steps=20000] [seconds=5] [workers=1,2,4] [envs=1,8,32,128] [batch=8,32,128]
        [agents=3m,8m,25m,27m_vs_30m]

workers: whole trials by ``harness run``, as many as the largest number of workers each time, start-up included. envs:
collection alone. agents: tasks of the suite by their number of agents. batch: gradient updates alone.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from typing import Any

from benchmarks import common
from benchmarks.breakdown import update
from benchmarks.throughput import bare, measure, rate

DEFAULTS = {
    "what": "workers,envs,agents,batch", "suite": "smac", "task": "3m", "algorithm": "qmix", "env_steps": 20_000,
    "seconds": 5, "workers": "1,2,4", "envs": "1,8,32,128", "batch": "8,32,128", "agents": "3m,8m,25m,27m_vs_30m",
    "clock": "wall",
}  # fmt: skip


def by_workers(given: dict[str, str]) -> list[dict[str, Any]]:
    """Wall time of the same trials by different numbers of workers. The first run, not counted, fills JAX's cache."""
    counts = [int(x) for x in given["workers"].split(",")]
    _run(given, 1, 1)
    rows: list[dict[str, Any]] = []
    for count in counts:
        seconds = _run(given, count, max(counts))
        steps = max(counts) * int(float(given["env_steps"]))
        rows.append({"workers": count, "trials": max(counts), "seconds": seconds, "env_steps/s": steps / seconds})
    return [row | {"speed-up": rows[0]["seconds"] / row["seconds"]} for row in rows]


def _run(given: dict[str, str], workers: int, trials: int) -> float:
    with tempfile.TemporaryDirectory() as results:
        steps = given["env_steps"]
        command = [sys.executable, "-m", "harness", "run", f"suite={given['suite']}", f"tasks={given['task']}"]
        command += [f"algorithms={given['algorithm']}", f"seeds={trials}", f"workers={workers}", f"results={results}"]
        command += [f"env_steps={steps}", f"eval_every={steps}", "final_episodes=32", "device=cpu"]
        command += common.overrides(given, given["algorithm"])
        start = time.perf_counter()
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
        return time.perf_counter() - start


def by_envs(given: dict[str, str]) -> list[dict[str, Any]]:
    """Collection with different numbers of environments, against the bare environment with random actions."""
    rows = []
    for count in given["envs"].split(","):
        name, seconds = given["algorithm"], float(given["seconds"])
        with common.loop(given["suite"], given["task"], name, f"{name}.num_envs={count}") as loop:

            def collect(loop: Any = loop) -> int:
                before = loop.env_steps
                loop._collect()
                return loop.env_steps - before

            alone, collecting = rate(bare(loop.env), seconds, 3), rate(collect, seconds, 3)
        rows.append(
            {
                "envs": int(count),
                "bare env_steps/s": alone,
                "collecting env_steps/s": collecting,
                "ratio": collecting / alone,
            }
        )
    return rows


def by_agents(given: dict[str, str]) -> list[dict[str, Any]]:
    """Training on tasks of more and more agents."""
    rows = []
    for task in given["agents"].split(","):
        found = measure(given["suite"], task, given["algorithm"], float(given["seconds"]), 1)
        with common.loop(given["suite"], task, given["algorithm"]) as loop:
            agents = loop.env.spec.n_agents
        rows.append({"task": task, "agents": agents} | {k: v for k, v in found.items() if isinstance(v, float)})
    return rows


def by_batch(given: dict[str, str]) -> list[dict[str, Any]]:
    """One gradient update of more and more episodes."""
    name = given["algorithm"]
    return [
        update(given["suite"], given["task"], name, 5, f"{name}.batch_episodes={size}")
        for size in given["batch"].split(",")
    ]


def main() -> None:
    """Print a table for each of ``what``."""
    given = common.settings(DEFAULTS)
    print(common.machine())
    tables = {"workers": by_workers, "envs": by_envs, "agents": by_agents, "batch": by_batch}
    for what in given["what"].split(","):
        if what not in tables:
            raise SystemExit(f"what={what}: one of {', '.join(tables)}")
        title = f"{given['algorithm']} on {given['suite']}, by {what}" + (
            "" if what == "agents" else f", {given['task']}"
        )
        common.show(title, tables[what](given), f"scaling_{what}.csv", sideways=what == "batch")


if __name__ == "__main__":
    main()
