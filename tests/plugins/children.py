"""What the nursery's children do in tests: (job, files) as ``harness.executors.worker:main``."""

import json
import os
import signal
import sys
import time
from pathlib import Path


def tell(job, files):
    """Everything that a child can see of itself, to its last file."""
    seen = {
        "job": job, "files": len(files), "env": dict(os.environ), "pid": os.getpid(), "parent": os.getppid(),
        "session": os.getsid(0), "open": sorted(f.name for f in Path("/proc/self/fd").iterdir()),
        "threads": len(list(Path("/proc/self/task").iterdir())), "torch": "torch" in sys.modules,
        "chld": signal.getsignal(signal.SIGCHLD) == signal.SIG_DFL,
        "int": signal.getsignal(signal.SIGINT) == signal.SIG_DFL,
    }  # fmt: skip
    os.write(files[-1], json.dumps(seen).encode())


def say(job, files):
    print("to the log", flush=True)  # noqa: T201
    print("and this", file=sys.stderr, flush=True)  # noqa: T201


def leave(job, files):
    os._exit(job["code"])


def fail(job, files):
    raise ValueError("in the child")


def die(job, files):
    os.kill(os.getpid(), job["signal"])


def stay(job, files):
    time.sleep(600)
