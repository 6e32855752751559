"""What the store holds of a trial, as a tracker wants it: parameters, tags, points of metrics by environment step."""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from harness import lock
from harness.store import TABLES, TrialFolder, read_table

COSTS = ("env_steps", "updates", "episodes", "train_seconds", "eval_seconds", "peak_memory_bytes")
"""Numbers of a complete trial's record that become metrics ``cost/<name>``."""
FACTS = ("suite", "task", "algorithm", "seed", "engine", "device", "metric", "num_envs")
"""Entries of the record that become parameters, beside every setting."""
PREFIX = {"metrics.csv": "", "evaluations.csv": "eval/", "cdm.csv": "cdm/", "final.csv": "final/"}
"""Of each table's metrics."""
STATUS = {"complete": "FINISHED", "failed": "FAILED", "interrupted": "KILLED"}


class Point(NamedTuple):
    """One number of one metric."""

    metric: str
    step: int
    value: float
    time: int
    """Milliseconds since 1970: the trial's start and its seconds of training until then."""


@dataclass(frozen=True)
class Told:
    """A trial as it stands in the store."""

    key: str
    """Its path below the experiment: suite/task/algorithm/seed_k."""
    name: str
    status: str
    """"RUNNING" | "FINISHED" | "FAILED" | "KILLED"."""
    started: int
    ended: int | None
    params: Mapping[str, str]
    tags: Mapping[str, str]
    points: Mapping[str, Sequence[Point]]
    """By table, in the order in which they were written."""
    damaged: tuple[str, ...] = ()


def digest(points: Iterable[Point]) -> int:
    """Of metric, step and value: resuming repeats these exactly, not the clock."""
    return zlib.crc32("\n".join(f"{p.metric} {p.step} {p.value!r}" for p in points).encode())


def stamp(folder: TrialFolder) -> tuple[tuple[int, int], ...]:
    """Changes when a file that ``read`` looks at does."""
    found = []
    for name in ("trial.json", *TABLES):
        try:
            stat = (folder.path / name).stat()
            found.append((stat.st_mtime_ns, stat.st_size))
        except FileNotFoundError:
            found.append((0, 0))
    return tuple(found)


def read(folder: TrialFolder, root: Path, live: bool) -> Told | None:
    """The trial in ``folder`` of the experiment ``root``; None without a record. Raises ``ValueError`` where damaged.

    ``live``: a runner is at work, so a record that says "running" is believed; else its lock must be held.
    """
    record = folder.record()
    if record is None:
        return None
    status = STATUS.get(str(record.get("status")), "RUNNING")
    if status == "RUNNING" and not live and not lock.held(folder.path):
        status = "KILLED"
    started = _milliseconds(record.get("started"), folder.path / "trial.json")
    points, damaged = _points(folder, record, status, started)
    ended = record.get("ended")
    return Told(
        key=str(folder.path.relative_to(root)),
        name=f"{record.get('task')} {record.get('algorithm')} seed {record.get('seed')}",
        status=status,
        started=started,
        ended=int(1000 * float(ended)) if ended and status != "RUNNING" else None,
        params=_params(record),
        tags=_tags(record),
        points=points,
        damaged=damaged,
    )


def _milliseconds(started: Any, file: Path) -> int:
    if isinstance(started, str):
        when = datetime.fromisoformat(started)
        return int(1000 * when.replace(tzinfo=when.tzinfo or UTC).timestamp())
    return int(1000 * file.stat().st_mtime)  # not begun, or imported


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _flat(values: Mapping[str, Any], at: str = "") -> dict[str, str]:
    found: dict[str, str] = {}
    for name, value in values.items():
        found |= _flat(value, f"{at}{name}.") if isinstance(value, Mapping) else {f"{at}{name}": _text(value)}
    return found


def _params(record: Mapping[str, Any]) -> dict[str, str]:
    """Every setting (``algorithm.lr``, ``suite.engine``, ``budget.env_steps``), what is run, and sizes."""
    facts = {k: record[k] for k in FACTS if record.get(k) is not None}
    sizes = {"parameters": record["parameters"]} if record.get("parameters") else {}
    return _flat(record.get("settings") or {}) | _flat(facts) | _flat(sizes)


def _tags(record: Mapping[str, Any]) -> dict[str, str]:
    """What it was made with, and why it failed."""
    machine = record.get("machine") or {}
    about = {"versions": record.get("versions") or {}, "commit": record.get("commit"), "host": machine.get("host")}
    about |= {"device_name": record.get("device_name"), "reason": record.get("reason")}
    about["failures"] = "; ".join(record.get("failures") or ()) or None
    return _flat({k: v for k, v in about.items() if v is not None})


# -- points -------------------------------------------------------------------------------------------------------


def _points(
    folder: TrialFolder, record: Mapping[str, Any], status: str, started: int
) -> tuple[dict[str, list[Point]], tuple[str, ...]]:
    tables: dict[str, pd.DataFrame] = {}
    damaged = []
    for name in TABLES:
        try:
            table = read_table(folder.path / name)
        except ValueError as error:
            damaged.append(str(error))
            continue
        if table is not None:
            tables[name] = table
    clock = _clock(tables.get("timings.csv"))
    found: dict[str, list[Point]] = {}
    for name, prefix in PREFIX.items():
        if name not in tables or (name == "final.csv" and status != "FINISHED"):
            continue  # a final evaluation begun is none
        rows = _long(tables[name]) if "metric" in tables[name] else _means(tables[name])
        if name in ("metrics.csv", "evaluations.csv") and (clock or status == "RUNNING"):
            rows = [row for row in rows if row[0] in clock]  # timings are written last: that point is whole
        unique = {(prefix + metric, step): value for step, metric, value in rows}
        found[name] = [Point(m, s, v, started + int(1000 * clock.get(s, 0.0))) for (m, s), v in unique.items()]
    if status == "FINISHED":
        at, time = int(record.get("env_steps") or 0), started + int(1000 * max(clock.values(), default=0.0))
        numbers = {k: record[k] for k in COSTS if isinstance(record.get(k), int | float)}
        found["cost"] = [Point(f"cost/{k}", at, float(v), time) for k, v in numbers.items()]
    return found, tuple(damaged)


def _clock(timings: pd.DataFrame | None) -> dict[int, float]:
    """{env steps: seconds of training until then}."""
    if timings is None or "seconds" not in timings:
        return {}
    return {int(step): float(s) for step, s in zip(timings["env_steps"], timings["seconds"], strict=True)}


def _long(table: pd.DataFrame) -> list[tuple[int, str, float]]:
    rows = zip(table["env_steps"], table["metric"], table["value"], strict=True)
    return [(int(step), str(metric), float(value)) for step, metric, value in rows]


def _means(table: pd.DataFrame) -> list[tuple[int, str, float]]:
    """Mean over the episodes of each evaluation, column by column."""
    columns = [c for c in table.columns if c not in ("env_steps", "episode")]
    return [
        (int(str(step)), str(column), math.fsum(part[column]) / len(part))
        for step, part in table.groupby("env_steps", sort=True)
        for column in columns
    ]
