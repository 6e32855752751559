"""Task by task: does less mismatch go with success? One mark a method or variant, and the answer in words.

Mismatch of a method: a diagnostic's mean over the diagnosed points of training, then over seeds. Success: share of
seeds whose greedy play ended at the optimum. The answer is the rank correlation of the two over the methods
(``harness.analysis.association``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from harness.analysis.association import MIN_METHODS, Order, mean_order, order, verdict
from harness.analysis.bootstrap import Estimate, wilson
from harness.analysis.curves import mean_interval
from harness.analysis.study import Study
from harness.reporting import words
from harness.reporting.figures import Drawing, Panel
from harness.reporting.style import Look
from harness.reporting.tables import Table, cells


class Measure(NamedTuple):
    """A diagnostic read as an amount of mismatch."""

    metric: str
    axis: str
    """In a figure and a table's head."""
    low: str
    """What little mismatch is, in words."""
    sign: int
    """1 where a high value is much mismatch, -1 where it is little."""

    @property
    def column(self) -> str:
        """Its name in the figure's data."""
        return self.metric.replace("/", "_")


MEASURES = (
    Measure("own/teammate_share", "teammate share", "a low teammate share", 1),
    Measure("own/cosine@0.5", "cosine at ε=0.5", "a high cosine at ε=0.5", -1),
)
ANSWERS = {"negative": "yes", "positive": "no, the opposite", "none": "no", "unclear": "can't tell"}
"""By the sign of the correlation of mismatch with success."""


class Mark(NamedTuple):
    """One method on one task."""

    task: str
    algorithm: str
    success: np.ndarray[Any, Any]
    """[S] 0 or 1."""
    values: Mapping[str, np.ndarray[Any, Any]]
    """Metric -> [S], NaN where a seed has none."""


def marks(study: Study, over: pd.DataFrame, at_end: pd.DataFrame) -> list[Mark]:
    """Every method on every task whose optimum is known. ``over`` and ``at_end``: task, metric, algorithm, seed, value,
    one row a seed, over training and at its end."""
    ends = at_end[at_end["metric"] == "ends/optimal"]
    made = []
    for task in sorted(ends["task"].unique()):
        for a in study.algorithms:
            mine = ends[(ends["task"] == task) & (ends["algorithm"] == a)].set_index("seed")["value"].sort_index()
            if not len(mine):
                continue
            part = over[(over["task"] == task) & (over["algorithm"] == a)]
            values = {
                m.metric: part[part["metric"] == m.metric]
                .set_index("seed")["value"]
                .reindex(mine.index)
                .to_numpy(float)
                for m in MEASURES
            }
            made.append(Mark(str(task), a, (mine.to_numpy(float) > 0.5).astype(float), values))
    return made


def orders(study: Study, found: list[Mark]) -> dict[tuple[str, str], Order | None]:
    """(task, metric) -> the rank correlation of mismatch (not of the measure as such) with success."""
    how = {"resamples": study.options.resamples, "seed": study.options.seed}
    made = {}
    for task in dict.fromkeys(m.task for m in found):
        mine = [m for m in found if m.task == task]
        for measure in MEASURES:
            values = [measure.sign * m.values[measure.metric] for m in mine]
            made[task, measure.metric] = order(values, [m.success for m in mine], **how)
    return made


# -- the figure ------------------------------------------------------------------------------------------------------


def numbers(study: Study, found: list[Mark]) -> pd.DataFrame:
    """A row a mark, as drawn and as tabled."""
    return pd.DataFrame([_numbers(study, m) for m in found])


def _numbers(study: Study, mark: Mark) -> dict[str, Any]:
    n, reached = len(mark.success), int(mark.success.sum())
    low, high = wilson(reached, n)
    row: dict[str, Any] = {"task": mark.task, "algorithm": mark.algorithm, "seeds": n, "optimal": reached,
                           "share": reached / n, "share_low": low, "share_high": high}  # fmt: skip
    for measure in MEASURES:
        values = mark.values[measure.metric]
        values = values[np.isfinite(values)]
        e = (
            mean_interval(values, resamples=study.options.resamples, seed=study.options.seed)
            if len(values)
            else Estimate(float("nan"))
        )
        name = measure.column
        row |= {name: e.value, f"{name}_low": e.low, f"{name}_high": e.high, f"{name}_seeds": len(values)}
    return row


