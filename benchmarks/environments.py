"""What environments cost and what simple play earns: steps a second, and the returns that suites declare as bounds.

    python -m benchmarks.environments throughput [--suites mpe,lbf] [--envs 8] [--seconds 5]
    python -m benchmarks.environments bounds SUITE [--tasks ...] [--episodes 1000]

One torch thread; OMP_NUM_THREADS=1 in the environment for the rest.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import statistics
import time
from collections.abc import Iterator

import psutil
import torch
from torch import Tensor

from benchmarks.scripts import Policy, scripted
from harness import registry
from harness.suite import VecEnv
from harness.types import Discrete, Step

CPU = torch.device("cpu")


def random_play(generator: torch.Generator) -> Policy:
    """Uniform legal actions, or uniform in the box."""

    def act(env: VecEnv, step: Step) -> Tensor:
        e, n = step.alive.shape
        if step.avail is not None:
            return torch.multinomial(step.avail.reshape(e * n, -1).float(), 1, generator=generator).reshape(e, n)
        box = env.spec.action
        assert not isinstance(box, Discrete)
        return torch.rand(e, n, box.size, generator=generator) * (box.high - box.low) + box.low

    return act


def returns(env: VecEnv, policy: Policy, episodes: int, seed: int = 1) -> list[float]:
    """Undiscounted returns of ``episodes`` whole episodes."""
    found: list[float] = []
    while len(found) < episodes:
        step, seed = env.reset(seed), seed + 1
        total = torch.zeros(env.num_envs, dtype=torch.float64)
        while not bool((step.terminated | step.truncated).all()):
            step = env.step(policy(env, step))
            total += step.reward
        found += total.tolist()
    return found[:episodes]


def bounds(suite_name: str, tasks: list[str], episodes: int) -> Iterator[tuple[str, str, float, float]]:
    """(task, policy, mean return, its standard error)."""
    suite = registry.suite(suite_name)()
    for task in tasks or list(suite.tasks()):
        env = suite.make(task, min(episodes, 256 if suite_name == "vmas" else 10), CPU)
        policies = {"random": random_play(torch.Generator().manual_seed(0)), "scripted": scripted(suite_name, task)}
        for name, policy in policies.items():
            if policy is not None:
                found = returns(env, policy, episodes)
                yield task, name, statistics.fmean(found), statistics.stdev(found) / math.sqrt(episodes)
        env.close()


def throughput(suite_name: str, num_envs: int, seconds: float) -> Iterator[tuple[str, str, float, float]]:
    """(task, stepping, environment steps a second, and a CPU second) under random play of whole episodes.

    Of the suite's first task; medians of five. CPU time is that of this process and of its workers.
    """
    suite = registry.suite(suite_name)()
    task = suite.default_tasks[0]
    has_choice = any(field.name == "stepping" for field in dataclasses.fields(suite))
    for stepping in ("inline", "process") if has_choice else ("vectorised",):
        chosen = dataclasses.replace(suite, stepping=stepping) if has_choice else suite
        env, policy = chosen.make(task, num_envs, CPU), random_play(torch.Generator().manual_seed(0))
        rates = [rate(env, policy, seconds) for _ in range(5)]
        env.close()
        yield task, stepping, statistics.median(r[0] for r in rates), statistics.median(r[1] for r in rates)


def rate(env: VecEnv, policy: Policy, seconds: float) -> tuple[float, float]:
    """Environment steps a second and a CPU second; idle ones do not count."""
    steps, step = 0, env.reset(0)
    begun, spent = time.perf_counter(), cpu_time()
    while time.perf_counter() - begun < seconds:
        running = ~(step.terminated | step.truncated)
        if not bool(running.any()):
            step = env.reset(steps)
            continue
        step = env.step(policy(env, step))
        steps += int(running.sum())
    return steps / (time.perf_counter() - begun), steps / (cpu_time() - spent)


def cpu_time() -> float:
    """Seconds of CPU that this process and the living ones it started have used."""
    this = psutil.Process()
    used = [process.cpu_times() for process in [this, *this.children(recursive=True)]]
    return sum(times.user + times.system for times in used)


def main() -> None:
    """See the module's docstring."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    of = commands.add_parser("throughput")
    of.add_argument("--suites", default="mpe,mamujoco,lbf,rware,vmas")
    of.add_argument("--envs", type=int, default=8)
    of.add_argument("--seconds", type=float, default=5.0)
    of = commands.add_parser("bounds")
    of.add_argument("suite")
    of.add_argument("--tasks", default="")
    of.add_argument("--episodes", type=int, default=1000)
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    if chosen.command == "throughput":
        for suite in chosen.suites.split(","):
            for task, stepping, wall, cpu in throughput(suite, chosen.envs, chosen.seconds):
                where = f"{suite:10} {task:24} {stepping:10} {chosen.envs:4} environments"
                print(f"{where} {wall:10.0f} steps/s {cpu:10.0f} steps/CPU s", flush=True)
        return
    tasks = chosen.tasks.split(",") if chosen.tasks else []
    for task, policy, mean, error in bounds(chosen.suite, tasks, chosen.episodes):
        print(f"{task:36} {policy:9} {mean:12.3f} +- {error:.3f}  ({chosen.episodes} episodes)", flush=True)


if __name__ == "__main__":
    main()
