"""Tasks that differ in one number of their names."""

import pandas as pd
import pytest

from harness.analysis.scaling import families, needs, points
from harness.analysis.scores import TaskInfo
from harness.analysis.study import study
from harness.store import TrialFolder


def named(*names):
    return [TaskInfo("s", n, "return", 0.0, 1.0) for n in names]


def test_families_are_three_numbers_or_more():
    (found,) = families(named("coordination_10", "coordination_2", "climbing", "climbing_3", "coordination_3"))
    assert (found.name, found.numbers) == ("coordination_n", (2, 3, 10))
    assert [t.name for t in found.tasks] == ["coordination_2", "coordination_3", "coordination_10"]
    assert families(named("3m", "8m", "MMM2", "2s3z")) == []
    (found,) = families(named("9a", "3a", "6a"))
    assert (found.name, found.numbers) == ("na", (3, 6, 9))


def test_a_name_with_two_numbers_is_in_one_family():
    found = families(named("2v1", "3v1", "4v1", "5v1", "2v2", "2v3"))
    assert [(f.name, f.numbers) for f in found] == [("nv1", (2, 3, 4, 5))]  # 2v1 is taken: 2v2 and 2v3 are two


@pytest.fixture
def made(synthetic, tmp_path):
    """x@m=10 reaches the bound of task dial_k with 5 - k seeds of 6, x@m=20 with all but one, up to dial_4."""
    variants = {"x@m=10": 10, "x@m=20": 20, "other": 0}
    plan = synthetic.Made(
        tmp_path, tasks=[f"dial_{k}" for k in (2, 3, 4)], methods=dict.fromkeys(variants, (0.5, 0.3)), seeds=range(6),
        points=5, metric="return", bounds=(0.0, 20.0),
    )  # fmt: skip
    path = synthetic.write(plan)
    for file in sorted(path.rglob("trial.json")):
        folder = TrialFolder(file.parent)
        record = folder.record()
        k, seed, label = int(record["task"][-1]), record["seed"], record["algorithm"]
        seeds = {"x@m=10": 5 - k, "x@m=20": 5, "other": 0}[label]
        value = 20.0 if seed < seeds else 10.0
        (file.parent / "final.csv").unlink()
        folder.append("final.csv", ("env_steps", "episode", "return", "length", "won"), [(0, 0, value, 1, 0)])
        rows = pd.read_csv(file.parent / "evaluations.csv")
        rows.loc[rows["env_steps"] == rows["env_steps"].max(), "return"] = value
        rows.to_csv(file.parent / "evaluations.csv", index=False)
        settings = {**record["settings"], "algorithm": {"m": variants[label], "lr": 0.1}}
        folder.update(settings=settings)
    return study([path])


def test_scores_and_seeds_at_the_bound(made):
    (family,) = families(made.tasks)
    found = {(p.algorithm, p.number): p for p in points(made, family)}
    assert len(found) == 9
    p = found["x@m=10", 2]
    assert (p.solved.reached, p.solved.seeds, p.solved.share) == (3, 6, 0.5)
    assert (p.solved.low, p.solved.high) == pytest.approx(
        (0.188, 0.812), abs=1e-3
    )  # Wilson, as in the CDM section's test
    assert p.score.value == pytest.approx(0.75)
    assert p.score.low < 0.75 < p.score.high
    assert found["other", 3].solved.reached == 0


def test_what_success_takes_is_read_off_variants_of_one_number(made):
    (family,) = families(made.tasks)
    found = {(n.method, n.number): n for n in needs(made, points(made, family))}
    assert set(found) == {("x", 2), ("x", 3), ("x", 4)}  # "other" has no variants
    assert (found["x", 2].setting, found["x", 2].tried) == ("m", (10.0, 20.0))
    assert found["x", 2].least == {0.5: 10.0, 0.9: None}  # 3/6, 5/6
    assert found["x", 4].least == {0.5: 20.0, 0.9: None}
