"""Counters are files that the tests write; the trials are real."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from harness import checkpoint, energy
from harness.energy import COLUMNS, Gpu, Meter, NotMeasured, Packages, busy_seconds, cpu_seconds
from harness.suite import Budget
from harness.trial import run
from harness.types import Trial

CPU = torch.device("cpu")
ABSENT = Path("/nonexistent")


class Machine:
    """A powercap tree, a /proc/stat and a clock of its own."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root, self.stat = root / "powercap", root / "stat"
        self.cpu = self.now = 0.0
        self.busy(0)
        monkeypatch.setattr(energy, "cpu_seconds", lambda: self.cpu)
        monkeypatch.setattr(energy.time, "monotonic", lambda: self.now)
        monkeypatch.setattr(energy.os, "sysconf", lambda _: 100)

    def zone(self, place: str, name: str, joules: float, most: float = 262_143.0) -> Path:
        """One counter."""
        zone = self.root / place
        zone.mkdir(parents=True, exist_ok=True)
        (zone / "name").write_text(f"{name}\n")
        (zone / "energy_uj").write_text(f"{round(joules * 1e6)}\n")
        (zone / "max_energy_range_uj").write_text(f"{round(most * 1e6)}\n")
        return zone

    def busy(self, seconds: float) -> None:
        """All cores have worked for that long; a quarter of it in each of user, nice, system and interrupts."""
        part = round(seconds * 100 / 4)
        self.stat.write_text(f"cpu  {part} {part} {part} 77777 555 {part} 0 99 0 0\ncpu0 1 2 3 4 5 6 7 8 9 0\n")

    def meter(self) -> Meter:
        return Meter(CPU, self.root, self.stat)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(tmp_path, monkeypatch)


def test_a_trial_gets_its_share_of_the_packages_energy(machine: Machine) -> None:
    """Two packages, 60 J and 40 J; the trial had 5 of the 20 CPU seconds: 25 J. Parts and psys are in them already."""
    machine.zone("intel-rapl:0", "package-0", 100)
    machine.zone("intel-rapl:1", "package-1", 100)
    machine.zone("intel-rapl:0:0", "core", 0)
    machine.zone("intel-rapl:2", "psys", 0)
    meter = machine.meter()
    for place, name, joules in (
        ("0", "package-0", 160),
        ("1", "package-1", 140),
        ("0:0", "core", 9e4),
        ("2", "psys", 9e4),
    ):
        machine.zone(f"intel-rapl:{place}", name, joules)
    machine.cpu, machine.now = 5.0, 10.0
    machine.busy(20)
    meter.charge("training")
    assert meter.row() == (5.0, 25.0, "")
    assert meter.record() == {"cpu_seconds": 5.0, "train_cpu_seconds": 5.0, "energy_joules": {"cpu": 25.0}}


def test_only_training_and_evaluation_are_counted_and_only_training_stands_in_the_table(machine: Machine) -> None:
    machine.zone("intel-rapl:0", "package-0", 0)
    meter = machine.meter()
    for i, phase in enumerate(("starting", "training", "evaluation", "cdm", "final"), 1):
        machine.zone("intel-rapl:0", "package-0", 10 * i)
        machine.cpu = machine.now = float(i)
        machine.busy(2 * i)
        meter.charge(phase)
    assert meter.row() == (1.0, 5.0, "")
    assert meter.record()["cpu_seconds"] == 2.0
    assert meter.record()["energy_joules"] == {"cpu": 10.0}


def test_a_counter_that_goes_round_is_followed(machine: Machine) -> None:
    """990 of 1000 J, then 15: 25 J went by."""
    machine.zone("intel-rapl:0", "package-0", 990, most=1000)
    meter = machine.meter()
    machine.zone("intel-rapl:0", "package-0", 15, most=1000)
    machine.cpu = machine.now = 1.0
    machine.busy(1)
    meter.charge("training")
    assert meter.row()[1] == pytest.approx(25.0)


def test_a_counter_that_may_have_gone_round_twice_is_not_believed(machine: Machine) -> None:
    """1000 J last two seconds at 500 W."""
    machine.zone("intel-rapl:0", "package-0", 0, most=1000)
    meter = machine.meter()
    machine.cpu = machine.now = 3.0
    machine.busy(3)
    meter.charge("training")
    assert "may have gone round unseen" in meter.record()["energy_joules"]["cpu"]


