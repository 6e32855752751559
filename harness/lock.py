"""One writer a trial: an advisory lock on ``.lock`` in its folder.

The lock belongs to the open file, which the child inherits: it is free only when both the runner that took it and the
process that computes the trial are gone. Nothing has to be cleaned up after a kill.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path


def acquire(folder: Path) -> int | None:
    """The lock of ``folder`` as an open file descriptor, or None when another process holds it. Never waits."""
    folder.mkdir(parents=True, exist_ok=True)
    handle = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        return None
    except BaseException:
        os.close(handle)
        raise
    return handle


def held(folder: Path) -> bool:
    """Somebody holds the lock of ``folder`` now."""
    try:
        handle = os.open(folder / ".lock", os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(handle)
    return False
