"""Where a trial's time goes, and how far an update is from its bare kernels.

python -m benchmarks.breakdown [suite=smac] [tasks=3m,2s3z] [algorithms=qmix] [env_steps=20000] [repeats=5]
    [clock=wall|cpu] [METHOD.FIELD=VALUE]
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping
from typing import Any

import torch

from benchmarks import clock, common, kernels
from harness.profile import PARTS, instrumented

DEFAULTS = {
    "suite": "smac",
    "tasks": "3m,2s3z",
    "algorithms": "qmix",
    "env_steps": 20_000,
    "repeats": 5,
    "clock": "wall",
}


def breakdown(suite: str, task: str, algorithm: str, env_steps: int, *more: str) -> dict[str, Any]:
    """Run one trial; seconds of training by part, evaluation's total, rates, and the share of idle slots."""
    budget = (f"env_steps={env_steps}", f"eval_every={env_steps}", "eval_episodes=32", "final_episodes=32")
    with common.loop(suite, task, algorithm, *budget, *more) as loop, instrumented(loop, clock.now) as profile:
        loop.run(lambda: False)
        total = profile.clock.total
        training = total(phase="training")
        return {
            "suite": suite,
            "task": task,
            "algorithm": algorithm,
            "env_steps_s": loop.env_steps / training,
            "updates_s": loop.learner.updates / training,
            "updates_per_1000": 1000 * loop.learner.updates / loop.env_steps,
            **{part: total(part, phase="training") / training for part in PARTS},
            "idle": profile.idle_share,
            "evaluation_s": total(phase="evaluation"),
            "training_s": training,
        }


def update(suite: str, task: str, algorithm: str, repeats: int, *more: str) -> dict[str, Any]:
    """One gradient update, and its kernels alone, on the episodes of a real trial."""
    with common.loop(suite, task, algorithm, *more) as loop:
        batch = _a_batch(loop)

        def step() -> None:
            loop.learner.update(batch, 0.0, loop.rng["learning"], loop.rng["replay"])

        step()
        before = loop.learner.updates
        step()
        steps = loop.learner.updates - before
        with kernels.Watch() as watch:
            step()
        seconds = kernels.median(step, repeats, least=0.2) / steps
        timed, together = kernels.alone(watch.calls, repeats), kernels.in_turn(watch.calls, repeats) / steps
    alone = {
        kind: sum(t.count * t.seconds for t in timed if t.call.kind == kind) / steps for kind in ("gru", "product")
    }
    flops = sum(t.count * t.call.flops() for t in timed) / steps
    rate = kernels.matmul_rate()
    return {
        "suite": suite,
        "task": task,
        "algorithm": algorithm,
        "episodes": len(batch.mask)
        if steps == 1
        else len(batch.mask) // max(x.minibatches for x in loop.learner.losses),
        "steps": batch.mask.shape[1],
        "update_ms": 1e3 * seconds,
        "bare_ms": 1e3 * together,
        "update/bare": seconds / together,
        "gru alone, ms": 1e3 * alone["gru"],
        "products alone, ms": 1e3 * alone["product"],
        "update/alone": seconds / sum(alone.values()),
        "gflop": flops / 1e9,
        "gflop/s": flops / seconds / 1e9,
        "matmul gflop/s": rate / 1e9,
        "share of matmul rate": flops / seconds / rate,
    }


def acting(suite: str, task: str, algorithm: str, repeats: int, *more: str) -> float:
    """The share of one call of ``act``, in all environments of training, that is its bare kernels."""
    with common.loop(suite, task, algorithm, *more) as loop, torch.no_grad():
        step = loop.env.reset(0)
        memory = loop.algorithm.act(loop.learner.net, step, None, 0, loop.rng["exploration"]).memory

        def act() -> None:
            loop.algorithm.act(loop.learner.net, step, memory, 0, loop.rng["exploration"])

        seconds = kernels.median(act, repeats, least=0.2)
        with kernels.Watch() as watch:
            act()
        return kernels.in_turn(watch.calls, repeats) / seconds


def arithmetic(parts: Mapping[str, Any], updated: Mapping[str, Any], of_act: float) -> float:
    """Share of training in environments, matrix products and GRU kernels, taken to be the same share of acting and
    learning as of the one call and the one update that were measured."""
    learning: float = parts["forward"] + parts["backward"] + parts["optimiser"]
    return float(parts["environment"] + parts["act"] * of_act + learning / updated["update/bare"])


def _a_batch(loop: Any) -> Any:
    """What the learner is given: a sample of the replay once it can be sampled, or a round of episodes."""
    if loop.replay is None:
        loop._collect()
        return loop.batch
    size = loop.algorithm.batch_episodes
    while len(loop.replay) < size:
        loop._collect()
    return loop.replay.sample(size, loop.rng["replay"])


def main() -> None:
    """Print both tables."""
    given = common.settings(DEFAULTS)
    print(common.machine())
    pairs = list(itertools.product(given["tasks"].split(","), given["algorithms"].split(",")))
    repeats, env_steps = int(given["repeats"]), int(float(given["env_steps"]))
    start, parts, updates = time.monotonic(), [], []
    for task, algorithm in pairs:
        more = common.overrides(given, algorithm)
        runs = [breakdown(given["suite"], task, algorithm, env_steps, *more) for _ in range(repeats)]
        parts.append(common.medians(runs))
        updates.append(update(given["suite"], task, algorithm, repeats, *more))
        of_act = acting(given["suite"], task, algorithm, repeats, *more)
        parts[-1]["environment, products, GRU"] = arithmetic(parts[-1], updates[-1], of_act)
    for title, rows, file in (
        (f"Share of training time by part, one core, medians of {repeats} trials of {env_steps:,} env steps; "
         "idle: share of environment slots that were finished", parts, "breakdown.csv"),
        (f"One gradient update against its bare kernels, medians of {repeats}", updates, "update.csv"),
    ):  # fmt: skip
        common.show(title, rows, file, sideways=True)
    print(f"{time.monotonic() - start:.0f} s")


if __name__ == "__main__":
    main()
