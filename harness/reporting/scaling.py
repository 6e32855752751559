"""Tasks that differ in one number: score and success against it, and how much of a setting success takes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import pandas as pd
from matplotlib.axes import Axes

from harness.analysis.scaling import SHARES, Family, Need, Point, families, needs, points
from harness.analysis.study import Study
from harness.reporting import words
from harness.reporting.figures import Drawing, Panel, line
from harness.reporting.style import Look, looks
from harness.reporting.tables import Table, cells


class Scaling(NamedTuple):
    """Empty where no three tasks differ in one number alone."""

    drawings: tuple[Drawing, ...]
    tables: tuple[Table, ...]


def section(study: Study) -> Scaling:
    """Figure and tables of every family of tasks in ``study``."""
    found = [(f, points(study, f)) for f in families(study.tasks)]
    if not found:
        return Scaling((), ())
    every = [p for _, part in found for p in part]
    made = (table(every), needed(needs(study, every)))
    return Scaling((drawing(found, looks(study.algorithms)),), tuple(t for t in made if t is not None))


def drawing(found: Sequence[tuple[Family, Sequence[Point]]], look: Mapping[str, Look]) -> Drawing:
    """A panel of scores a family, and one of success where any seed solved a task."""
    panels = []
    for family, part in found:
        panels.append(Panel(f"{family.name}: score", _panel(family, part, look, success=False), (4.2, 2.9)))
        if any(p.solved.reached for p in part):
            panels.append(Panel(f"{family.name}: success", _panel(family, part, look, success=True), (4.2, 2.9)))
    caption = (
        "Against the number n in the tasks' names. Score: mean over seeds, normalised by the declared bounds, with 95% "
        "bootstrap bands. Success: share of seeds that solved the task (see Solved), with Wilson's 95% bands."
    )
    there = {p.algorithm for _, part in found for p in part}
    legend = tuple((a, s) for a, s in look.items() if a in there)
    data = _data([p for _, part in found for p in part])
    return Drawing("scaling", "Scaling", caption, tuple(panels), data, legend, columns=2)


def _panel(family: Family, part: Sequence[Point], look: Mapping[str, Look], *, success: bool) -> Callable[[Axes], None]:
    def draw(axes: Axes) -> None:
        for a in (a for a in look if any(p.algorithm == a for p in part)):
            mine = [p for p in part if p.algorithm == a]
            x = [p.number for p in mine]
            if success:
                bands = [p.solved.low for p in mine], [p.solved.high for p in mine]
                line(axes, look[a], x, [p.solved.share for p in mine], *bands, len(x))
            elif all(p.score.estimable for p in mine):
                low, high = [p.score.low for p in mine], [p.score.high for p in mine]
                line(axes, look[a], x, [p.score.value for p in mine], low, high, len(x))
            else:
                line(axes, look[a], x, [p.score.value for p in mine], markers=len(x))
        if success:
            axes.set_ylim(-0.04, 1.04)
        axes.set_xticks(family.numbers)
        axes.set_xlabel("n")
        axes.set_ylabel("share of seeds" if success else "normalised score")

    return draw


def _data(every: Sequence[Point]) -> pd.DataFrame:
    return pd.DataFrame(
        [
            {
                "family": p.family, "n": p.number, "task": p.task.key, "algorithm": p.algorithm,
                "score": p.score.value, "score_low": p.score.low, "score_high": p.score.high,
                "seeds": p.solved.seeds, "solved": p.solved.reached, "share": p.solved.share,
                "share_low": p.solved.low, "share_high": p.solved.high,
            }
            for p in every
        ]
    )  # fmt: skip


def table(every: Sequence[Point]) -> Table:
    """One row a task and method."""
    form = partial(words.value, decimals=2)
    rows = [
        cells([p.task.name, p.algorithm, words.estimate(p.score, form), words.share(*p.solved.counted)])
        for p in every
    ]  # fmt: skip
    caption = (
        "Normalised final score with its 95% bootstrap interval over seeds, and seeds that solved the task with "
        "Wilson's interval."
    )
    columns = ("Task", "Method", "Score", "Solved")
    return Table("scaling", "Scaling", caption, columns, tuple(rows), _data(every), labels=2)


def needed(every: Sequence[Need]) -> Table | None:
    """Least value of the setting in which variants differ, for each share of the seeds."""
    if not every:
        return None
    rows, data = [], []
    for n in every:
        texts = [_least(n.least[s], n.tried) for s in SHARES]
        rows.append(cells([n.family, n.number, n.method, n.setting, *texts]))
        shares = {f"for_{s:.0%}": n.least[s] for s in SHARES}
        data.append({"family": n.family, "n": n.number, "algorithm": n.method, "setting": n.setting, **shares,
                     "tried": " ".join(f"{v:g}" for v in n.tried)})  # fmt: skip
    columns = ("Tasks", "n", "Method", "Setting", *(f"For {s:.0%} of seeds" for s in SHARES))
    caption = (
        "Variants of a method that differ in one setting: the least value tried with which that share of the seeds "
        "solved the task. “> v”: not with v either, the largest tried."
    )
    return Table("scaling_needed", "What success takes", caption, columns, tuple(rows), pd.DataFrame(data), labels=4)


def _least(value: float | None, tried: Sequence[float]) -> str:
    return f"> {max(tried):g}" if value is None else f"{value:g}"
