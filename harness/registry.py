"""Names -> entry points. Built-ins and third parties are found alike; nothing is imported before it is asked for.

A method is registered by its package's metadata, a suite likewise::

    [options.entry_points]
    harness.algorithms =
        mine = my_package.mine:Mine
    harness.suites =
        my_tasks = my_package.tasks:MyTasks
"""

from __future__ import annotations

import contextlib
import hashlib
import inspect
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

from harness import contract
from harness.errors import UserError, unknown

ALGORITHMS = "harness.algorithms"
SUITES = "harness.suites"


@cache
def _entries(group: str) -> dict[str, EntryPoint]:
    found: dict[str, EntryPoint] = {}
    for entry in entry_points(group=group):
        other = found.setdefault(entry.name, entry)
        if other.value != entry.value:
            raise UserError(f"{group}: {entry.name!r} is registered twice, by {other.value} and by {entry.value}")
    return dict(sorted(found.items()))


def _load(group: str, what: str, name: str) -> Any:
    entries = _entries(group)
    if name not in entries:
        raise unknown(what, name, entries)
    try:
        return entries[name].load()
    except Exception as error:  # whatever somebody's module does when it is imported
        why = f"{type(error).__name__}: {error}" if not isinstance(error, ImportError | AttributeError) else error
        raise UserError(f"{what} {name!r} ({entries[name].value}) cannot be imported: {why}") from error


def algorithms() -> tuple[str, ...]:
    """Registered methods' names, sorted."""
    return tuple(_entries(ALGORITHMS))


def suites() -> tuple[str, ...]:
    """Registered suites' names, sorted."""
    return tuple(_entries(SUITES))


def algorithm(name: str) -> Any:
    """The class of a method. Raises ``UserError`` with the nearest name when there is none, or why it is no method."""
    cls = _load(ALGORITHMS, "algorithm", name)
    contract.algorithm(cls, name)
    return cls


def suite(name: str) -> Any:
    """The class of a suite. Raises ``UserError`` with the nearest name when there is none, or why it is no suite."""
    cls = _load(SUITES, "suite", name)
    contract.suite(cls, name)
    return cls


def source(group: str, name: str) -> dict[str, str]:
    """Where a registered name comes from: ``package`` and ``version`` of its distribution, ``sha256`` of the file that
    its class is written in (which may import from others)."""
    entry = _entries(group)[name]
    found = {} if entry.dist is None else {"package": entry.dist.name, "version": entry.dist.version}
    with contextlib.suppress(ImportError, AttributeError, TypeError, OSError):  # no file: made in a notebook
        found["sha256"] = hashlib.sha256(Path(inspect.getfile(entry.load())).read_bytes()).hexdigest()
    return found
