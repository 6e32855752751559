"""A nursery forks children that see what is theirs, tells how they end, and leaves none behind."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from harness.executors import nursery as module
from harness.executors.local import environment
from harness.executors.nursery import Child, Nursery

PLUGINS = Path(__file__).parents[2] / "plugins"


@pytest.fixture
def nursery(monkeypatch: pytest.MonkeyPatch) -> Iterator[Nursery]:
    monkeypatch.syspath_prepend(str(PLUGINS))
    found = Nursery(environment("cpu"), preload=())
    yield found
    found.close()


def start(nursery: Nursery, what: str, files: tuple[int, ...] = (), **job: Any) -> tuple[Child, Any]:
    log = tempfile.TemporaryFile()  # noqa: SIM115 - read by the caller
    return nursery.start(f"children:{what}", job, {**os.environ, "MINE": "yes"}, (log.fileno(), *files)), log


def gone(pid: int, within: float = 10.0) -> bool:
    until = time.monotonic() + within
    while time.monotonic() < until:
        with contextlib.suppress(psutil.NoSuchProcess):
            if psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
                time.sleep(0.02)
                continue
        return True
    return False


def test_a_child_sees_its_job_its_files_its_environment_and_nothing_of_the_nursery(nursery: Nursery) -> None:
    read, write = os.pipe()
    with open(os.devnull) as other:
        child, _ = start(nursery, "tell", (other.fileno(), write), n=3)
    os.close(write)
    assert child.wait(30) == 0
    seen = json.loads(os.read(read, 1 << 20))
    os.close(read)
    assert seen["job"] == {"n": 3, "parent": nursery.pid}
    assert seen["files"] == 2
    assert seen["env"]["MINE"] == "yes"
    assert seen["pid"] == child.pid == seen["session"]
    assert seen["parent"] == nursery.pid
    assert seen["chld"]
    assert seen["int"]
    assert len(seen["open"]) == 7  # input, output, errors, the three files given, the folder being read


def test_output_goes_to_the_log(nursery: Nursery) -> None:
    child, log = start(nursery, "say")
    assert child.wait(30) == 0
    log.seek(0)
    assert log.read() == b"to the log\nand this\n"


def test_exit_codes_signals_and_tracebacks(nursery: Nursery) -> None:
    children = [start(nursery, "leave", code=k)[0] for k in (0, 3, 77)]
    assert [c.wait(30) for c in children] == [0, 3, 77]
    assert start(nursery, "die", signal=int(signal.SIGKILL))[0].wait(30) == -signal.SIGKILL
    assert start(nursery, "die", signal=int(signal.SIGSEGV))[0].wait(30) == -signal.SIGSEGV
    child, log = start(nursery, "fail")
    assert child.wait(30) == 1
    log.seek(0)
    assert b"ValueError: in the child" in log.read()


def test_waiting_ends(nursery: Nursery) -> None:
    child, _ = start(nursery, "stay")
    assert child.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        child.wait(0.1)
    os.kill(child.pid, signal.SIGTERM)
    assert child.wait(10) == -signal.SIGTERM


def test_closing_leaves_no_process(nursery: Nursery) -> None:
    child, _ = start(nursery, "stay")
    nursery.close()
    assert child.poll() == -signal.SIGKILL
    assert gone(nursery.pid)
    os.kill(child.pid, signal.SIGKILL)  # a trial asks the kernel for this (harness.life.die_with_parent)


def test_a_nursery_that_is_killed_is_noticed(nursery: Nursery) -> None:
    child, _ = start(nursery, "stay")
    os.kill(nursery.pid, signal.SIGKILL)
    assert child.wait(10) == -signal.SIGKILL
    assert not nursery.alive
    with pytest.raises(OSError, match="gone"):
        start(nursery, "say")
    os.kill(child.pid, signal.SIGKILL)


def test_a_child_that_comes_too_late_is_ended_and_never_taken_for_another(
    nursery: Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert start(nursery, "leave", code=0)[0].wait(30) == 0  # it is up
    os.kill(nursery.pid, signal.SIGSTOP)
    with monkeypatch.context() as patch:
        patch.setattr(module, "STARTING", 0.2)
        with pytest.raises(OSError, match="more than"):
            start(nursery, "stay")
    os.kill(nursery.pid, signal.SIGCONT)
    child, _ = start(nursery, "leave", code=5)
    assert child.wait(30) == 5
    late = next(pid for pid in nursery._codes if pid != child.pid and nursery.code(pid) != 0)
    assert Child(nursery, late).wait(10) == -signal.SIGKILL


def test_what_cannot_be_imported_beforehand_is_left_to_the_child(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(PLUGINS))
    found = Nursery(environment("cpu"), preload=("no_such_module", "json"))
    assert start(found, "leave", code=0)[0].wait(30) == 0
    found.close()


def test_after_its_imports_a_nursery_still_has_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forking a process with threads can leave a lock held for ever in the child."""
    monkeypatch.syspath_prepend(str(PLUGINS))
    found, (read, write) = Nursery(environment("cpu")), os.pipe()
    child, _ = start(found, "tell", (write,))
    os.close(write)
    assert psutil.Process(found.pid).num_threads() == 1
    assert child.wait(30) == 0
    seen = json.loads(os.read(read, 1 << 20))
    os.close(read)
    assert seen["torch"]
    assert seen["threads"] == 1
    found.close()


def test_it_ends_with_the_runner_however_that_ends(tmp_path: Path) -> None:
    told = tmp_path / "pid"
    code = f"""
import os, time
from harness.executors.local import environment
from harness.executors.nursery import Nursery
n = Nursery(environment("cpu"), preload=())
open({str(told)!r}, "w").write(str(n.pid))
time.sleep(600)
"""
    runner = subprocess.Popen([sys.executable, "-c", code])
    until = time.monotonic() + 30
    while not (told.exists() and told.read_text()) and time.monotonic() < until:
        time.sleep(0.02)
    pid = int(told.read_text())
    runner.kill()
    runner.wait()
    assert gone(pid)


def test_the_list_of_imports_is_what_a_trial_needs() -> None:
    code = "import sys, torch.optim, harness.trial; before = set(sys.modules); import torch; "
    code += "torch.optim.Adam([torch.nn.Parameter(torch.zeros(1))]); print('torch._dynamo' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "True"
    assert "torch._dynamo" in module.PRELOAD
