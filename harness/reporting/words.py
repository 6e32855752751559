"""Numbers as text, always the same way."""

from __future__ import annotations

import math
from collections.abc import Callable

from harness.analysis.bootstrap import Estimate
from harness.analysis.fairness import joules, memory, number, seconds
from harness.analysis.scores import TaskInfo
from harness.reporting.style import steps_text

__all__ = [
    "digits",
    "estimate",
    "interval",
    "join",
    "joules",
    "memory",
    "name_of",
    "number",
    "p_value",
    "plural",
    "seconds",
    "share",
    "short",
    "steps_text",
    "value",
]


def digits(task: TaskInfo) -> int:
    """Decimals that show a thousandth of the span between a task's bounds."""
    return max(0, 3 - math.floor(math.log10(task.high - task.low)))


def short(x: float) -> str:
    """Three significant digits, with a true minus."""
    return f"{x:.3g}".replace("-", "−")


def name_of(task: str) -> str:
    """A task's key without its suite."""
    return str(task).rpartition("/")[2]


def value(x: float, decimals: int = 3) -> str:
    """A number with a true minus; never -0."""
    text = f"{x:.{decimals}f}"
    if float(text) == 0:
        text = text.lstrip("-")
    return text.replace("-", "−")


def interval(e: Estimate, form: Callable[[float], str] = value) -> str:
    """[low, high], or "not estimable"."""
    return "not estimable" if e.low is None or e.high is None else f"[{form(e.low)}, {form(e.high)}]"


def estimate(e: Estimate, form: Callable[[float], str] = value) -> str:
    """value [low, high]; without an interval the value alone."""
    return form(e.value) if e.low is None else f"{form(e.value)} {interval(e, form)}"


def share(count: int, seeds: int, low: float, high: float) -> str:
    """Of seeds, with its interval: 12/20 [0.39, 0.78]."""
    return f"{count}/{seeds} [{value(low, 2)}, {value(high, 2)}]"


def p_value(p: float | None) -> str:
    """p to two digits; very small ones as a bound."""
    if p is None:
        return "not estimable"
    return "<0.0001" if p < 1e-4 else f"{p:.2g}" if p < 0.1 else f"{p:.2f}"


def join(items: list[str]) -> str:
    """a, b and c."""
    return items[0] if len(items) == 1 else ", ".join(items[:-1]) + " and " + items[-1]


def plural(n: int, noun: str) -> str:
    """1 seed, 2 seeds."""
    return f"{n:,} {noun}" + ("" if n == 1 else "s")
