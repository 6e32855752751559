from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd
import pytest

from harness.analysis.exchange import export, matrices
from harness.analysis.imports import About, read
from harness.analysis.scores import from_results
from harness.errors import UserError
from harness.store import TrialFolder, load

SMALL: dict[str, Any] = {
    "methods": {"qmix": (0.9, 0.3), "vdn": (0.4, 0.3)}, "seeds": range(3), "points": 3, "env_steps": 20_000,
    "final_episodes": 8, "eval_episodes": 4, "tasks": ("3m", "8m"),
}  # fmt: skip


@pytest.fixture
def results(synthetic: ModuleType, tmp_path: Path) -> Path:
    return synthetic.write(synthetic.Made(tmp_path / "results", **SMALL))  # type: ignore[no-any-return]


def same(first: Path, second: Path) -> None:
    """Both hold the same seeds, steps, values and finals."""
    one, two = from_results([load(first)]), from_results([load(second)])
    assert one.algorithms == two.algorithms
    assert [t.key for t in one.tasks] == [t.key for t in two.tasks]
    for key, cell in one.runs.items():
        for a, b in zip(cell, two.runs[key], strict=True):
            assert (a.seed, a.final, a.steps.tolist(), a.values.tolist()) == (
                b.seed, b.final, b.steps.tolist(), b.values.tolist())  # fmt: skip


@pytest.mark.parametrize(("kind", "back"), [("marl-eval", "marl-eval"), ("csv", "csv"), ("parquet", "csv")])
def test_out_and_in_again(results: Path, tmp_path: Path, kind: str, back: str) -> None:
    file = export([results], kind, tmp_path / f"out.{kind}")
    made = read(file.rename(file.with_suffix({"parquet": ".parquet"}.get(kind, ".x"))), back,
                About("again", engine="smax 0.2.0"), tmp_path / "results")  # fmt: skip
    assert len(made) == 12
    same(results, tmp_path / "results" / "again")
    record = TrialFolder(made[0]).record()
    assert record is not None
    assert record["imported"].startswith(back)
    assert record["settings"] == {}


def test_marl_eval_layout(results: Path, tmp_path: Path) -> None:
    tree = json.loads(export([results], "marl-eval", tmp_path / "x.json").read_text())
    run = tree["smac"]["3m"]["qmix"]["seed_1"]
    assert list(run) == ["step_0", "step_1", "step_2", "absolute_metrics"]
    assert run["step_1"]["step_count"] == 10_000
    assert len(run["step_1"]["won"]) == 4
    assert set(run["step_1"]) == {"step_count", "elapsed_time", "return", "won"}
    assert len(run["absolute_metrics"]["won"]) == 8


def test_marl_eval_gets_common_steps_of_ragged_runs(results: Path, tmp_path: Path) -> None:
    file = results / "smac/3m/vdn/seed_0/evaluations.csv"
    table = pd.read_csv(file)
    table[table["env_steps"] != 10_000].to_csv(file, index=False)
    tree = json.loads(export([results], "marl-eval", tmp_path / "x.json").read_text())
    assert {len(r) for a in tree["smac"]["3m"].values() for r in a.values()} == {3}  # 2 steps and the absolute metrics
    assert {len(r) for a in tree["smac"]["8m"].values() for r in a.values()} == {4}


def test_rliable_matrices(results: Path, tmp_path: Path) -> None:
    file = np.load(export([results], "rliable", tmp_path / "x.npz"))
    assert file["tasks"].tolist() == ["smac/3m", "smac/8m"]
    assert file["score/qmix"].shape == (3, 2)
    assert file["curve/qmix"].shape == (3, 2, 3)
    scores = from_results([load(results)])
    assert file["score/vdn"][1, 1] == scores.cell("vdn", scores.tasks[1])[1].final


def test_rliable_takes_seeds_that_are_complete_on_all_tasks(results: Path) -> None:
    (results / "smac/8m/qmix/seed_0/final.csv").unlink()
    found = matrices(from_results([load(results)]))
    assert found["score/qmix"].shape == (2, 2)
    assert found["score/vdn"].shape == (3, 2)
    for seed in (1, 2):
        (results / f"smac/8m/qmix/seed_{seed}/final.csv").unlink()
    with pytest.raises(UserError, match="qmix has no seed"):
        matrices(from_results([load(results)]))


def test_export_refuses_what_the_report_refuses(results: Path, tmp_path: Path) -> None:
    TrialFolder(results / "smac/3m/qmix/seed_0").update(engine="other 1")
    with pytest.raises(UserError, match="mixed engines"):
        export([results], "csv", tmp_path / "x.csv")
    with pytest.raises(UserError, match=r"unknown format 'cvs'; did you mean 'csv'"):
        export([results], "cvs", tmp_path / "x.csv")


def test_an_archive_is_read_like_the_folders_it_was_made_of(results: Path, tmp_path: Path) -> None:
    out = export([results], "archive", tmp_path / "kept")
    same(results, out)
    one, two = load(results), load(out)
    for name in ("metrics", "evaluations", "final", "timings"):
        by = ["trial", *(c for c in ("env_steps", "metric", "episode") if c in getattr(one, name))]
        frames = [getattr(r, name).sort_values(by).reset_index(drop=True) for r in (one, two)]
        pd.testing.assert_frame_equal(*frames, check_exact=True, check_dtype=False)
    assert one.trials["record"].tolist() == two.trials["record"].tolist()


def test_an_archive_beside_folders_is_read_too_and_a_damaged_one_named(results: Path, tmp_path: Path) -> None:
    export([results], "archive", tmp_path / "kept" / "a")
    export([results], "archive", tmp_path / "kept" / "b")
    (tmp_path / "kept" / "b" / "evaluations.parquet").write_bytes(b"PAR1 cut short")
    found = load(tmp_path / "kept")
    assert len(found.trials) == len(load(results).trials)
    assert [Path(p).name for p, _ in found.damaged] == ["b"]
    assert "evaluations.parquet" in found.damaged[0][1]
