"""Time of a report against the number of trials in it.

    python -m benchmarks.report [trials=10,50,200] [points=41] [episodes=32] [clock=wall|cpu]

The trials are made up: three methods on as many tasks as it takes at ten seeds, win rates that rise with noise.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import clock, common
from harness.store import TrialFolder

DEFAULTS = {"trials": "10,50,200", "points": 41, "episodes": 32, "clock": "wall"}
SEEDS, METHODS, STEP = 10, ("one", "two", "three"), 5_000


def write(root: Path, trials: int, points: int, episodes: int) -> None:
    """``trials`` complete trials below ``root``, as the store lays them out."""
    rng = np.random.default_rng(0)
    for index in range(trials):
        rest, seed = divmod(index, SEEDS)
        task, method = divmod(rest, len(METHODS))
        identity = {"experiment": "bench", "suite": "made_up", "task": f"task_{task}", "algorithm": METHODS[method]}
        budget = {
            "env_steps": STEP * (points - 1),
            "eval_every": STEP,
            "eval_episodes": episodes,
            "final_episodes": 128,
        }
        folder = TrialFolder(root / "/".join(identity.values()) / f"seed_{seed}")
        folder.update(
            **identity, seed=seed, status="complete", engine="made up 1", metric="won", bounds=[0.0, 1.0],
            references={}, device="cpu", parameters={}, updates=points, env_steps=budget["env_steps"],
            settings={"algorithm": {}, "suite": {}, "budget": budget, "engine": "made up 1"}, num_envs=8,
            train_seconds=100.0, eval_seconds=10.0, wall_seconds=110.0, episodes=1000, samples_per_update=700.0,
            peak_memory_bytes=10**9, versions={},
        )  # fmt: skip
        skill = np.linspace(0.0, 0.6 + 0.1 * method, points).clip(0, 1)
        for k, chance in enumerate(skill):
            _episodes(folder, "evaluations.csv", k * STEP, rng.random(episodes) < chance)
            folder.append("metrics.csv", ("env_steps", "metric", "value"), [(k * STEP, "td/loss", float(rng.random()))])
            folder.append("timings.csv", ("env_steps", "updates", "seconds"), [(k * STEP, k, float(k))])
        _episodes(folder, "final.csv", (points - 1) * STEP, rng.random(128) < skill[-1])


def _episodes(folder: TrialFolder, table: str, env_steps: int, won: Any) -> None:
    rows = [(env_steps, k, 20.0 * int(w), 30, int(w)) for k, w in enumerate(won)]
    folder.append(table, ("env_steps", "episode", "return", "length", "won"), rows)


def measure(trials: int, points: int, episodes: int) -> dict[str, Any]:
    """Seconds of reading and of the whole report."""
    from harness.reporting.report import build
    from harness.store import load

    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        write(root / "results", trials, points, episodes)
        start = clock.now()
        load(root / "results" / "bench")
        read = clock.now() - start
        start = clock.now()
        build([root / "results" / "bench"], root / "report", ("html", "md"))
        whole = clock.now() - start
        size = sum(p.stat().st_size for p in (root / "report").rglob("*") if p.is_file())
    return {"trials": trials, "read_s": read, "report_s": whole, "s/trial": whole / trials, "report_mb": size / 2**20}


def main() -> None:
    """Print the table."""
    given = common.settings(DEFAULTS)
    print(common.machine())
    rows = [measure(int(n), int(given["points"]), int(given["episodes"])) for n in given["trials"].split(",")]
    common.show("Time of a report", rows, "report.csv")


if __name__ == "__main__":
    main()
