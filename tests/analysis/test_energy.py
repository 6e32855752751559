from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd
import pytest

from harness.analysis import energy
from harness.analysis.compare import endpoint
from harness.analysis.fairness import fairness, joules
from harness.analysis.guards import guard
from harness.analysis.scores import Scores, from_results
from harness.analysis.study import Options, analyse
from harness.errors import UserError
from harness.reporting.content import tables
from harness.store import TrialFolder, load
from harness.store import read_table as read

SMALL: dict[str, Any] = {
    "methods": {"qmix": (0.9, 0.3), "vdn": (0.9, 0.3)}, "seeds": range(3), "points": 6, "env_steps": 50_000,
    "final_episodes": 8, "eval_episodes": 4, "spread": 0.0,
}  # fmt: skip
COLUMNS = ("env_steps", "updates", "seconds", "cpu_seconds", "cpu_joules", "gpu_joules")


def measured(path: Path, watts: float, algorithm: str = "*", record: dict[str, Any] | None = None) -> Path:
    """Rewrite timings as trials that measured: half a CPU all along, ``watts`` of the packages and a GPU of 10 W."""
    for file in sorted(path.glob(f"smac/*/{algorithm}/*/trial.json")):
        folder = TrialFolder(file.parent)
        old = read(file.parent / "timings.csv")
        assert old is not None
        (file.parent / "timings.csv").unlink()
        rows = [(int(s), int(u), t, t / 2, t * watts, t * 10) for s, u, t in
                zip(old["env_steps"], old["updates"], old["seconds"])]  # fmt: skip
        folder.append("timings.csv", COLUMNS, rows)
        last = float(old["seconds"].iloc[-1])
        both = {"cpu": last * watts, "gpu": last * 10}
        folder.update(**{"cpu_seconds": last / 2, "energy_joules": both, **(record or {})})
    return path


def scores_of(path: Path) -> Scores:
    return guard(from_results([load(path)]))


def test_energy_to_a_score_is_the_sum_at_the_evaluation_that_reached_it(synthetic: ModuleType, tmp_path: Path) -> None:
    path = measured(synthetic.write(synthetic.Made(tmp_path, **SMALL)), watts=20.0)
    made = analyse([load(path)], Options(resamples=200))
    assert list(made.reached) == ["env_steps", "seconds", "cpu_seconds", "joules"]
    key = ("qmix", "smac/3m")
    steps, time, cpu, spent = (made.reached[a][key][0].steps for a in made.reached)
    assert steps is not None
    assert time is not None
    assert cpu is not None
    assert spent is not None
    assert cpu.value == pytest.approx(time.value / 2)
    assert spent.value == pytest.approx(time.value * 30.0)  # 20 W and 10 W
    table = tables(made)["energy_to_score"]
    assert "J [" in table.rows[0][2].text
    assert "CPU packages, and GPUs where used" in table.caption
    assert "cpu_time_to_score" in tables(made)
    run = made.scores.runs[key][0]
    assert run.joules is not None
    assert steps.value in run.steps


def test_results_made_before_it_was_measured_are_read_and_say_so(synthetic: ModuleType, tmp_path: Path) -> None:
    made = analyse([load(synthetic.write(synthetic.Made(tmp_path, **SMALL)))], Options(resamples=200))
    assert made.reached["joules"] == made.reached["cpu_seconds"] == {}
    assert made.reached["seconds"] != {}
    assert energy.told(made.scores.all_runs()) == (
        "Energy was not measured: made before it was recorded (6 of 6 trials)."
    )
    assert "CPU energy" not in made.fairness.columns


