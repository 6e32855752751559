"""JAX beside torch in one process: set-up before JAX starts, and arrays from one to the other.

JAX takes its platform, its threads and its dispatch when it starts and never looks again, so ``setup`` comes before anything
that touches an array. XLA takes every core unless it is told otherwise; a trial has one.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
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


def default_cache_dir() -> Path:
    """Folder of compiled functions: ``$JAX_COMPILATION_CACHE_DIR``, else ``marl-harness/jax`` in the user's cache."""
    if given := os.environ.get(CACHE_VARIABLE):
        return Path(given)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "marl-harness" / "jax"


def setup(device: torch.device, cache_dir: Path | None = None) -> ModuleType:
    """Start JAX for a trial on ``device`` and return the module ``jax``.

    One XLA thread on the CPU, synchronous dispatch there (torch and JAX share memory, so a result in flight is a
    hazard), only as much GPU memory as is used, and every compiled function kept in ``cache_dir``
    (default: ``default_cache_dir()``) for the next process. A second call with the same platform does nothing new.

    Raises ``UserError`` when JAX is missing, when it cannot use ``device``, or when it already runs on another platform.
    """
    platform = {"cpu": "cpu", "cuda": "cuda"}.get(device.type)
    if platform is None:
        raise UserError(f"device {str(device)!r} is not one that JAX environments run on; use device=cpu or device=cuda")
    os.environ.setdefault("NPROC", "1")
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    jax = _import_jax()
    jax.config.update("jax_platforms", "cpu" if platform == "cpu" else "cuda,cpu")
    jax.config.update("jax_cpu_enable_async_dispatch", False)
    _use_cache(jax, cache_dir or default_cache_dir())
    _pin(jax, platform, device.index or 0)
    return jax


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


def _pin(jax: Any, platform: str, index: int) -> None:
    """Make device ``index`` of ``platform`` the one that arrays are made on; this starts JAX."""
    try:
        devices = jax.devices()
    except RuntimeError as error:
        hint = "pip install 'jax[cuda12]'" if platform == "cuda" else "unset JAX_PLATFORMS"
        raise UserError(f"JAX cannot start on {platform}: {error}; {hint}") from error
    found = "cuda" if devices[0].platform in ("gpu", "cuda") else devices[0].platform
    if found != platform:
        raise UserError(f"JAX already runs on {found} in this process; start another process to use {platform}")
    if index >= len(devices):
        raise UserError(f"JAX sees {len(devices)} {platform} device(s), there is no number {index}")
    jax.config.update("jax_default_device", devices[index])


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

    A package that imports everything it has, or prints, or replaces ``sys.stdout`` while it is imported, costs seconds and
    output for one submodule. Raises ``ImportError`` when there is no such module.
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

    CPU: a copy, which for arrays of this size is cheaper than a DLPack exchange. GPU: the same memory by DLPack; the array
    must then never be donated to a later JAX call.
    """
    if device.type == "cpu":
        return torch.from_numpy(np.array(array))
    return torch.from_dlpack(array)


def to_jax(jax: Any, tensor: Tensor) -> Any:
    """What a jitted function takes for ``tensor``: a NumPy array on the CPU, a JAX array by DLPack on a GPU.

    The memory may be shared: hand over fresh tensors and do not write into them afterwards.
    """
    tensor = tensor.detach().contiguous()
    if tensor.device.type == "cpu":
        return tensor.numpy()
    return jax.dlpack.from_dlpack(tensor)
