"""Nothing outlives the process that started it, killed or not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the kernel's signal on a parent's death is Linux's")

WORKER = """
import subprocess, sys, time
from harness.life import {call}
child = subprocess.Popen(["sleep", "60"])
{call}({argument})
print(child.pid, flush=True)
time.sleep(60)
"""


def alive(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


def ended(*pids: int, within: float = 20.0) -> bool:
    until = time.monotonic() + within
    while any(map(alive, pids)) and time.monotonic() < until:
        time.sleep(0.05)
    return not any(map(alive, pids))


def test_when_the_pipe_ends_the_whole_group_ends() -> None:
    read, held = os.pipe()
    code = WORKER.format(call="die_together", argument=read)
    worker = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, pass_fds=[read], start_new_session=True
    )
    os.close(read)
    assert worker.stdout is not None
    child = int(worker.stdout.readline())
    assert alive(worker.pid)
    assert alive(child)
    os.close(held)
    assert worker.wait(20) == -signal.SIGKILL
    assert ended(child)


def test_the_kernel_kills_a_process_whose_parent_is_killed(tmp_path: Path) -> None:
    code = WORKER.format(call="die_with_parent", argument="int(sys.argv[1])")
    script = tmp_path / "parent.py"
    script.write_text(
        "import os, subprocess, sys, time\n"
        f"worker = subprocess.Popen([sys.executable, '-c', {code!r}, str(os.getpid())], stdout=subprocess.PIPE)\n"
        "print(worker.pid, int(worker.stdout.readline()), flush=True)\n"
        "time.sleep(60)\n"
    )
    parent = subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    worker, grandchild = map(int, parent.stdout.readline().split())
    assert alive(worker)
    parent.kill()
    parent.wait()
    try:
        assert ended(worker)
        assert alive(grandchild)  # the signal reaches one process alone: hence ``die_together``
    finally:
        os.kill(grandchild, signal.SIGKILL)


def test_a_process_whose_parent_is_dead_already_ends_at_once() -> None:
    code = "from harness.life import die_with_parent; die_with_parent(1 << 22); print('still here')"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (found.returncode, found.stdout) == (1, "")
