"""Processes that end when the one that started them is gone, however it went (``kill -9`` included)."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys

PR_SET_PDEATHSIG = 1


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process, and it alone, when ``parent`` is gone (Linux)."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it died before the line above
        os._exit(1)


def die_together(life: int) -> subprocess.Popen[bytes]:
    """Have this process's group killed when the pipe ``life`` ends, which is when the process that holds it is gone.

    A shell in the group waits for that: nothing here can block it, a library that hangs in C neither, and it reaches
    the processes that a suite or a library has started, a game server included. Returns the shell.
    """
    shell = subprocess.Popen(
        ["/bin/sh", "-c", "read nothing; kill -KILL 0"],
        stdin=life,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(life)
    return shell
