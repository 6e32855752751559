"""The report's figures, from a study."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from harness.analysis.curves import Curve
from harness.analysis.scores import TaskInfo
from harness.analysis.study import Study
from harness.reporting.figures import Drawing, Panel, dots, line, matrix, name_axis, span
from harness.reporting.style import GRID, INK, MUTED, PAPER, Look, looks, steps_axis

AGGREGATES = {
    "iqm": "IQM (higher is better)",
    "median": "Median (higher is better)",
    "mean": "Mean (higher is better)",
    "optimality_gap": "Optimality gap (lower is better)",
}
STATISTIC = {"mean": "Mean", "iqm": "IQM", "median": "Median"}


def drawings(study: Study) -> dict[str, Drawing]:
    """All figures that the study has data for, by name."""
    look = looks(study.algorithms)
    made: list[Drawing | None] = [learning_curves(study, look), final_scores(study, look)]
    if study.overall is not None:
        made += [aggregates(study, look), profiles(study, look), progress(study, look), improvement(study)]
        made.append(ranks(study, look))
    return {d.name: d for d in made if d is not None}


def _span_of(task: TaskInfo, values: Iterable[float]) -> tuple[float, float]:
    """Limits of an axis of the metric: the bounds where they are near the values, else the values."""
    found = [v for v in values if np.isfinite(v)]
    low, high = (min(found), max(found)) if found else (task.low, task.high)
    width = task.high - task.low
    if high - low > 0.25 * width or task.metric != "return":
        low, high = min(low, task.low), max(high, task.high)
    margin = 0.04 * (high - low or 1.0)
    return low - margin, high + margin


def _reference_lines(axes: Axes, task: TaskInfo, limits: tuple[float, float]) -> None:
    """Known values beside the curves, named at the right edge, where curves have left the ground.

    A name that would lie over the one below it stands to its left.
    """
    height, below, right = limits[1] - limits[0], -1.0, 3.0
    for name, value in sorted(task.references.items(), key=lambda item: item[1]):
        if limits[0] <= value <= limits[1]:
            axes.axhline(value, color=MUTED, linewidth=0.8, linestyle=(0, (2, 2)), zorder=1)
            above = value < limits[1] - 0.1 * height
            place = (value - limits[0]) / height + (0.05 if above else -0.05)  # of the text's middle
            right = right if place - below < 0.1 else 3.0  # points from the edge
            axes.annotate(
                name, (1.0, value), xycoords=("axes fraction", "data"), xytext=(-right, 2 if above else -2),
                textcoords="offset points", ha="right", va="bottom" if above else "top", fontsize=7, color=MUTED,
                bbox={"facecolor": PAPER, "alpha": 0.7, "pad": 0.8, "linewidth": 0}, zorder=5,
            )  # fmt: skip
            below, right = place, right + 6.0 + 3.9 * len(name)


def learning_curves(study: Study, look: Mapping[str, Look]) -> Drawing | None:
    """Small multiples by task."""
    panels, rows = [], []
    for task in study.tasks:
        found = {a: study.curves[a, task.key] for a in study.algorithms if (a, task.key) in study.curves}
        if found:
            panels.append(Panel(task.name, _curve_panel(task, found, look, _cut(study, task)), _size(study)))
        for a, c in found.items():
            rows.append(_curve_rows(c, "env_steps", task=task.key, algorithm=a))
    if not panels:
        return None
    kind = STATISTIC[study.options.statistic]
    caption = (
        f"{kind} over seeds of greedy evaluations during training; bands are 95% bootstrap intervals over seeds, "
        "pointwise. No smoothing."
    )
    if any(_cut(study, t) is not None for t in study.tasks):
        caption += " Upright line: the common step, at which methods of different budgets are compared."
    return Drawing("learning_curves", "Learning curves", caption, tuple(panels), pd.concat(rows), tuple(look.items()))


def _size(study: Study) -> tuple[float, float]:
    """Few tasks have larger panels."""
    return (4.2, 2.9) if len(study.tasks) <= 2 else (3.4, 2.5)


def _cut(study: Study, task: TaskInfo) -> float | None:
    """Environment steps at which ``task``'s methods are compared, where some were trained for longer."""
    end = study.end(task)
    longest = max((c.x[-1] for (_, key), c in study.curves.items() if key == task.key), default=0.0)
    return end.at if end.axis == "env_steps" and end.at is not None and end.at < 0.98 * longest else None


