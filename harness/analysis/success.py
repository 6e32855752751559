"""Seeds that solve a task: a share, with Wilson's interval.

A seed has solved a task when the policy it ended with, greedy in the last evaluation, is within ``NEAR`` of the task's
upper bound, on the scale where the declared bounds are 0 and 1. The best policy's final score is not asked: in a game
of nine joint actions some policy on the way is at the optimum by luck.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from harness.analysis.bootstrap import Array, wilson
from harness.analysis.study import Study

NEAR = 0.05
"""How near to the upper bound, on the normalised scale, solves a task."""


@dataclass(frozen=True)
class Solved:
    """How many seeds have solved a task."""

    reached: int
    seeds: int
    low: float
    high: float
    """Wilson's interval of reached / seeds."""

    @property
    def counted(self) -> tuple[int, int, float, float]:
        """For a table: how many, of how many, and the interval."""
        return self.reached, self.seeds, self.low, self.high

    @property
    def share(self) -> float:
        """Of the seeds."""
        return self.reached / self.seeds


def solved(normalised: Array) -> Solved:
    """Of seeds with these normalised scores, [S]."""
    reached, seeds = int((normalised >= 1 - NEAR).sum()), len(normalised)
    return Solved(reached, seeds, *wilson(reached, seeds))


def by_task(study: Study) -> dict[tuple[str, str], Solved]:
    """(algorithm, task) -> its finished seeds, by the last evaluation; up to the common step where budgets differ."""
    found = {}
    for task in study.tasks:
        common = study.scores.common_step(task) if study.options.match == "env_steps" else None
        for a in study.algorithms:
            runs = study.scores.cell(a, task)
            ends = [r.final if r.last is None else r.until(common).last for r in runs]  # imported: the final one alone
            known = [x for x in ends if x is not None]
            if known:
                found[a, task.key] = solved(task.normalise(np.array(known)))
    return found