def test_what_was_not_measured_is_words_and_never_0(synthetic: ModuleType, tmp_path: Path) -> None:
    path = measured(synthetic.write(synthetic.Made(tmp_path, **SMALL)), 20.0)
    why = "not measured: no energy counter of a CPU package in /sys/class/powercap"
    for file in path.rglob("trial.json"):
        TrialFolder(file.parent).update(energy_joules={"cpu": why})
        table = pd.read_csv(file.parent / "timings.csv").assign(cpu_joules=np.nan, gpu_joules=np.nan)
        table.to_csv(file.parent / "timings.csv", index=False)
    made = analyse([load(path)], Options(resamples=200))
    assert made.reached["joules"] == {}
    assert made.reached["cpu_seconds"] != {}
    assert {row["CPU energy"].text for row in made.fairness.rows.values()} == {"not measured"}
    assert "GPU energy" not in made.fairness.columns
    assert energy.told(made.scores.all_runs()) == (
        "Energy was not measured: CPU: no energy counter of a CPU package in /sys/class/powercap (6 of 6 trials)."
    )
    with pytest.raises(UserError, match="no joules of training recorded"):
        endpoint(made.scores, made.tasks[0], "joules")


def test_sums_of_different_things_are_never_compared(synthetic: ModuleType, tmp_path: Path) -> None:
    """One method's GPU alone against the other's CPU and GPU."""
    path = measured(synthetic.write(synthetic.Made(tmp_path, **SMALL)), 20.0)
    measured(path, 20.0, "vdn", {"energy_joules": {"cpu": "not measured: Permission denied", "gpu": 5.0}})
    scores = scores_of(path)
    assert {energy.scope(r.record) for r in scores.all_runs()} == {energy.WHOLE, energy.GPU_ALONE}
    with pytest.raises(UserError, match="energies of different things"):
        endpoint(scores, scores.tasks[0], "joules")
    assert analyse([load(path)], Options(resamples=200)).reached["joules"] == {}
    assert energy.told(scores.all_runs()).startswith("Energy was measured in part: CPU: Permission denied (3 of 6")


def test_scopes() -> None:
    no = "not measured: why"
    assert energy.scope({"energy_joules": {"cpu": 1.0}}) == energy.WHOLE
    assert energy.scope({"energy_joules": {"cpu": 1.0, "gpu": 2.0}}) == energy.WHOLE
    assert energy.scope({"energy_joules": {"cpu": 1.0, "gpu": no}}) == energy.CPU_ALONE
    assert energy.scope({"energy_joules": {"cpu": no, "gpu": 1.0}}) == energy.GPU_ALONE
    assert energy.scope({"energy_joules": {"cpu": no}}) == energy.scope({}) == ""


def test_methods_may_be_compared_at_equal_cpu_time(synthetic: ModuleType, tmp_path: Path) -> None:
    scores = scores_of(measured(synthetic.write(synthetic.Made(tmp_path, **SMALL)), 20.0))
    made = endpoint(scores, scores.tasks[0], "cpu_seconds")
    assert "CPU seconds of training" in made.basis
    runs = list(scores.all_runs())
    assert made.at == min(float(r.cpu_seconds[-1]) for r in runs if r.cpu_seconds is not None)


def test_the_fairness_table_has_cpu_time_and_energy(synthetic: ModuleType, tmp_path: Path) -> None:
    path = measured(synthetic.write(synthetic.Made(tmp_path, **SMALL)), 20.0)
    for file in path.glob("smac/*/qmix/*/trial.json"):
        TrialFolder(file.parent).update(energy_joules={"cpu": 12_345.0, "gpu": 2e6}, cpu_seconds=7_200.0)
    for file in path.glob("smac/*/vdn/seed_0/trial.json"):
        TrialFolder(file.parent).update(energy_joules={"cpu": "not measured: x", "gpu": 2.01e6}, cpu_seconds=7_100.0)
    made = fairness(scores_of(path))
    assert made.rows["qmix"]["CPU time"].text == "2.0 h"
    assert made.rows["qmix"]["CPU energy"].text == "12.3 kJ"
    assert made.rows["qmix"]["GPU energy"].text == "2 MJ"
    assert made.rows["vdn"]["CPU energy"].text == "not measured in 1 of 3 seeds"
    assert made.rows["vdn"]["CPU energy"].differs


def test_units() -> None:
    assert [joules(x) for x in (3.21, 12_345, 2e6, 4.5e9)] == ["3.21 J", "12.3 kJ", "2 MJ", "4.5 GJ"]
