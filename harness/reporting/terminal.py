"""``harness compare A B``: two methods, in the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from harness.analysis.compare import Pair
from harness.analysis.study import Options, Study, study
from harness.errors import UserError, unknown
from harness.reporting import words
from harness.store import load

WIDE = 100
"""Columns below which the figures of a task stand one below the other."""


def compare(a: str, b: str, paths: Sequence[Path], console: Console | None = None, **options: Any) -> None:
    """Print ``a`` against ``b`` on each task: means, difference, P(a > b), adjusted p, verdict; then all tasks.

    Raises ``UserError`` for a method that has no complete trial.
    """
    known = sorted({str(x) for p in paths for x in load(p).trials["algorithm"]})
    for name in (a, b):
        if name not in known:
            raise unknown("algorithm", name, known)
    if a == b:
        raise UserError(f"{a} against itself: name two methods")
    made = study(paths, Options.of(**{**options, "algorithms": (a, b), "baseline": None}))
    out = console or Console(highlight=False)
    out.print(table(made, a, b) if out.width >= WIDE else listed(made, a, b))
    if made.overall is not None and (a, b) in made.overall.improvement:
        chance = words.estimate(made.overall.improvement[a, b], partial(words.value, decimals=2))
        out.print(f"Over {len(made.overall.tasks)} tasks P({a} > {b}) is {chance}.")
    for notice in made.scores.notices:
        if notice.level == "warning":
            out.print(f"! {notice.text}", markup=False, highlight=False)


def table(made: Study, a: str, b: str) -> Table:
    """One row a task."""
    shown = Table(box=None, header_style="bold")
    for column in ("task", *_columns(a, b)):
        shown.add_column(column, justify="left" if column in ("task", "verdict") else "right", no_wrap=column == "task")
    for task, *texts in _rows(made, a, b):
        shown.add_row(task, *texts)
    return shown


def listed(made: Study, a: str, b: str) -> Group:
    """The same one below the other, where a terminal is too narrow for the table."""
    parts: list[RenderableType] = []
    for task, *texts in _rows(made, a, b):
        block = Table(box=None, show_header=False, padding=(0, 1, 0, 1))
        for column, text in zip(_columns(a, b), texts, strict=True):
            block.add_row(column, text)
        parts += [Text(task, style="bold"), block]
    return Group(*parts)


def _columns(a: str, b: str) -> tuple[str, ...]:
    return a, b, "difference", f"P({a} > {b})", "p (Welch, Holm)", "verdict"


def _rows(made: Study, a: str, b: str) -> Iterator[tuple[str, ...]]:
    """Task and the texts of ``_columns``."""
    for pair in made.pairs:
        form = partial(words.value, decimals=words.digits(pair.task))
        means = [words.estimate(made.finals[m, pair.task.key]["mean"], form) for m in (a, b)]
        difference, chance = pair.difference, pair.improvement
        if pair.a != a:
            difference, chance = difference.mirrored(), chance.mirrored(1.0)
        two = partial(words.value, decimals=2)
        texts = [words.estimate(difference, form), words.estimate(chance, two), words.p_value(pair.welch_holm)]
        yield pair.task.name, *means, *texts, _verdict(pair)


def _verdict(pair: Pair) -> str:
    if pair.verdict in ("above", "below"):
        return f"{pair.a if pair.verdict == 'above' else pair.b} is above"
    if pair.verdict == "undecided" and pair.difference.value != 0:
        if pair.no_spread:
            return "undecided (no spread: a few more seeds)"
        return f"undecided ({'over 1,000' if pair.more_seeds is None else f'{pair.more_seeds} more'} seeds needed)"
    return pair.verdict