def drawing(data: pd.DataFrame, look: Mapping[str, Look]) -> Drawing | None:
    """Success against each measure, task by task: a row a task, a column a measure; ``data`` is ``numbers``."""
    if data.empty:
        return None
    panels = []
    measured = [m for m in MEASURES if data[m.column].notna().any()]
    for task in data["task"].unique():
        mine = data[data["task"] == task]
        panels += [Panel(words.name_of(task), _panel(mine, m, look), (3.6, 2.6)) for m in measured]
    if not panels:
        return None
    caption = (
        "One mark a method or variant: share of seeds whose greedy play ended at the optimum (Wilson's 95% interval) "
        "against the mismatch of its own gradient estimator, mean over the diagnosed points of training and over seeds "
        "(95% bootstrap interval). Teammate share: less mismatch on the left. Cosine with teammates half uniform: less "
        "mismatch on the right."
    )
    there = set(data["algorithm"])
    legend = tuple((a, s) for a, s in look.items() if a in there)
    return Drawing("cdm_games", "Mismatch and success, task by task", caption, tuple(panels), data, legend,
                   columns=len(measured) if len(measured) > 1 else 3)  # fmt: skip


def _panel(mine: pd.DataFrame, measure: Measure, look: Mapping[str, Look]) -> Callable[[Axes], None]:
    name = measure.column

    def draw(axes: Axes) -> None:
        for r in mine.dropna(subset=[name]).to_dict("records"):
            style, x, y = look[r["algorithm"]], r[name], r["share"]
            axes.plot([x, x], [r["share_low"], r["share_high"]], color=style.colour, linewidth=1, alpha=0.45)
            if pd.notna(r[f"{name}_low"]):
                axes.plot([r[f"{name}_low"], r[f"{name}_high"]], [y, y], color=style.colour, linewidth=1, alpha=0.45)
            axes.plot([x], [y], color=style.colour, marker=style.marker, markersize=6, linestyle="none", zorder=4)
        axes.set_ylim(-0.06, 1.06)
        axes.margins(x=0.08)
        axes.set_xlabel(measure.axis)
        axes.set_ylabel("seeds at the optimum")

    return draw


# -- tables ----------------------------------------------------------------------------------------------------------


def table(data: pd.DataFrame) -> Table | None:
    """What the figure shows, in numbers."""
    if data.empty:
        return None
    rows = []
    for r in data.to_dict("records"):
        texts = [words.share(r["optimal"], r["seeds"], r["share_low"], r["share_high"])]
        for m in MEASURES:
            name = m.column
            low, high = r[f"{name}_low"], r[f"{name}_high"]
            e = Estimate(r[name], None if pd.isna(low) else low, None if pd.isna(high) else high)
            texts.append("–" if pd.isna(e.value) else words.estimate(e, words.short))
        rows.append(cells([words.name_of(r["task"]), r["algorithm"], *texts]))
    columns = ("Task", "Method", "At the optimum", *(m.axis.capitalize() for m in MEASURES))
    caption = (
        "The figure's numbers: seeds at the optimum with Wilson's interval; measures of the method's own gradient "
        "estimator over training, mean over seeds with 95% bootstrap intervals. “–”: not measurable."
    )
    return Table("cdm_games", "Mismatch and success", caption, columns, tuple(rows), data, labels=2)