def test_long_rounds_are_read_between(machine: Machine) -> None:
    machine.zone("intel-rapl:0", "package-0", 0)
    meter = machine.meter()
    machine.now = energy.EVERY - 1
    meter.tick("training")
    assert meter.used == {}
    machine.now = machine.cpu = energy.EVERY
    meter.tick("training")
    assert meter.used["training"]["cpu_seconds"] == energy.EVERY


def test_a_counter_that_vanishes_leaves_the_whole_trial_not_measured(machine: Machine) -> None:
    """Half a sum is no sum; CPU seconds go on."""
    zone = machine.zone("intel-rapl:0", "package-0", 0)
    meter = machine.meter()
    machine.cpu = machine.now = 1.0
    machine.busy(1)
    meter.charge("training")
    (zone / "energy_uj").unlink()
    machine.cpu = machine.now = 2.0
    machine.busy(2)
    meter.charge("training")
    assert meter.row() == (2.0, "", "")
    told = meter.record()["energy_joules"]["cpu"]
    assert told.startswith("not measured: ")
    assert str(zone / "energy_uj") in told
    machine.zone("intel-rapl:0", "package-0", 500)  # back again: there is a gap all the same
    meter.charge("training")
    assert meter.record()["energy_joules"]["cpu"] == told


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda m: None, "no energy counter of a CPU package"),
        (lambda m: m.zone("intel-rapl:0", "psys", 0), "no energy counter of a CPU package"),
        (lambda m: (m.zone("intel-rapl:0", "package-0", 0) / "energy_uj").write_text("?\n"), "no number"),
        (lambda m: (m.zone("intel-rapl:0", "package-0", 0), m.stat.write_text("cpu\n")), "how busy the machine is"),
        (lambda m: (m.zone("intel-rapl:0", "package-0", 0), m.stat.unlink()), "how busy the machine is"),
    ],
)
def test_what_cannot_be_read_is_said_and_never_0(machine: Machine, spoil: Any, reason: str) -> None:
    spoil(machine)
    meter = machine.meter()
    machine.cpu = machine.now = 4.0
    meter.charge("training")
    assert meter.row() == (4.0, "", "")
    told = meter.record()["energy_joules"]["cpu"]
    assert told.startswith("not measured: ")
    assert reason in told


