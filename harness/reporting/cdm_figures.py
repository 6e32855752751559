"""Figures of the CDM section: the perturbation curve, diagnostics over training, and CDM against success."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from harness.analysis.curves import curve, mean_interval
from harness.analysis.study import Study
from harness.cdm.definitions import EPSILONS, diagnostic
from harness.reporting.figures import Drawing, Panel, line
from harness.reporting.style import MUTED, Look, steps_axis

TRAINED: tuple[str, ...] = ("own/teammate_share", "joint/teammate_share", "joint/gap_share")
"""Drawn against training."""
AGAINST: tuple[str, ...] = (
    "own/teammate_share",
    "joint/teammate_share",
    "joint/gap_share",
    "own/cosine@1.0",
    "own/snr",
)
"""Drawn against success."""
ESTIMATOR_NAMES = {"own": "own estimator", "joint": "Q_tot", "true": "true Q"}


def perturbation(study: Study, at_end: pd.DataFrame, look: Mapping[str, Look]) -> Drawing | None:
    """Cosine of each agent's expected gradient against eps: the picture of CDM. One panel a task and estimator."""
    panels, rows = [], []
    names = [str(e) for e in EPSILONS]
    for task in sorted(at_end["task"].unique()):
        for estimator in ("own", "joint"):
            found = {}
            for a in study.algorithms:
                table = _points(study, at_end, task, a, [f"{estimator}/cosine@{e}" for e in names])
                if len(table) > 1:
                    found[a] = table
                    rows.append(table.assign(task=task, estimator=estimator, algorithm=a))
            if found:
                title = f"{task.rpartition('/')[2]}: {ESTIMATOR_NAMES[estimator]}"
                panels.append(Panel(title, _perturbation_panel(found, look, names)))
    if not panels:
        return None
    caption = (
        "Cosine between each agent's expected gradient with its teammates at (1−ε)π + ε uniform and with its teammates "
        "at π, over all agents and states, at each seed's last diagnosed point; “greedy”: teammates play their "
        "likeliest action. Bands are 95% bootstrap intervals over seeds. 1: an agent is told the same whatever its "
        "teammates do; below 0: it is told the opposite."
    )
    return Drawing(
        "cdm_perturbation", "Teammate perturbation", caption, tuple(panels), pd.concat(rows), _legend(look, rows)
    )


def _points(study: Study, at_end: pd.DataFrame, task: str, algorithm: str, metrics: list[str]) -> pd.DataFrame:
    """x, metric, value, low, high: one row a metric that has values."""
    rows = []
    mine = at_end[(at_end["task"] == task) & (at_end["algorithm"] == algorithm)]
    for x, metric in enumerate(metrics):
        values = mine.loc[mine["metric"] == metric, "value"].dropna().to_numpy(float)
        if len(values):
            e = mean_interval(values, resamples=study.options.resamples, seed=study.options.seed)
            low, high = (e.value, e.value) if e.low is None else (e.low, e.high)
            rows.append({"x": x, "metric": metric, "value": e.value, "low": low, "high": high, "seeds": len(values)})
    return pd.DataFrame(rows)


def _perturbation_panel(found: Mapping[str, pd.DataFrame], look: Mapping[str, Look], names: list[str]) -> Any:
    def draw(axes: Axes) -> None:
        axes.axhline(0, color=MUTED, linewidth=0.8, linestyle=(0, (2, 2)), zorder=1)
        for a, table in found.items():
            x, value, low, high = (table[k].to_numpy(float) for k in ("x", "value", "low", "high"))
            line(axes, look[a], x, value, low, high, markers=len(names))
        axes.set_xticks(range(len(names)), names)
        axes.set_ylim(-1.05, 1.05)
        axes.set_xlabel("ε of the teammates")
        axes.set_ylabel("cosine")

    return draw