def answers(found: list[Mark], correlations: Mapping[tuple[str, str], Order | None]) -> Table | None:
    """Task by task and over all: the rank correlation of mismatch with success, and what it says."""
    if not found:
        return None
    rows, data = [], []
    for measure in MEASURES:
        mine = [(task, o) for (task, metric), o in correlations.items() if metric == measure.metric]
        estimates = [(words.name_of(task), None if o is None else o.estimate) for task, o in mine]
        there = [o for _, o in mine if o is not None]
        if len(there) > 1:
            estimates.append((f"mean of {len(there)} tasks", mean_order(there)))
        for name, e in estimates:
            text = "not estimable" if e is None else words.estimate(e, lambda x: words.value(x, 2))
            rows.append(cells([measure.axis, name, text, ANSWERS[verdict(e)]]))
            ends = (
                {"rho": None, "low": None, "high": None}
                if e is None
                else {"rho": e.value, "low": e.low, "high": e.high}
            )
            data.append({"measure": measure.metric, "task": name, **ends, "answer": ANSWERS[verdict(e)]})
    caption = (
        "Spearman's rank correlation over methods of mismatch (teammate share; cosine turned round) with the share of "
        "seeds at the optimum, 95% bootstrap interval over seeds: −1, the less mismatch the more success. It orders "
        f"these methods and speaks of no others. Not estimable: fewer than {MIN_METHODS} methods measured with 3 "
        "seeds, or all alike."
    )
    columns = ("Mismatch", "Task", "Rank correlation", "Does low mismatch go with success?")
    return Table("cdm_answers", "Does low mismatch go with success?", caption, columns, tuple(rows),
                 pd.DataFrame(data), labels=2)  # fmt: skip


# -- in words --------------------------------------------------------------------------------------------------------


def sentences(found: list[Mark], correlations: Mapping[tuple[str, str], Order | None]) -> list[str]:
    """One sentence a measure; then, task by task, who had least mismatch and who succeeded most."""
    said = []
    for measure in MEASURES:
        there = {t: o for (t, metric), o in correlations.items() if metric == measure.metric and o is not None}
        if there:
            said.append(_answer(measure, there))
    said += [text for task in dict.fromkeys(m.task for m in found) if (text := _extremes(task, found))]
    return said


def _answer(measure: Measure, there: Mapping[str, Order]) -> str:
    whole = mean_order(list(there.values()))
    assert whole is not None
    by_answer: dict[str, list[str]] = {}
    for task, o in there.items():
        by_answer.setdefault(ANSWERS[verdict(o.estimate)], []).append(words.name_of(task))
    parts = "; ".join(f"{answer} on {words.join(tasks)}" for answer, tasks in sorted(by_answer.items()))
    tasks = "1 task" if len(there) == 1 else f"the mean of {len(there)} tasks"
    return (
        f"Does low mismatch ({measure.low}) go with success? {ANSWERS[verdict(whole)].capitalize()}: rank correlation "
        f"of mismatch with the share of seeds at the optimum {words.estimate(whole, lambda x: words.value(x, 2))}, "
        f"{tasks}. Task by task: {parts}."
    )


def _extremes(task: str, found: list[Mark]) -> str:
    """By the first measure that two methods have."""
    for measure in MEASURES:
        mine = [m for m in found if m.task == task and np.isfinite(m.values[measure.metric]).any()]
        if len(mine) < 2:
            continue
        mean = {m.algorithm: float(np.nanmean(m.values[measure.metric])) for m in mine}
        least = min(mine, key=lambda m: measure.sign * mean[m.algorithm])
        most = max(mine, key=lambda m: m.success.mean())
        best = [m for m in mine if m.success.mean() == most.success.mean()]
        name = words.name_of(task)
        if not most.success.any():
            return f"On {name} no seed of any method ended at the optimum."
        winners = words.join([m.algorithm for m in best])
        return (
            f"On {name} {least.algorithm} has least mismatch ({measure.axis} {words.short(mean[least.algorithm])}) and "
            f"{_of(least)} seeds at the optimum; most seeds there: {winners} ({_of(most)})."
        )
    return ""


def _of(mark: Mark) -> str:
    return f"{int(mark.success.sum())} of {len(mark.success)}"