def test_a_counter_for_root_alone_is_said(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """So it is on most machines since 2020; root, who may run this test, reads every file."""
    machine.zone("intel-rapl:0", "package-0", 0)
    read = Path.read_text

    def refused(path: Path, *arguments: Any, **options: Any) -> str:
        if path.name == "energy_uj":
            raise PermissionError(13, "Permission denied")
        return read(path, *arguments, **options)

    monkeypatch.setattr(Path, "read_text", refused)
    assert machine.meter().record()["energy_joules"]["cpu"].endswith("energy_uj: Permission denied")


def test_what_an_earlier_start_took_is_added(machine: Machine) -> None:
    machine.zone("intel-rapl:0", "package-0", 0)
    first = machine.meter()
    machine.zone("intel-rapl:0", "package-0", 8)
    machine.cpu = machine.now = 2.0
    machine.busy(4)
    first.charge("training")
    kept = json.loads(json.dumps(first.state_dict()))

    machine.zone("intel-rapl:0", "package-0", 1000)  # while it was not running
    machine.busy(500)
    machine.cpu = 0.0  # a new process
    second = machine.meter()
    machine.zone("intel-rapl:0", "package-0", 1001)
    machine.cpu, machine.now = 1.0, 3.0
    machine.busy(501)
    second.load_state_dict(kept)  # up to here it was starting
    machine.zone("intel-rapl:0", "package-0", 1007)
    machine.cpu, machine.now = 3.0, 5.0
    machine.busy(504)
    second.charge("training")
    assert second.row() == (4.0, 4.0 + 4.0, "")
    assert first.state_dict() == kept  # a copy


def test_a_start_without_counters_leaves_the_sum_not_measured(machine: Machine) -> None:
    first = machine.meter()
    machine.zone("intel-rapl:0", "package-0", 0)
    second = machine.meter()
    second.load_state_dict(first.state_dict())
    second.charge("training")
    assert second.row() == (0.0, "", "")
    assert "no energy counter" in second.record()["energy_joules"]["cpu"]


def test_checkpoints_of_earlier_versions_leave_it_unknown(machine: Machine) -> None:
    machine.zone("intel-rapl:0", "package-0", 0)
    meter = machine.meter()
    meter.load_state_dict(None)
    meter.charge("training")
    assert meter.columns == meter.row() == ()
    assert meter.record()["cpu_seconds"] is None
    assert meter.record()["energy_joules"]["cpu"].endswith("begun by a version that did not measure it")


# -- CPU time ---------------------------------------------------------------------------------------------------------


def test_cpu_seconds_are_those_of_children_too_running_and_ended() -> None:
    work = "import time\nend = time.process_time() + 0.3\nwhile time.process_time() < end: pass\n"
    before = cpu_seconds()
    subprocess.run([sys.executable, "-c", work], check=True)
    ended = cpu_seconds()
    assert ended - before >= 0.28
    with subprocess.Popen([sys.executable, "-c", work + "print(flush=True)\ninput()"],
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:  # fmt: skip
        assert child.stdout is not None
        child.stdout.readline()
        running = cpu_seconds()
        assert running - ended >= 0.28
        child.communicate(b"\n")
    assert cpu_seconds() >= running - 0.02  # nothing twice, nothing lost


def test_this_machine_says_how_busy_it_is() -> None:
    if not energy.STAT.exists():
        pytest.skip("no /proc/stat")
    before = busy_seconds()
    end = time.process_time() + 0.2
    while time.process_time() < end:
        pass
    assert busy_seconds() - before >= 0.15


# -- GPUs -------------------------------------------------------------------------------------------------------------


class Nvml:
    """What is used of pynvml."""

    class NVMLError(Exception):
        pass

    def __init__(self, millijoules: int = 0, processes: int = 1) -> None:
        self.millijoules, self.processes, self.uuid = millijoules, processes, ""

    def nvmlInit(self) -> None:
        pass

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:
        self.uuid = uuid
        return "handle"

    def nvmlDeviceGetTotalEnergyConsumption(self, handle: str) -> int:
        assert handle == "handle"
        if self.millijoules < 0:
            raise self.NVMLError("Not Supported")
        return self.millijoules

    def nvmlDeviceGetComputeRunningProcesses(self, handle: str) -> list[int]:
        return [0] * self.processes


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> Nvml:
    fake = Nvml(1_000)
    monkeypatch.setitem(sys.modules, "pynvml", fake)  # type: ignore[arg-type]
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: SimpleNamespace(uuid="ab-cd"))
    return fake


def test_a_trial_on_a_gpu_has_its_energy_beside_the_cpus(machine: Machine, nvml: Nvml) -> None:
    machine.zone("intel-rapl:0", "package-0", 0)
    meter = Meter(torch.device("cuda", 0), machine.root, machine.stat)
    assert nvml.uuid == "GPU-ab-cd"
    nvml.millijoules = 31_000
    machine.zone("intel-rapl:0", "package-0", 10)
    machine.cpu = machine.now = 1.0
    machine.busy(2)
    meter.charge("training")
    assert meter.row() == (1.0, 5.0, 30.0)
    assert meter.record()["energy_joules"] == {"cpu": 5.0, "gpu": 30.0}
    assert "gpu_processes" not in meter.record()


def test_a_shared_gpu_is_split_evenly_and_said(machine: Machine, nvml: Nvml) -> None:
    """Alone at one end and three at the other: two on average."""
    meter = Meter(torch.device("cuda", 0), machine.root, machine.stat)
    nvml.millijoules, nvml.processes = 31_000, 3
    meter.charge("training")
    assert meter.row() == (0.0, "", 15.0)
    assert meter.record()["gpu_processes"] == 3


def test_a_gpu_without_a_counter_or_whose_driver_was_reloaded_is_not_measured(machine: Machine, nvml: Nvml) -> None:
    meter = Meter(torch.device("cuda", 0), machine.root, machine.stat)
    nvml.millijoules = 10
    meter.charge("training")
    assert "began again" in meter.record()["energy_joules"]["gpu"]
    nvml.millijoules = -1
    with pytest.raises(NotMeasured, match="NVML: Not Supported"):
        Gpu("GPU-ab-cd")
    assert (
        Meter(torch.device("cuda", 0), ABSENT).record()["energy_joules"]["gpu"] == "not measured: NVML: Not Supported"
    )


def test_without_the_package_a_gpu_is_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(NotMeasured, match="nvidia-ml-py is not installed"):
        Gpu("GPU-ab-cd")


def test_no_packages_no_counter() -> None:
    with pytest.raises(NotMeasured, match="no energy counter"):
        Packages(ABSENT)


# -- in a trial -------------------------------------------------------------------------------------------------------


def matrix(root: Path, **budget: Any) -> Trial:
    """VDN on a matrix game, over in a moment."""
    from harness.config import parse

    text = {
        "env_steps": 80,
        "eval_every": 20,
        "eval_episodes": 2,
        "final_episodes": 2,
        "checkpoint_every": 20,
        **budget,
    }
    assert set(text) <= set(Budget.__dataclass_fields__)
    given = [f"{k}={v}" for k, v in text.items()]
    asked = parse(["suite=matrix", "algorithms=vdn", "tasks=climbing", "seeds=1", f"results={root}", *given])
    return asked.trials("cpu")[0]


def rows(path: Path) -> list[dict[str, str]]:
    with path.open() as file:
        return list(csv.DictReader(file))


def test_a_trial_writes_what_it_took_at_every_point_and_in_its_record(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(energy, "POWERCAP", ABSENT)
    trial = matrix(tmp_path)
    assert run(trial, lambda _: None, lambda: False) == "complete"
    folder = tmp_path / trial.key
    found = rows(folder / "timings.csv")
    assert list(found[0]) == ["env_steps", "updates", "seconds", *COLUMNS]
    spent = [float(r["cpu_seconds"]) for r in found]
    assert len(spent) >= 5
    assert 0 <= spent[0] < 0.5  # nothing is trained yet
    assert spent == sorted(spent)
    assert {(r["cpu_joules"], r["gpu_joules"]) for r in found} == {("", "")}
    record = json.loads((folder / "trial.json").read_text())
    assert record["cpu_seconds"] > record["train_cpu_seconds"] >= spent[-1] > 0
    assert record["energy_joules"]["cpu"].startswith("not measured: ")


def test_a_stopped_trial_goes_on_from_what_it_had_taken(tmp_path: Path) -> None:
    trial, asked = matrix(tmp_path), iter([False, True])
    assert run(trial, lambda _: None, lambda: next(asked, True)) == "interrupted"
    before = json.loads((tmp_path / trial.key / "trial.json").read_text())
    assert run(trial, lambda _: None, lambda: False) == "complete"
    after = json.loads((tmp_path / trial.key / "trial.json").read_text())
    assert after["cpu_seconds"] > before["cpu_seconds"] > 0
    spent = [float(r["cpu_seconds"]) for r in rows(tmp_path / trial.key / "timings.csv")]
    assert spent == sorted(spent)


def test_a_trial_begun_by_an_earlier_version_keeps_its_columns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """More columns below its header would be a damaged table."""
    trial, asked = matrix(tmp_path), iter([False, True])
    with monkeypatch.context() as patch:
        patch.setattr(Meter, "columns", ())
        patch.setattr(Meter, "row", lambda _: ())
        run(trial, lambda _: None, lambda: next(asked, True))
    load = checkpoint.load
    monkeypatch.setattr(checkpoint, "load", lambda *a: {k: v for k, v in (load(*a) or {}).items() if k != "meter"})
    assert run(trial, lambda _: None, lambda: False) == "complete"
    found = rows(tmp_path / trial.key / "timings.csv")
    assert [list(r) for r in found] == [["env_steps", "updates", "seconds"]] * len(found)
    assert json.loads((tmp_path / trial.key / "trial.json").read_text())["cpu_seconds"] is None
