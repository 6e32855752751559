"""What a result was made with: versions, commit, machine."""

from __future__ import annotations

import contextlib
import os
import platform
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any

import psutil

import harness

PACKAGES = ("torch", "numpy", "jax", "jaxlib", "jaxmarl")
"""Whose version can change a number; those not installed are left out."""


def provenance(device: str = "cpu") -> dict[str, Any]:
    """``versions`` by package, ``commit`` (None outside a repository), ``dirty``, ``machine`` and ``device_name``.

    ``device`` is the trial's: "cpu" | "cuda".
    """
    versions = {"harness": harness.__version__, "python": platform.python_version()}
    for package in PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions[package] = metadata.version(package)
    commit, changes = _git("rev-parse", "HEAD"), _git("status", "--porcelain", "--untracked-files=no")
    cpu = _cpu_model()
    return {
        "versions": versions,
        "commit": commit,
        "dirty": None if changes is None else bool(changes),
        "machine": {
            "host": platform.node(),
            "system": platform.platform(),
            "cpu": cpu,
            "cores": os.cpu_count(),
            "memory_bytes": psutil.virtual_memory().total,
        },
        "device_name": _gpu_name() if device.startswith("cuda") else cpu,
    }


def _git(*arguments: str) -> str | None:
    """Output of git where the harness's own source lies; None when that is no repository or there is no git."""
    source = Path(harness.__file__).parents[1]
    if not (source / ".git").exists():
        return None
    command = ["git", "-C", str(source), *arguments]
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        return subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout.strip()
    return None


def _cpu_model() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _gpu_name() -> str:
    import torch

    return torch.cuda.get_device_name(0)