def _curve_panel(task: TaskInfo, found: Mapping[str, Curve], look: Mapping[str, Look], cut: float | None) -> Any:
    ends = [v for c in found.values() for part in (c.value, c.low, c.high) if part is not None for v in part]
    limits = _span_of(task, ends)

    def draw(axes: Axes) -> None:
        _reference_lines(axes, task, limits)
        if cut is not None:
            axes.axvline(cut, color=INK, linewidth=0.9, zorder=2)
        for a, c in found.items():
            line(axes, look[a], c.x, c.value, c.low, c.high)
        axes.set_ylim(*limits)
        axes.set_ylabel(task.label)
        axes.margins(x=0.01)
        steps_axis(axes, "environment steps")

    return draw


def _curve_rows(c: Curve, x: str, **names: str) -> pd.DataFrame:
    low, high = (np.full(len(c.x), np.nan) if v is None else v for v in (c.low, c.high))
    return pd.DataFrame({**names, x: c.x, "value": c.value, "low": low, "high": high, "seeds": c.seeds})


def final_scores(study: Study, look: Mapping[str, Look]) -> Drawing:
    """Each task's endpoint: mean, interval and every seed."""
    panels, rows = [], []
    for end in study.endpoints:
        names = [a for a in study.algorithms if a in end.values]
        panels.append(Panel(end.task.name, _final_panel(study, end.task, names, look), _tall(study, len(names))))
        for a in names:
            e = study.finals[a, end.task.key]["mean"]
            ends = {"task": end.task.key, "algorithm": a, "mean": e.value, "low": e.low, "high": e.high, "seeds": e.n}
            rows.append({**ends, "values": " ".join(repr(float(v)) for v in end.values[a])})
    caption = "Mean with its 95% interval (bar) and every seed (ticks below it). " + basis(study)
    return Drawing("final_scores", "Final scores", caption, tuple(panels), pd.DataFrame(rows))


def basis(study: Study) -> str:
    """What the final scores are, in words; one sentence where all tasks have the same."""
    found = {e.basis: [] for e in study.endpoints}  # type: dict[str, list[str]]
    for e in study.endpoints:
        found[e.basis].append(e.task.name)
    if len(found) == 1:
        return f"{next(iter(found)).capitalize()}."
    return " ".join(f"{', '.join(tasks)}: {words}." for words, tasks in found.items())


def _tall(study: Study, rows: int) -> tuple[float, float]:
    return _size(study)[0], 0.95 + 0.34 * rows


def _final_panel(study: Study, task: TaskInfo, names: Sequence[str], look: Mapping[str, Look]) -> Any:
    end = study.end(task)

    def draw(axes: Axes) -> None:
        seen: list[float] = []
        for y, a in enumerate(names):
            e = study.finals[a, task.key]["mean"]
            span(axes, look[a], y, e.value, e.low, e.high)
            dots(axes, look[a], y, end.values[a])
            seen += [*end.values[a].tolist()]
        name_axis(axes, names)
        axes.set_xlim(*_span_of(task, seen))
        axes.set_xlabel(task.label)

    return draw


# -- over tasks ------------------------------------------------------------------------------------------------------


def aggregates(study: Study, look: Mapping[str, Look]) -> Drawing:
    """IQM, median, mean and optimality gap of normalised scores."""
    whole = study.overall
    assert whole is not None

    def panel(statistic: str) -> Panel:
        def draw(axes: Axes) -> None:
            for y, a in enumerate(whole.algorithms):
                e = whole.aggregates[a][statistic]
                span(axes, look[a], y, e.value, e.low, e.high)
            name_axis(axes, whole.algorithms)
            axes.set_xlabel("normalised score" if statistic != "optimality_gap" else "missing to 1")
            axes.margins(x=0.08)

        return Panel(AGGREGATES[statistic], draw, (4.2, 1.0 + 0.3 * len(whole.algorithms)))

    rows = [
        {"algorithm": a, "statistic": s, "value": e.value, "low": e.low, "high": e.high, "seeds": e.n}
        for a, found in whole.aggregates.items()
        for s, e in found.items()
    ]
    caption = (
        f"Over {len(whole.tasks)} tasks, scores normalised by the bounds that the suite declares. Bars are 95% "
        "bootstrap intervals, stratified by task."
    )
    panels = tuple(panel(s) for s in AGGREGATES)
    return Drawing("aggregate", "Aggregate scores", caption, panels, pd.DataFrame(rows), columns=2)


