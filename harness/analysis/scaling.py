"""Families of tasks that differ in one number of their names, and how methods do as it grows.

``coordination_2``, ``coordination_3``, ...; ``3a``, ``6a``, ``9a``. Nothing here knows what the number counts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.analysis import success
from harness.analysis.bootstrap import Estimate, one
from harness.analysis.scores import TaskInfo
from harness.analysis.study import Study

LEAST = 3
"""Numbers that make a family: two points are no curve."""
SHARES = (0.5, 0.9)


@dataclass(frozen=True)
class Family:
    """Tasks of one suite, in order of their number."""

    name: str
    """Their name with n for the number: ``coordination_n``."""
    suite: str
    numbers: tuple[int, ...]
    tasks: tuple[TaskInfo, ...]


@dataclass(frozen=True)
class Point:
    """One method at one number."""

    family: str
    number: int
    task: TaskInfo
    algorithm: str
    score: Estimate
    """Mean normalised final score."""
    solved: success.Solved
    """Seeds that solved the task."""


@dataclass(frozen=True)
class Need:
    """The least value of a setting with which a share of the seeds solved the task."""

    family: str
    number: int
    method: str
    """Registered name that the variants share."""
    setting: str
    tried: tuple[float, ...]
    least: Mapping[float, float | None]
    """Share -> least value tried that reached it; None where none did."""


def families(tasks: Sequence[TaskInfo]) -> list[Family]:
    """Families of at least three numbers. A name that fits two ways is put into the larger family."""
    groups: dict[tuple[str, str], dict[int, TaskInfo]] = {}
    for task in tasks:
        for found in re.finditer(r"\d+", task.name):
            pattern = f"{task.name[: found.start()]}n{task.name[found.end() :]}"
            groups.setdefault((task.suite, pattern), {})[int(found[0])] = task
    made, taken = [], set[str]()
    for (suite, pattern), members in sorted(groups.items(), key=lambda g: (-len(g[1]), g[0])):
        free = {n: t for n, t in sorted(members.items()) if t.key not in taken}
        if len(free) >= LEAST:
            taken |= {t.key for t in free.values()}
            made.append(Family(pattern, suite, tuple(free), tuple(free.values())))
    return sorted(made, key=lambda f: (f.suite, f.name))


def points(study: Study, family: Family) -> list[Point]:
    """Every method at every number where it has finished seeds."""
    made, solved = [], success.by_task(study)
    for number, task in zip(family.numbers, family.tasks):
        values = study.end(task).values
        for a in (a for a in study.algorithms if a in values):
            scores = task.normalise(values[a])
            score = one(scores, resamples=study.options.resamples, seed=study.options.seed)
            made.append(Point(family.name, number, task, a, score, solved[a, task.key]))
    return made


def needs(study: Study, found: Sequence[Point]) -> list[Need]:
    """For methods whose variants differ in one number among their settings: how much of it each task takes."""
    made = []
    for family, number, method in sorted({(p.family, p.number, _base(p.algorithm)) for p in found}):
        mine = [p for p in found if (p.family, p.number, _base(p.algorithm)) == (family, number, method)]
        varied = _varied({p.algorithm: _settings(study, p) for p in mine})
        if varied is None:
            continue
        setting, value = varied
        ordered = sorted(mine, key=lambda p: value[p.algorithm])
        least = {s: next((value[p.algorithm] for p in ordered if p.solved.share >= s), None) for s in SHARES}
        made.append(Need(family, number, method, setting, tuple(value[p.algorithm] for p in ordered), least))
    return made


def _base(label: str) -> str:
    return label.partition("@")[0]


def _settings(study: Study, point: Point) -> Mapping[str, Any]:
    record = study.scores.cell(point.algorithm, point.task)[0].record
    return (record.get("settings") or {}).get("algorithm") or {}


def _varied(settings: Mapping[str, Mapping[str, Any]]) -> tuple[str, dict[str, float]] | None:
    """The one setting in which the variants differ, when it is a number, with its value for each."""
    keys = {k for s in settings.values() for k in s}
    differing = [k for k in keys if len({repr(s.get(k)) for s in settings.values()}) > 1]
    if len(differing) != 1:
        return None
    values = {a: s.get(differing[0]) for a, s in settings.items()}
    numbers = {a: float(v) for a, v in values.items() if isinstance(v, int | float) and not isinstance(v, bool)}
    return (differing[0], numbers) if len(numbers) == len(values) else None
