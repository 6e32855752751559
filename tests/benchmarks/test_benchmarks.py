"""The benchmarks run and add up; what they measure is not asserted."""

import csv
import math
import time
from pathlib import Path

import pytest
import torch
from torch import nn

from benchmarks import breakdown, clock, common, kernels, report, throughput
from harness.profile import PARTS

SMALL = ("qmix.batch_episodes=8", "qmix.hidden=8")


def test_shares_of_a_trial_add_up_to_the_whole() -> None:
    found = breakdown.breakdown("matrix", "climbing", "qmix", 60, *SMALL)
    assert sum(found[part] for part in PARTS) == pytest.approx(1.0)
    for part in ("environment", "act", "store", "sample", "forward", "backward", "optimiser", "log"):
        assert found[part] > 0, part
    assert found["idle"] == 0  # every episode is one step
    assert found["updates_per_1000"] > 0
    assert torch.Tensor.backward.__name__ == "backward"  # the wrappers are gone


def test_idle_counts_finished_environments_only() -> None:
    found = breakdown.breakdown("matrix", "two_step", "qmix", 60, *SMALL)
    assert 0 <= found["idle"] < 1


def test_kernels_are_seen_with_their_shapes_and_operations() -> None:
    gru, linear = nn.GRU(4, 8), nn.Linear(4, 4)
    with kernels.Watch() as watch:
        gru(linear(torch.zeros(5, 3, 4)))[0].sum().backward()
        with torch.no_grad():
            linear(torch.zeros(2, 4))
    seen = {(c.kind, c.grad): c for c in watch.calls}
    assert set(seen) == {("gru", True), ("product", True), ("product", False)}
    assert seen["gru", True].flops() == 2 * 5 * 3 * 24 * (4 + 8) * 3
    assert seen["product", True].flops() == 2 * 15 * 4 * 4 * 2  # the input needs no gradient
    assert seen["product", False].flops() == 2 * 2 * 4 * 4
    for timed in kernels.alone(watch.calls, repeats=1):
        assert timed.seconds > 0
        assert timed.count == 1


def test_an_update_is_measured_against_its_kernels() -> None:
    found = breakdown.update("matrix", "climbing", "qmix", 1, *SMALL)
    assert found["update/bare"] == pytest.approx(found["update_ms"] / found["bare_ms"])
    alone = found["gru alone, ms"] + found["products alone, ms"]
    assert found["update/alone"] == pytest.approx(found["update_ms"] / alone)
    assert found["episodes"] == 8
    assert found["gflop"] > 0


def test_arithmetic_is_environments_and_kernels() -> None:
    parts = {"environment": 0.1, "act": 0.2, "forward": 0.3, "backward": 0.2, "optimiser": 0.1, "rest": 0.1}
    assert breakdown.arithmetic(parts, {"update/bare": 1.5}, 0.5) == pytest.approx(0.1 + 0.2 / 2 + 0.6 / 1.5)
    assert 0 < breakdown.acting("matrix", "climbing", "qmix", 1, *SMALL) < 1


def test_throughput_of_both_kinds_of_method() -> None:
    for algorithm in ("qmix", "ippo"):
        found = throughput.measure("matrix", "climbing", algorithm, 0.05, 1)
        assert all(math.isfinite(v) and v > 0 for v in found.values() if isinstance(v, float))
    assert "discrete" in common.supported("predator_prey", "3a", "qmix")


def test_made_up_trials_are_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(common, "OUT", tmp_path)
    rows = [report.measure(6, 3, 4)]
    common.show("Time of a report", rows, "report.csv")
    assert "report_s" in capsys.readouterr().out
    with open(tmp_path / "report.csv") as file:
        assert [row["trials"] for row in csv.DictReader(file)] == ["6"]


def test_settings_are_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock, "NAME", "wall")
    monkeypatch.setattr(clock, "now", time.perf_counter)
    assert common.settings({"task": "3m", "n": 5}, ["n=7", "qmix.lr=1"]) == {"task": "3m", "n": "7", "qmix.lr": "1"}
    assert common.overrides({"n": "7", "qmix.lr": "1"}, "qmix") == ["qmix.lr=1"]
    with pytest.raises(SystemExit, match="tsk=3m"):
        common.settings({"task": "3m"}, ["tsk=3m"])
    common.settings({"clock": "wall"}, ["clock=cpu"])
    assert clock.now is time.process_time