def profiles(study: Study, look: Mapping[str, Look]) -> Drawing:
    """Share of runs above each score."""

    def draw(axes: Axes) -> None:
        for a, c in study.profiles.items():
            line(axes, look[a], c.x, c.value, c.low, c.high)
        axes.set_ylim(-0.02, 1.02)
        axes.margins(x=0.01)
        axes.set_xlabel("normalised score τ")
        axes.set_ylabel("share of runs above τ")

    rows = pd.concat([_curve_rows(c, "tau", algorithm=a) for a, c in study.profiles.items()])
    caption = "Share of runs (every seed of every task, tasks weighing the same) with a score above τ, with 95% bands."
    panels = (Panel("Performance profile", draw, (4.4, 3.0)),)
    return Drawing("performance_profile", "Performance profile", caption, panels, rows, tuple(look.items()))


def progress(study: Study, look: Mapping[str, Look]) -> Drawing | None:
    """IQM over tasks against the share of the budget."""
    if not study.progress:
        return None

    def draw(axes: Axes) -> None:
        for a, c in study.progress.items():
            line(axes, look[a], c.x, c.value, c.low, c.high)
        axes.margins(x=0.01)
        axes.set_xlabel("share of the common budget (%)")
        axes.set_ylabel("IQM of normalised score")

    rows = pd.concat([_curve_rows(c, "budget_percent", algorithm=a) for a, c in study.progress.items()])
    caption = "IQM over all tasks of the greedy evaluations during training, with 95% bands stratified by task."
    panels = (Panel("Sample efficiency over tasks", draw, (4.4, 3.0)),)
    return Drawing("sample_efficiency", "Sample efficiency over tasks", caption, panels, rows, tuple(look.items()))


def improvement(study: Study) -> Drawing:
    """P(row > column), the mean over tasks."""
    whole = study.overall
    assert whole is not None
    names = whole.algorithms
    cells = np.full((len(names), len(names)), np.nan)
    texts = [["" for _ in names] for _ in names]
    rows = []
    for i, a in enumerate(names):
        for j, b in enumerate(names):
            if a != b:
                e = whole.improvement[a, b]
                cells[i, j] = e.value
                texts[i][j] = f"{e.value:.2f}" + (f"\n{e.low:.2f}–{e.high:.2f}" if e.low is not None else "")
                rows.append({"a": a, "b": b, "improvement": e.value, "low": e.low, "high": e.high})
    size = 1.3 + 0.72 * len(names)
    caption = "Probability that a run of the row's method scores higher than one of the column's, with 95% intervals."
    panels = (
        Panel("P(row > column)", lambda axes: matrix(axes, names, cells, texts), (size, 0.5 + 0.55 * len(names))),
    )
    return Drawing("improvement", "Probability of improvement", caption, panels, pd.DataFrame(rows))


def ranks(study: Study, look: Mapping[str, Look]) -> Drawing | None:
    """Mean ranks with the critical difference."""
    whole = study.overall
    if whole is None or whole.ranks is None:
        return None
    found = whole.ranks
    names = sorted(found.mean_rank, key=lambda a: (found.mean_rank[a], a))
    best = found.mean_rank[names[0]]

    def draw(axes: Axes) -> None:
        axes.axvspan(best, best + found.critical_difference, color=GRID, alpha=0.6, linewidth=0)
        for y, a in enumerate(names):
            span(axes, look[a], y, found.mean_rank[a], None, None)
        name_axis(axes, names)
        axes.set_xlim(0.8, max(len(names), best + found.critical_difference) + 0.2)
        axes.set_xlabel("mean rank over tasks (1 is best)")
        axes.axvline(best, color=INK, linewidth=0.6)

    rows = pd.DataFrame([{"algorithm": a, "mean_rank": found.mean_rank[a]} for a in names])
    caption = (
        f"Friedman test over {found.tasks} tasks: p = {found.friedman_p:.3g}. Methods inside the shaded width "
        f"(Nemenyi's critical difference, {found.critical_difference:.2f} ranks at 5%) cannot be told from the best."
    )
    panel = Panel("Mean ranks", draw, (4.4, 0.9 + 0.28 * len(names)))
    return Drawing("ranks", "Ranks over tasks", caption, (panel,), rows)