def over_training(study: Study, look: Mapping[str, Look]) -> Drawing | None:
    """Teammate share and gap against environment steps; one panel a task and measure."""
    panels, rows = [], []
    for task in sorted(study.cdm["task"].unique()):
        for metric in TRAINED:
            part = study.cdm[(study.cdm["task"] == task) & (study.cdm["metric"] == metric)]
            found = {}
            for a in study.algorithms:
                wide = part[part["algorithm"] == a].pivot_table(index="seed", columns="env_steps", values="value")
                wide = wide.dropna(axis=1)
                if wide.shape[1] > 1:
                    c = curve(wide.columns.to_numpy(float), wide.to_numpy(float), seed=study.options.seed)
                    found[a] = c
                    columns = {"env_steps": c.x, "value": c.value, "low": c.low, "high": c.high}
                    rows.append(pd.DataFrame(columns).assign(task=task, metric=metric, algorithm=a))
            if found:
                panels.append(Panel(f"{str(task).rpartition('/')[2]}: {_label(metric)}", _training_panel(found, look)))
    if not panels:
        return None
    caption = (
        "Mean over seeds at the points of training where all of them were measured, with 95% bootstrap bands. Share: "
        "the teammates' part of the gradient's variance at a given state. Gap: what averaging over them would save."
    )
    return Drawing("cdm_training", "CDM over training", caption, tuple(panels), pd.concat(rows), _legend(look, rows))


def _training_panel(found: Mapping[str, Any], look: Mapping[str, Look]) -> Callable[[Axes], None]:
    def draw(axes: Axes) -> None:
        for a, c in found.items():
            line(axes, look[a], c.x, c.value, c.low, c.high)
        axes.margins(x=0.01)
        steps_axis(axes, "environment steps")

    return draw


def joined(over: pd.DataFrame, success: pd.DataFrame, metric: str) -> pd.DataFrame:
    """task, algorithm, value (mean over training and seeds), optimal_share with its interval."""
    if success.empty:
        return pd.DataFrame()
    chosen = over[over["metric"] == metric].groupby(["task", "algorithm"], as_index=False)["value"].mean()
    return pd.DataFrame(chosen.merge(success, on=["task", "algorithm"]).dropna(subset=["value"]))


def against_success(over: pd.DataFrame, success: pd.DataFrame, look: Mapping[str, Look]) -> Drawing | None:
    """Each measure against the share of seeds at the optimum, one mark a task and method."""
    panels, rows = [], []
    for metric in AGAINST:
        table = joined(over, success, metric)
        if len(table) > 1:
            panels.append(Panel(_label(metric), _success_panel(table, look)))
            rows.append(table.assign(metric=metric))
    if not panels:
        return None
    caption = (
        "One mark a task and method: the diagnostic's mean over training and seeds against the share of seeds whose "
        "greedy play ended at the optimum, with Wilson's 95% interval."
    )
    return Drawing("cdm_success", "CDM and success", caption, tuple(panels), pd.concat(rows), _legend(look, rows))


def _success_panel(table: pd.DataFrame, look: Mapping[str, Look]) -> Callable[[Axes], None]:
    def draw(axes: Axes) -> None:
        for r in table.to_dict("records"):
            style = look[r["algorithm"]]
            axes.plot(
                [r["value"]] * 2, [r["optimal_low"], r["optimal_high"]], color=style.colour, linewidth=1, alpha=0.4
            )
            axes.plot([r["value"]], [r["optimal_share"]], color=style.colour, marker=style.marker, linestyle="none")
        axes.set_ylim(-0.04, 1.04)
        axes.set_ylabel("seeds at the optimum")
        spread = np.ptp(table["value"].to_numpy(float))
        axes.margins(x=0.08 if spread > 0 else 0.5)

    return draw


def _label(metric: str) -> str:
    estimator, _, _ = metric.partition("/")
    what = diagnostic(metric)
    titles = {"Teammate share of the gradient's variance": "teammate share", "Centralised-decentralised gap": "gap"}
    title = metric if what is None else titles.get(what.title, what.title)
    eps = metric.partition("@")[2]
    title = f"cosine at ε={float(eps):g}" if eps and "cosine" in metric else title
    return f"{title}, {ESTIMATOR_NAMES[estimator]}"


def _legend(look: Mapping[str, Look], rows: list[pd.DataFrame]) -> tuple[tuple[str, Look], ...]:
    there = {str(a) for table in rows for a in table["algorithm"].unique()}
    return tuple((a, s) for a, s in look.items() if a in there)
