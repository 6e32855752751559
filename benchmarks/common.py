"""What the benchmarks share: settings, a trial's loop in this process, tables, and a line about the machine."""

from __future__ import annotations

import contextlib
import csv
import os
import platform
import statistics
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from benchmarks import clock
from harness import config
from harness.errors import UserError
from harness.trial import Loop
from harness.types import Trial

OUT = Path("reports/bench")
"""Where CSV files go."""


def settings(defaults: Mapping[str, Any], arguments: Sequence[str] | None = None) -> dict[str, str]:
    """``key=value`` arguments of the command line over ``defaults``; a key that is not among them is passed on to a
    trial's settings when it holds a dot (``qmix.batch_episodes=64``) and refused otherwise."""
    found = {k: str(v) for k, v in defaults.items()}
    for argument in sys.argv[1:] if arguments is None else arguments:
        key, equals, value = argument.partition("=")
        if not equals or (key not in defaults and "." not in key):
            raise SystemExit(f"{argument!r}: settings are written key=value; keys: {', '.join(defaults)}, METHOD.FIELD")
        found[key] = value
    if "clock" in found:
        clock.choose(found["clock"])
    return found


def overrides(given: Mapping[str, str], algorithm: str) -> list[str]:
    """The arguments among ``given`` that set fields of ``algorithm``."""
    return [f"{k}={v}" for k, v in given.items() if k.rpartition(".")[0] == algorithm]


def trial(suite: str, task: str, algorithm: str, results: str, *more: str) -> Trial:
    """One trial on the CPU, as ``harness run`` makes it. Raises ``UserError`` where the method cannot play the task."""
    parts = (f"suite={suite}", f"tasks={task}", f"algorithms={algorithm}", "seeds=1", f"results={results}", *more)
    return config.parse([*parts, "name=bench"]).trials("cpu")[0]


@contextlib.contextmanager
def loop(suite: str, task: str, algorithm: str, *more: str) -> Iterator[Loop]:
    """A trial ready to run in this process, its environments compiled, its results in a folder that is removed."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as results:
        made = Loop(trial(suite, task, algorithm, results, *more), lambda progress: None)
        try:
            for env in (made.env, made.eval_env):
                warm(env)
            yield made
        finally:
            made.close()


def warm(env: Any) -> None:
    """Let ``env`` compile what it compiles: a reset and two steps; its next episode starts from the next reset."""
    step = env.reset(0)
    for _ in range(2):
        step = env.step(random_actions(env, step, torch.Generator().manual_seed(0)))


def random_actions(env: Any, step: Any, rng: torch.Generator) -> torch.Tensor:
    """Uniform legal actions [E,N] | [E,N,U]."""
    if step.avail is None:
        box = env.spec.action
        shape = (env.num_envs, env.spec.n_agents, box.size)
        return box.low + (box.high - box.low) * torch.rand(shape, generator=rng)
    flat = step.avail.reshape(-1, step.avail.shape[-1]).float()
    return torch.multinomial(flat, 1, generator=rng).reshape(step.avail.shape[:-1])


def supported(suite: str, task: str, algorithm: str) -> str:
    """ "" when ``algorithm`` can play ``task`` here, else why not."""
    try:
        trial(suite, task, algorithm, "results")
    except UserError as error:
        return str(error)
    return ""


# -- output -------------------------------------------------------------------------------------------------------


def machine() -> str:
    """One line: processor, cores, load, versions. A load above the benchmark's own processes means noisy numbers."""
    name = platform.processor()
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        name = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), name)
    cores = len(os.sched_getaffinity(0))
    return (
        f"{name}, {cores} cores, {clock.NAME} clock, load {os.getloadavg()[0]:.2f} at the start, "
        f"Python {platform.python_version()}, torch {torch.__version__}, {torch.get_num_threads()} thread"
    )


def show(title: str, rows: Sequence[Mapping[str, Any]], file: str, sideways: bool = False) -> None:
    """Print ``rows`` (same keys in each) as a table, one column a row when ``sideways``; write them to ``OUT/file``."""
    columns = list(rows[0])
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 150)
    console.print(title, style="bold", soft_wrap=True)
    table = Table(box=None, pad_edge=False)
    cells = [[_text(row[c]) for c in columns] for row in rows]
    if sideways:
        columns, cells = (
            ["", *[""] * len(rows)],
            [[c, *column] for c, column in zip(columns, zip(*cells, strict=True), strict=True)],
        )
    for i, column in enumerate(columns):
        table.add_column(column, justify="right" if (sideways and i) or _numbers(rows, column) else "left")
    for row in cells:
        table.add_row(*row)
    console.print(table)
    OUT.mkdir(parents=True, exist_ok=True)
    with open(OUT / file, "w", newline="") as handle:
        writer = csv.DictWriter(handle, list(rows[0]), restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    console.print(f"-> {OUT / file}\n", style="dim")


def _numbers(rows: Sequence[Mapping[str, Any]], column: str) -> bool:
    return column != "" and all(isinstance(row[column], (int, float, type(None))) for row in rows)


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def medians(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Each number's median over ``runs``; words as they are."""
    return {k: v if isinstance(v, str) else statistics.median(run[k] for run in runs) for k, v in runs[0].items()}
