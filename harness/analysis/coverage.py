"""How often the report's 95% intervals hold the truth, on simulated seeds.

    python -m harness.analysis.coverage [simulations]

Prints a Markdown table, the one of docs/statistics.md.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import click
import numpy as np
from scipy import stats

from harness.analysis.bootstrap import STATISTICS, Array, percentiles, pooled_iqm, pooled_mean
from harness.analysis.twosample import improvement_over_tasks

SEEDS = (3, 5, 10, 20)
RESAMPLES = 2_000
TASKS = 5
Draw = Callable[[np.random.Generator, tuple[int, ...]], Array]
SHAPES: dict[str, Draw] = {
    "normal": lambda rng, size: rng.normal(size=size),
    "win rates around 0.8, Beta(8, 2)": lambda rng, size: rng.beta(8, 2, size),
    "win rates near 1, Beta(6, 0.6)": lambda rng, size: rng.beta(6, 0.6, size),
}


def one_task(statistic: str, draw: Draw, n: int, simulations: int, rng: np.random.Generator) -> float:
    """Coverage of a statistic's interval over ``n`` seeds; the truth is its expectation at ``n`` seeds."""
    f = STATISTICS[statistic]
    truth = float(f(draw(rng, (200_000, n))).mean())
    hits = 0
    for row in draw(rng, (simulations, n)):
        low, high = percentiles(f(row[rng.integers(0, n, (RESAMPLES, n))]), [n])
        hits += bool(low <= truth <= high)
    return hits / simulations


def over_tasks(statistic: Any, draw: Draw, n: int, simulations: int, rng: np.random.Generator) -> float:
    """Coverage of an aggregate over ``TASKS`` tasks whose levels differ by 0.1 each."""
    levels = np.arange(TASKS)[:, None] * 0.1

    def strata(size: tuple[int, ...]) -> Array:
        return draw(rng, (*size, TASKS, n)) - levels

    truth = float(np.mean(statistic(list(np.moveaxis(strata((40_000,)), -2, 0)))))
    hits = 0
    for table in strata((simulations,)):
        draws = [row[rng.integers(0, n, (RESAMPLES // 2, n))] for row in table]
        low, high = percentiles(statistic(draws), [n] * TASKS)
        hits += bool(low <= truth <= high)
    return hits / simulations


def improvement(shifts: Sequence[float], n: int, simulations: int, rng: np.random.Generator) -> float:
    """Coverage of the interval of P(A > B) between normals, on each task as many standard deviations apart."""
    truth = float(np.mean(stats.norm.cdf(np.array(shifts) / np.sqrt(2))))
    hits = 0
    for _ in range(simulations):
        xs = [rng.normal(s, 1, n) for s in shifts]
        e = improvement_over_tasks(xs, [rng.normal(0, 1, n) for _ in shifts])
        hits += e.low is not None and e.high is not None and e.low <= truth <= e.high
    return hits / simulations


def rows(simulations: int) -> list[tuple[str, list[float]]]:
    """(what, coverage at each of ``SEEDS``)."""
    rng = np.random.default_rng(0)
    found = []
    for name, draw in SHAPES.items():
        for s in ("mean", "iqm", "median"):
            found.append((f"{s}, {name}", [one_task(s, draw, n, simulations, rng) for n in SEEDS]))
    for name, draw in list(SHAPES.items())[:2]:
        for label, f in (("mean", pooled_mean), ("IQM", pooled_iqm)):
            what = f"{label} over {TASKS} tasks, {name}"
            found.append((what, [over_tasks(f, draw, n, simulations // 4, rng) for n in SEEDS]))
    for shift in (0.0, 1.0, 2.0, 3.0):
        for tasks in (1, TASKS):
            what = f"P(A > B) = {stats.norm.cdf(shift / np.sqrt(2)):.2f}, {tasks} task{'s' if tasks > 1 else ''}"
            found.append((what, [improvement([shift] * tasks, n, simulations // 4, rng) for n in SEEDS]))
    what = f"P(A > B) from 0.08 to 0.98, {TASKS} tasks"
    found.append((what, [improvement([-2, 0, 1, 2, 3], n, simulations // 4, rng) for n in SEEDS]))
    return found


def main() -> None:
    """Print the table."""
    simulations = int(sys.argv[1]) if len(sys.argv) > 1 else 4_000
    click.echo("| interval of | " + " | ".join(f"{n} seeds" for n in SEEDS) + " |")
    click.echo("|---|" + "---:|" * len(SEEDS))
    for what, found in rows(simulations):
        click.echo(f"| {what} | " + " | ".join(f"{100 * x:.1f}%" for x in found) + " |")


if __name__ == "__main__":
    main()
