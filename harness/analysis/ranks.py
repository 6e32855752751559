"""Methods ranked over tasks: Friedman's test and Nemenyi's critical difference (Demsar 2006)."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy import stats

from harness.analysis.bootstrap import Array


class Ranks(NamedTuple):
    """Mean ranks over tasks; 1 is best."""

    mean_rank: dict[str, float]
    friedman_p: float
    critical_difference: float
    """Two methods whose mean ranks differ by less cannot be told apart at ``alpha``."""
    tasks: int


def critical_difference(methods: int, tasks: int, alpha: float = 0.05) -> float:
    """Nemenyi's: q_alpha sqrt(k(k+1) / 6N), with q of the studentised range over sqrt(2)."""
    q = stats.studentized_range.ppf(1 - alpha, methods, np.inf) / math.sqrt(2)
    return float(q * math.sqrt(methods * (methods + 1) / (6 * tasks)))


def friedman(table: dict[str, Array], alpha: float = 0.05) -> Ranks | None:
    """Ranks of ``table``: method -> [tasks] score of each task (higher is better).

    None with fewer than three methods or fewer than three tasks: the test says nothing there.
    """
    names = list(table)
    x = np.stack([table[n] for n in names], -1)
    tasks, methods = x.shape
    if methods < 3 or tasks < 3:
        return None
    ranks = stats.rankdata(-x, axis=1).mean(0)
    p = 1.0 if np.ptp(x, axis=1).max() == 0 else float(stats.friedmanchisquare(*x.T).pvalue)
    mean_rank = {n: float(r) for n, r in zip(names, ranks)}
    return Ranks(mean_rank, p, critical_difference(methods, tasks, alpha), tasks)
