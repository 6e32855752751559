"""Tiny trials of registered methods, and what they leave."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from harness import checkpoint, registry
from harness.store import TrialFolder
from harness.trial import run
from harness.types import Trial
from tests.support.episodes import CPU, small

TABLES = ("metrics.csv", "evaluations.csv", "final.csv")
TASKS = {"discrete": ("matrix", "two_step"), "continuous": ("matrix", "continuous")}
BUDGET = {
    "env_steps": 120, "eval_every": 40, "eval_episodes": 4, "final_episodes": 6, "checkpoint_every": 50, "seeds": 1,
}  # fmt: skip


def tiny(results: Path, name: str, kind: str = "discrete", seed: int = 0, **budget: int) -> Trial:
    """A trial of a second or less: QMIX's two-step game, or FACMAC's continuous one."""
    suite, task = TASKS[kind]
    made = registry.suite(suite)()
    settings = {
        "algorithm": dataclasses.asdict(small(name, kind)),  # type: ignore[call-overload]
        "suite": dataclasses.asdict(made),
        "budget": BUDGET | budget,
        "engine": made.engine_version(),
    }
    return Trial("test", suite, task, name, seed, settings, str(results))


def finish(trial: Trial) -> Path:
    """Run it to its end; its folder."""
    assert run(trial, lambda p: None, lambda: False) == "complete"
    return TrialFolder.of(trial).path


def stop_after(rounds: int) -> Callable[[], bool]:
    """Asks to stop the ``rounds``-th time that it is asked."""
    asked = [0]

    def stopping() -> bool:
        asked[0] += 1
        return asked[0] >= rounds

    return stopping


def tables(folder: Path) -> dict[str, bytes]:
    """Bytes of every table that identical trials share."""
    return {name: (folder / name).read_bytes() for name in TABLES}


def state(folder: Path) -> dict[str, Any]:
    """The checkpoint without its clocks, flattened; and the best networks."""
    found = checkpoint.load(folder, None, CPU)
    assert found is not None
    for clock in ("clocks", "meter", "positions", "parts"):  # the last two differ in where the trial stopped on its way
        found.pop(clock)
    return flat(found) | {f"best.pt/{k}": v for k, v in flat(checkpoint.load_networks(folder / "best.pt")).items()}


def flat(tree: Any, at: str = "") -> dict[str, Any]:
    """{path: leaf} of nested dicts and lists."""
    if isinstance(tree, dict):
        return {k: v for key, x in tree.items() for k, v in flat(x, f"{at}/{key}").items()}
    if isinstance(tree, list | tuple):
        return {k: v for key, x in enumerate(tree) for k, v in flat(x, f"{at}/{key}").items()}
    return {at: tree}


def identical(a: dict[str, Any], b: dict[str, Any]) -> None:
    """Byte for byte."""
    assert a.keys() == b.keys()
    for name, x in a.items():
        if isinstance(x, torch.Tensor):
            assert x.dtype == b[name].dtype, name
            assert torch.equal(x, b[name]), name
        else:
            assert x == b[name], name
