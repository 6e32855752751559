"""Where each method's training time went, as a table: the end of ``harness run ... profile=on``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from harness.display import count, duration, steps
from harness.profile import PARTS, PHASES, Profile
from harness.store import TrialFolder
from harness.types import Trial

WIDTH = 60
"""Characters that a table may take; methods that do not fit get a table below."""


def profile_table(trials: Sequence[Trial]) -> RenderableType:
    """A row a part, a column a method: shares of its training time, over all its tasks and seeds among ``trials``."""
    records = [(trial.algorithm, _profile(trial)) for trial in trials]
    totals: dict[str, Profile] = {}  # in the order of the request
    for label, record in records:
        if record is not None:
            totals.setdefault(label, Profile()).add(record)
    without = sum(record is None for _, record in records)
    parts: list[RenderableType] = []
    if totals:
        tasks = len({t.task for t in trials})
        over = f" over {tasks} tasks" if tasks > 1 else ""
        parts = [Text(""), Text(f"Share of training time by part{over}", style="bold")]
        parts += [_table({label: totals[label] for label in block}) for block in _blocks(totals)]
    if without:
        parts.append(Text(f"{count(without, 'trial')} without a profile: run before profile=on, or not at all"))
    return Group(*parts)


def _profile(trial: Trial) -> Mapping[str, Any] | None:
    try:
        found: Mapping[str, Any] | None = (TrialFolder.of(trial).record() or {}).get("profile")
    except ValueError:  # damaged: the table above says so
        return None
    return found


def _blocks(labels: Iterable[str]) -> Iterator[list[str]]:
    """Labels that fit side by side."""
    block: list[str] = []
    room = first = WIDTH - 1 - max(map(len, (*PARTS, *ROWS)))
    for label in labels:
        takes = 1 + _width(label)
        if block and takes > room:
            yield block
            block, room = [], first
        block.append(label)
        room -= takes
    yield block


def _width(label: str) -> int:
    """Characters of a method's column: room for "100.0%"; a variant's long name is folded."""
    return max(len("100.0%"), min(len(label), 14))


ROWS = ("idle slots", "env steps/s", *PHASES)
"""Below the shares. idle slots: environments that had finished their episode and waited for the others, of all."""


def _table(totals: Mapping[str, Profile]) -> Table:
    table = Table(box=None, padding=(0, 1, 0, 0), header_style="bold", pad_edge=False)
    table.add_column("", no_wrap=True)
    for label in totals:
        table.add_column(label, justify="right", overflow="fold", width=_width(label))
    for part in PARTS:
        shares = [t.clock.seconds["training", part] / (t.clock.total(phase="training") or 1.0) for t in totals.values()]
        table.add_row(part, *(_percent(x) if x else "–" for x in shares))
    table.add_row(*[""] * (1 + len(totals)))
    for row in ROWS:
        cells = [_below(row, t) for t in totals.values()]
        if any(cells):
            table.add_row(row, *(cell or "–" for cell in cells), style="dim")
    return table


def _below(row: str, total: Profile) -> str:
    if row == "idle slots":
        return _percent(total.idle_share)
    seconds = total.clock.total(phase=row if row in PHASES else "training")
    if row == "env steps/s":
        return steps(total.env_steps / seconds) if seconds else ""
    return duration(seconds) if seconds else ""


def _percent(share: float) -> str:
    return f"{100 * share:.1f}%"
