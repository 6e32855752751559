"""Real trials struck in mid-course: each goes on from its checkpoint and ends with the bytes of one never disturbed."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from harness.config import parse
from harness.plan import Plan, make
from harness.runner import Runner
from harness.store import TrialFolder, load
from harness.trial import run
from harness.types import Trial
from tests.conftest import PLUGINS
from tests.support.trials import finish, identical, state, stop_after, tables

SETTINGS = (
    "suite=matrix", "tasks=two_step", "algorithms=vdn", "name=faults", "device=cpu", "env_steps=160", "eval_every=40",
    "eval_episodes=4", "final_episodes=6", "checkpoint_every=8", "vdn.num_envs=4", "vdn.buffer_episodes=16",
    "vdn.batch_episodes=4", "vdn.hidden=8", "retries=1", "workers=2",
)  # fmt: skip
SEEDS = {"none": 0, "sigkill": 1, "allocate": 2, "limit": 3, "full": 4, "children": 5}
"""As in tests/plugins/faulty_trial.py."""
TMPFS = "mount -t tmpfs -o size=4m none"
"""A disk small enough to be filled."""


def plan_of(results: Path, *faults: str) -> Plan:
    seeds = ",".join(str(SEEDS[f]) for f in faults)
    return make(parse([*SETTINGS, f"results={results}", f"seeds={seeds},"]))


def undisturbed(trial: Trial, results: Path) -> Path:
    return finish(dataclasses.replace(trial, results=str(results)))


class Quiet:
    def __init__(self) -> None:
        self.said: list[str] = []

    def started(self, trial: Trial) -> None: ...
    def progress(self, trial: Trial, progress: object) -> None: ...
    def ended(self, trial: Trial, ending: object, again: bool, seconds: float) -> None: ...
    def say(self, text: str) -> None:
        self.said.append(text)

    def tick(self) -> None: ...


def test_trials_struck_in_mid_course_end_with_the_bytes_of_undisturbed_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(PLUGINS))
    plan = plan_of(tmp_path / "struck", "none", "sigkill", "allocate", "limit")
    outcome = Runner(plan, Quiet(), "faulty_trial:run").run()
    assert outcome.exit_code == 0, outcome.endings
    expected = {0: None, 1: "killed from outside (SIGKILL)", 2: "out of memory", 3: "no space left on the disk"}
    for item in plan.items:
        folder, reason = TrialFolder.of(item.trial), expected[item.trial.seed]
        failures = (folder.record() or {}).get("failures", [])
        assert [f[: len(reason or "")] for f in failures] == ([reason] if reason else [])
        whole = undisturbed(item.trial, tmp_path / "whole")
        assert tables(whole) == tables(folder.path)
        identical(state(whole), state(folder.path))
        assert not [p.name for p in folder.path.iterdir() if p.name.startswith(".") and p.name != ".lock"]


@pytest.mark.parametrize("what", ["checkpoint.pt", "replay", "evaluations.csv"])
def test_a_trial_whose_files_are_damaged_is_set_aside_named_and_redone(tmp_path: Path, what: str) -> None:
    plan = plan_of(tmp_path / "struck", "none")
    trial = plan.items[0].trial
    assert run(trial, lambda p: None, stop_after(12)) == "interrupted"
    folder = TrialFolder.of(trial).path
    path = next((folder / "replay").iterdir()) if what == "replay" else folder / what
    os.truncate(path, path.stat().st_size // 2)
    display = Quiet()
    outcome = Runner(plan, display).run()
    assert outcome.exit_code == 0, outcome.endings
    aside = folder.with_name(folder.name + ".damaged-1")
    assert (aside / "checkpoint.pt").exists()
    assert f"set aside in {aside}" in display.said[0]
    assert path.name in json.loads((aside / "trial.json.damaged").read_text())["reason"]
    whole = undisturbed(trial, tmp_path / "whole")
    assert tables(whole) == tables(folder)
    identical(state(whole), state(folder))
    assert len(load(tmp_path / "struck").trials) == 1


SCRIPT = """
import json, sys
from pathlib import Path
from harness.runner import Runner
from harness.store import TrialFolder, load
from tests.harness.test_faults import Quiet, plan_of

