from __future__ import annotations

import numpy as np
import pytest
import scikit_posthocs
from scipy import stats

from harness.analysis import ranks


def test_critical_difference_is_demsars() -> None:
    # Demsar 2006, table 5a: q at 5% of 4 methods is 2.569
    assert ranks.critical_difference(4, 14) == pytest.approx(2.569 * np.sqrt(4 * 5 / (6 * 14)), abs=1e-3)


def test_friedman_and_nemenyi_agree_with_scipy_and_posthocs() -> None:
    rng = np.random.default_rng(0)
    table = {name: rng.random(12) + shift for name, shift in (("a", 0.0), ("b", 0.4), ("c", 0.9))}
    found = ranks.friedman(table)
    assert found is not None
    assert found.friedman_p == pytest.approx(stats.friedmanchisquare(*table.values()).pvalue)
    assert found.mean_rank["c"] < found.mean_rank["b"] < found.mean_rank["a"]
    assert sum(found.mean_rank.values()) == pytest.approx(6)
    p = scikit_posthocs.posthoc_nemenyi_friedman(np.stack(list(table.values()), 1)).to_numpy()
    names = list(table)
    for i in range(3):
        for j in range(i):
            apart = abs(found.mean_rank[names[i]] - found.mean_rank[names[j]]) > found.critical_difference
            assert apart == (p[i, j] < 0.05)


def test_ranks_say_nothing_of_two_methods_or_two_tasks() -> None:
    assert ranks.friedman({"a": np.arange(5.0), "b": np.arange(5.0)}) is None
    assert ranks.friedman({"a": np.arange(2.0), "b": np.arange(2.0), "c": np.arange(2.0)}) is None
    tied = ranks.friedman({n: np.ones(4) for n in "abc"})
    assert tied is not None
    assert tied.friedman_p == 1.0
