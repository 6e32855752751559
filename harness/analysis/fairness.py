"""What each method was given: parameters, experience, updates, time, memory. Differences are marked."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.analysis.energy import NOT
from harness.analysis.scores import Run, Scores

OUTCOMES = ("wall time", "CPU time", "CPU energy", "GPU energy", "peak memory")
"""Measured, not chosen: marked only where they differ by more than a tenth."""


@dataclass(frozen=True)
class Cell:
    """One property of one method over its runs."""

    text: str
    differs: bool
    """On some task it is not what the others have."""


@dataclass(frozen=True)
class Fairness:
    """One row a method."""

    columns: tuple[str, ...]
    rows: Mapping[str, Mapping[str, Cell]]

    @property
    def differing(self) -> tuple[str, ...]:
        """Columns in which the methods differ."""
        return tuple(c for c in self.columns if any(row[c].differs for row in self.rows.values()))


def number(x: float) -> str:
    """1234567 -> 1.23M."""
    if abs(x) >= 1e6:
        return f"{x / 1e6:.3g}M"
    if abs(x) >= 1e4:
        return f"{x / 1e3:.3g}k"
    return f"{x:.4g}"


def seconds(x: float) -> str:
    """5400 -> 1.5 h."""
    return f"{x / 3600:.1f} h" if x >= 5400 else f"{x / 60:.1f} min" if x >= 90 else f"{x:.0f} s"


def memory(x: float) -> str:
    """Bytes -> MiB or GiB."""
    return f"{x / 2**30:.2f} GiB" if x >= 2**30 else f"{x / 2**20:.0f} MiB"


def joules(x: float) -> str:
    """12345 -> 12.3 kJ."""
    for size, unit in ((1e9, "GJ"), (1e6, "MJ"), (1e3, "kJ")):
        if abs(x) >= size:
            return f"{x / size:.3g} {unit}"
    return f"{x:.3g} J"


def _settings(run: Run, part: str) -> Mapping[str, Any]:
    found = (run.record.get("settings") or {}).get(part) or {}
    return found if isinstance(found, Mapping) else {}


def _get(name: str) -> Callable[[Run], Any]:
    return lambda run: run.record.get(name)


def _parameters(run: Run) -> Any:
    counts = run.record.get("parameters")
    return sum(counts.values()) if isinstance(counts, Mapping) and counts else None


def _networks(run: Run) -> Any:
    counts = run.record.get("parameters")
    if not isinstance(counts, Mapping) or not counts:
        return None
    return ", ".join(f"{k} {number(float(v))}" for k, v in counts.items())


def _hidden(run: Run) -> Any:
    fields = {k: v for k, v in _settings(run, "algorithm").items() if "hidden" in k or k in ("embed", "hyper")}
    return ", ".join(f"{k} {v}" for k, v in fields.items()) or None


def _energy(kind: str) -> Callable[[Run], Any]:
    """Joules, "not measured", or None where nothing was recorded."""

    def read(run: Run) -> Any:
        value = (run.record.get("energy_joules") or {}).get(kind)
        return NOT if isinstance(value, str) else value

    return read


def _per_thousand(run: Run) -> Any:
    updates, played = run.record.get("updates"), _played(run)
    return None if updates is None or not played else 1000 * float(updates) / played


def _played(run: Run) -> int:
    """Environment steps of training that were played: whole rounds of episodes go past the budget."""
    return int(run.record.get("env_steps") or run.budget)


COLUMNS: tuple[tuple[str, Callable[[Run], Any], Callable[[Any], str]], ...] = (
    ("parameters", _parameters, number),
    ("by network", _networks, str),
    ("hidden sizes", _hidden, str),
    ("environments", _get("num_envs"), str),
    ("env steps", _played, number),
    ("gradient updates", _get("updates"), number),
    ("updates per 1,000 env steps", _per_thousand, number),
    ("samples per update", _get("samples_per_update"), number),
    ("wall time", _get("wall_seconds"), seconds),
    ("CPU time", _get("cpu_seconds"), seconds),
    ("CPU energy", _energy("cpu"), joules),
    ("GPU energy", _energy("gpu"), joules),
    ("peak memory", _get("peak_memory_bytes"), memory),
    ("device", _get("device"), str),
    ("tuning budget", _get("tuning"), str),
)


def _middle(values: Sequence[Any]) -> Any:
    """The median of numbers, the distinct words of anything else; no number where only some seeds have one."""
    numbers = sorted(v for v in values if isinstance(v, (int, float)) and not isinstance(v, bool))
    if len(numbers) == len(values):
        return numbers[len(numbers) // 2]
    if NOT in values:
        return f"{NOT} in {len(values) - len(numbers)} of {len(values)} seeds" if numbers else NOT
    return " / ".join(sorted({str(v) for v in values}))


def _tolerance(column: str) -> float:
    return 0.10 if column in OUTCOMES else 0.02 if column not in ("parameters", "environments") else 0.0


def _differ(values: Sequence[Any], tolerance: float) -> bool:
    if all(isinstance(v, (int, float)) for v in values):
        return bool(max(values) - min(values) > tolerance * max(abs(max(values)), abs(min(values))))
    return len({str(v) for v in values}) > 1


def fairness(scores: Scores) -> Fairness:
    """The table. A range over tasks is shown as lowest - highest; a value missing in the records is "not recorded"."""
    values: dict[str, dict[tuple[str, str], Any]] = {}
    for name, read, _ in COLUMNS:
        for (algorithm, task), runs in scores.runs.items():
            found = [v for v in map(read, runs) if v is not None]
            values.setdefault(name, {})[algorithm, task] = _middle(found) if found else None
    shown = tuple(n for n, _, _ in COLUMNS if any(v is not None for v in values[n].values()))
    columns = [(n, form) for n, _, form in COLUMNS if n in shown]
    rows = {a: {n: _cell(a, n, form, values[n], scores) for n, form in columns} for a in scores.algorithms}
    return Fairness(shown, rows)


def _cell(
    algorithm: str, column: str, form: Callable[[Any], str], values: Mapping[tuple[str, str], Any], scores: Scores
) -> Cell:
    mine = {t: v for (a, t), v in values.items() if a == algorithm and v is not None}
    if not mine:
        return Cell("not declared", True) if column == "tuning budget" else Cell("not recorded", False)
    differs = False
    for task in mine:
        others = [values[a, task] for a in scores.algorithms if values.get((a, task)) is not None]
        differs |= _differ(others, _tolerance(column))
    found = list(mine.values())
    if all(isinstance(v, (int, float)) for v in found):
        low, high = form(min(found)), form(max(found))
        return Cell(low if low == high else f"{low} – {high}", differs)
    words = sorted({v if isinstance(v, str) else form(v) for v in found})
    return Cell(words[0] if len(words) == 1 else "; ".join(words), differs)