results = Path(sys.argv[1])
plan = plan_of(results, "full")
folder, seen = TrialFolder.of(plan.items[0].trial), {}

class Rescue(Quiet):
    def ended(self, trial, ending, again, seconds):
        if again:  # the disk is full now
            found = load(results)
            seen.update(reason=(folder.record() or {}).get("reason"), status=found.trials["status"].tolist())
            seen.update(rows=len(found.evaluations), damaged=found.damaged)
            seen.update(checkpoint=(folder.path / "checkpoint.pt").exists())
            (results / "ballast").unlink()

outcome = Runner(plan, Rescue(), "faulty_trial:run").run()
seen["endings"] = [[e.status, e.reason] for e in outcome.endings.values()]
Path(sys.argv[2]).write_text(json.dumps(seen))
import shutil; shutil.copytree(results, sys.argv[3])
"""


def small_disks() -> bool:
    command = ["unshare", "-rm", "sh", "-c", f"{TMPFS} /mnt"]
    return bool(shutil.which("unshare")) and subprocess.run(command, capture_output=True, check=False).returncode == 0


@pytest.mark.skipif(not small_disks(), reason="mounting a small file system is not allowed here")
def test_a_full_disk_is_said_in_the_record_and_the_trial_goes_on_once_there_is_room(tmp_path: Path) -> None:
    disk, report, copy = tmp_path / "disk", tmp_path / "seen.json", tmp_path / "copy"
    disk.mkdir()
    (tmp_path / "script.py").write_text(SCRIPT)
    root = Path(__file__).parents[2]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join((str(root), str(PLUGINS)))}
    shell = f"{TMPFS} {disk} && exec {sys.executable} {tmp_path / 'script.py'} {disk} {report} {copy}"
    done = subprocess.run(
        ["unshare", "-rm", "sh", "-c", shell], env=env, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
    seen = json.loads(report.read_text())
    assert seen["reason"].startswith("no space left on the disk: [Errno 28]")
    assert seen["status"] == ["failed"]
    assert (seen["damaged"], seen["checkpoint"]) == ([], True)
    assert seen["rows"] >= 4  # what was evaluated before is there, whole
    assert seen["endings"] == [["complete", ""]]
    plan = plan_of(tmp_path / "whole", "full")
    whole = finish(plan.items[0].trial)
    again = copy / whole.relative_to(tmp_path / "whole")
    assert tables(whole) == tables(again)
    identical(state(whole), state(again))
    assert len(load(copy).trials) == 1


def test_nothing_that_a_trial_started_outlives_a_killed_runner(tmp_path: Path) -> None:
    code = "import harness.executors.local as l; l.TARGET = 'faulty_trial:run'; from harness.cli import main; main()"
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (str(PLUGINS), os.environ.get("PYTHONPATH", ""))))}
    command = [sys.executable, "-c", code, "run", *SETTINGS, f"results={tmp_path}", f"seeds={SEEDS['children']},"]
    pids = tmp_path / f"faults/matrix/two_step/vdn/seed_{SEEDS['children']}/pids"
    with subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as runner:
        try:
            until = time.monotonic() + 200
            while not pids.exists() and runner.poll() is None and time.monotonic() < until:
                time.sleep(0.1)
            family = [int(p) for p in pids.read_text().split()]
            family += [c.pid for p in family if psutil.pid_exists(p) for c in psutil.Process(p).children()]
        finally:
            runner.kill()
    assert len(set(family)) >= 5
    until = time.monotonic() + 20
    while any(alive(p) for p in family) and time.monotonic() < until:
        time.sleep(0.05)
    left = [p for p in family if alive(p)]
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert left == []


def alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
