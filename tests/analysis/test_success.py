"""Seeds that solve a task."""

import dataclasses

import numpy as np
import pandas as pd
import pytest

from harness.analysis.study import study
from harness.analysis.success import by_task, solved


def test_within_a_twentieth_of_the_upper_bound_solves():
    found = solved(np.array([1.0, 0.951, 0.95, 0.949, 0.0, 1.2]))
    assert (found.reached, found.seeds, found.share) == (4, 6, pytest.approx(2 / 3))
    assert (found.low, found.high) == pytest.approx((0.300, 0.903), abs=1e-3)  # Wilson 1927


def test_a_run_without_evaluations_counts_by_its_final_score(synthetic, tmp_path):
    plan = synthetic.Made(
        tmp_path, tasks=["game"], methods={"x": (0.5, 0.3)}, seeds=range(3), points=4, metric="return",
        bounds=(0.0, 10.0),
    )  # fmt: skip
    made = study([synthetic.write(plan)])
    (task,) = made.tasks
    runs = made.scores.runs["x", task.key]
    bare = tuple(dataclasses.replace(r, values=r.values[:0], final=f) for r, f in zip(runs, (10.0, 3.0, None)))
    found = by_task(dataclasses.replace(made, scores=dataclasses.replace(made.scores, runs={("x", task.key): bare})))
    assert (found["x", task.key].reached, found["x", task.key].seeds) == (1, 2)


def test_the_policy_a_seed_ended_with_counts_not_the_best_on_the_way(synthetic, tmp_path):
    plan = synthetic.Made(
        tmp_path, tasks=["game"], methods={"x": (0.5, 0.3)}, seeds=range(5), points=4, metric="return",
        bounds=(0.0, 10.0),
    )  # fmt: skip
    path = synthetic.write(plan)
    for k, file in enumerate(sorted(path.rglob("evaluations.csv"))):
        rows = pd.read_csv(file)
        last = rows["env_steps"] == rows["env_steps"].max()
        rows["return"] = np.where(last, 10.0 if k < 2 else 3.0, 10.0)  # all were at the optimum once
        rows.to_csv(file, index=False)
    made = study([path])
    (task,) = made.tasks
    assert {key: (s.reached, s.seeds) for key, s in by_task(made).items()} == {("x", task.key): (2, 5)}
