"""JAX beside torch in one process: set-up before JAX starts, and arrays from one to the other.

JAX takes its platform, its threads and its dispatch when it starts and never looks again, so ``setup`` comes before
anything that touches an array. XLA takes every core unless it is told otherwise; a trial has one.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import platform
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from harness.errors import UserError

CACHE_VARIABLE = "JAX_COMPILATION_CACHE_DIR"

_started: list[str] = []
"""The platform that ``setup`` started JAX on in this process, once it did."""


def default_cache_dir() -> Path:
    """Folder of compiled functions: ``$JAX_COMPILATION_CACHE_DIR``, else one for this kind of CPU in the user's cache.

    Compiled CPU code uses what the CPU has and JAX's key for it does not say so: machines that share a home folder and
    are not alike must not share the code.
    """
    if given := os.environ.get(CACHE_VARIABLE):
        return Path(given)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "marl-harness" / "jax" / _cpu_kind()


def _cpu_kind() -> str:
    """A short name of this CPU's instruction set, e.g. "x86_64-1f0c2b9a"."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text(errors="replace").splitlines() if info.is_file() else [platform.processor()]
    features = next((line for line in lines if line.startswith(("flags", "Features"))), lines[0] if lines else "")
    return f"{platform.machine()}-{zlib.crc32(features.encode()):08x}"


def setup(device: torch.device, cache_dir: Path | None = None) -> ModuleType:
    """Start JAX for a trial on ``device`` and return the module ``jax``.

    One XLA thread on the CPU, synchronous dispatch there (torch and JAX share memory, so a result in flight is a
    hazard), only as much GPU memory as is used, and every compiled function kept in ``cache_dir``
    (default: ``default_cache_dir()``) for the next process. A second call for the same device changes nothing.

    Raises ``UserError`` when JAX is missing, cannot use ``device``, or already runs on another platform.
    """
    if device.type not in ("cpu", "cuda"):
        raise UserError(f"JAX environments do not run on device {str(device)!r}; use device=cpu or device=cuda")
    if _started and _started[0] != device.type:
        raise _started_elsewhere(_started[0], device.type)
    os.environ.setdefault("NPROC", "1")
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    jax = _import_jax()
    jax.config.update("jax_platforms", device.type)
    jax.config.update("jax_cpu_enable_async_dispatch", False)
    _use_cache(jax, cache_dir or default_cache_dir())
    _pin(jax, device)
    return jax  # type: ignore[no-any-return]


def _import_jax() -> Any:
    try:
        return importlib.import_module("jax")
    except ImportError as error:
        raise UserError(f"JAX cannot be imported ({error}); install it with: pip install jax") from error


def _use_cache(jax: Any, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", 0)


def _pin(jax: Any, device: torch.device) -> None:
    """Make ``device`` the one that arrays are made on; the first time this starts JAX."""
    try:
        devices = jax.devices()
    except (RuntimeError, AssertionError) as error:  # the latter where there is no plugin for it
        why = str(error).partition("\n")[0] or "no such platform here"
        hint = "; install it with: pip install 'jax[cuda12]', or use device=cpu" if device.type == "cuda" else ""
        raise UserError(f"JAX cannot start on {device.type}: {why}{hint}") from error
    found = "cuda" if devices[0].platform == "gpu" else devices[0].platform
    if found != device.type:
        raise _started_elsewhere(found, device.type)
    index = device.index or 0
    if index >= len(devices):
        raise UserError(f"JAX sees {len(devices)} {found} device(s), {str(device)!r} is not one of them")
    jax.config.update("jax_default_device", devices[index])
    _started[:] = [found]


def _started_elsewhere(found: str, asked: str) -> UserError:
    return UserError(f"JAX already runs on {found} in this process, {asked} needs a process of its own")


@contextmanager
def _bare_parents(name: str) -> Iterator[None]:
    """Parents of module ``name`` in ``sys.modules`` as empty packages that only know where their files lie."""
    added: list[str] = []
    try:
        parts = name.split(".")
        for depth in range(1, len(parts)):
            parent = ".".join(parts[:depth])
            if parent in sys.modules:
                continue
            spec = importlib.util.find_spec(parent)
            if spec is None or spec.submodule_search_locations is None:
                raise ModuleNotFoundError(f"No module named {parent!r}", name=parent)
            module = ModuleType(parent)
            module.__path__ = list(spec.submodule_search_locations)
            sys.modules[parent] = module
            added.append(parent)
        yield
    finally:
        for parent in added:
            del sys.modules[parent]


def import_submodule(name: str) -> ModuleType:
    """Module ``name`` without running its parent packages' own code.

    A package that imports everything it has, or prints, or replaces ``sys.stdout`` while it is imported, costs seconds
    and output for one submodule. Raises ``ImportError`` when there is no such module.
    """
    if name in sys.modules:
        return sys.modules[name]
    with _bare_parents(name):
        return importlib.import_module(name)


def key(jax: Any, seed: int) -> Any:
    """A typed threefry key from every bit of ``seed``, 0 <= seed < 2**63 (``jax.random.key`` reads 32 of them)."""
    if not 0 <= seed < 2**63:
        raise ValueError(f"seed must be in [0, 2**63), got {seed}")
    words = np.array([seed >> 32, seed & 0xFFFFFFFF], dtype=np.uint32)
    return jax.random.wrap_key_data(words, impl="threefry2x32")


def strong(jax: Any, tree: Any) -> Any:
    """``tree`` with weakly typed leaves cast to their own type, so that the next call is not compiled anew for them."""
    return jax.tree.map(lambda x: jax.lax.convert_element_type(x, x.dtype), tree)


def to_torch(array: Any, device: torch.device) -> Tensor:
    """A tensor of JAX's ``array``, writable and safe to keep.

    CPU: a copy, which for arrays of this size is cheaper than a DLPack exchange. GPU: the same memory by DLPack; the
    array must then never be donated to a later JAX call.
    """
    if device.type == "cpu":
        return torch.from_numpy(np.array(array))
    return torch.utils.dlpack.from_dlpack(array)


def to_jax(jax: Any, tensor: Tensor) -> Any:
    """What a jitted function takes for ``tensor``: a NumPy array on the CPU, a JAX array by DLPack on a GPU.

    The memory may be shared: hand over fresh tensors and do not write into them afterwards.
    """
    tensor = tensor.detach().contiguous()
    if tensor.device.type == "cpu":
        return tensor.numpy()
    return jax.dlpack.from_dlpack(tensor)
