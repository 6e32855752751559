"""Env steps and gradient updates a second of every method on every suite, one core, and of the bare environment.

    python -m benchmarks.throughput [suites=all] [algorithms=all] [seconds=10] [repeats=3]
        [clock=wall|cpu] [METHOD.FIELD=VALUE]

One task a suite: its first default task of each action kind. "bare" steps the same number of environments with random
legal actions; "collecting" is training without learning.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any

import torch

from benchmarks import clock, common
from harness import registry
from harness.errors import UserError

DEFAULTS = {"suites": "all", "algorithms": "all", "seconds": 10, "repeats": 3, "clock": "wall"}


def rate(once: Callable[[], int], seconds: float, repeats: int) -> float:
    """What ``once`` counts, a second: the median of ``repeats`` measurements of ``seconds`` in all."""
    found = []
    once()
    for _ in range(repeats):
        start, count = clock.now(), 0
        while clock.now() - start < seconds / repeats:
            count += once()
        found.append(count / (clock.now() - start))
    return statistics.median(found)


def bare(env: Any) -> Callable[[], int]:
    """Rounds of whole episodes with random actions, nothing recorded; counts steps that happened."""
    rng = torch.Generator().manual_seed(0)
    seed = iter(range(10**9))

    def once() -> int:
        step, played = env.reset(next(seed)), 0
        running = torch.ones(env.num_envs, dtype=torch.bool)
        while bool(running.any()):
            step = env.step(common.random_actions(env, step, rng))
            played += int(running.sum())
            running &= ~(step.terminated | step.truncated).cpu()
        return played

    return once


def measure(suite: str, task: str, algorithm: str, seconds: float, repeats: int, *more: str) -> dict[str, Any]:
    """Rates of one method on one task, from a learner whose replay can be sampled."""
    with common.loop(suite, task, algorithm, *more) as loop:

        def collect() -> int:
            before = loop.env_steps
            loop._collect()
            return loop.env_steps - before

        def both() -> int:
            played = collect()
            loop._learn()
            return played

        while loop.replay is not None and len(loop.replay) < loop.algorithm.batch_episodes:  # type: ignore[attr-defined]
            collect()
        alone, collecting = rate(bare(loop.env), seconds, repeats), rate(collect, seconds, repeats)
        updates, played = loop.learner.updates, loop.env_steps
        training = rate(both, seconds, repeats)
        ratio = (loop.learner.updates - updates) / (loop.env_steps - played)
        return {
            "suite": suite,
            "task": task,
            "algorithm": algorithm,
            "envs": loop.env.num_envs,
            "bare env_steps/s": alone,
            "collecting env_steps/s": collecting,
            "training env_steps/s": training,
            "updates/s": ratio * training,
            "updates/1000 env_steps": 1000 * ratio,
            "collecting/bare": collecting / alone,
        }


def tasks(name: str) -> list[str]:
    """The first default task of each action kind; none when the suite's engine is not installed."""
    suite = registry.suite(name)()
    try:
        suite.engine_version()
    except UserError as error:
        print(f"left out: {error}")
        return []
    known = suite.tasks()
    first: dict[str, str] = {}
    for task in suite.default_tasks:
        first.setdefault(known[task].action, task)
    return list(first.values())


def main() -> None:
    """Print the table."""
    given = common.settings(DEFAULTS)
    print(common.machine())
    suites = registry.suites() if given["suites"] == "all" else given["suites"].split(",")
    methods = registry.algorithms() if given["algorithms"] == "all" else given["algorithms"].split(",")
    rows = []
    for suite in suites:
        for task in tasks(suite):
            for algorithm in methods:
                if reason := common.supported(suite, task, algorithm):
                    print(f"left out: {reason}")
                    continue
                more = common.overrides(given, algorithm)
                rows.append(measure(suite, task, algorithm, float(given["seconds"]), int(given["repeats"]), *more))
    if rows:
        common.show("Throughput on one core", rows, "throughput.csv")


if __name__ == "__main__":
    main()
