"""The report's section on centralised-decentralised mismatch: ``section(study)`` gives figures, tables, sentences.

Values are those of ``cdm.csv``; what each means is in ``harness.cdm.definitions`` and docs/cdm.md. The seed is the
unit: every value is first brought to one number a seed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy import stats

from harness.analysis.bootstrap import Estimate, wilson
from harness.analysis.curves import mean_interval
from harness.analysis.study import Study
from harness.cdm.definitions import DIAGNOSTICS, ESTIMATORS, diagnostic
from harness.reporting import cdm_figures, cdm_games, words
from harness.reporting.figures import Drawing
from harness.reporting.style import looks
from harness.reporting.tables import Table, cells

COLUMNS: Mapping[str, str] = {
    "own/teammate_share": "T/(T+O), own",
    "joint/teammate_share": "T/(T+O), Q_tot",
    "joint/gap_share": "Gap, Q_tot",
    "own/cosine@1.0": "Cosine at ε=1, own",
    "joint/cosine@1.0": "Cosine at ε=1, Q_tot",
    "own/snr": "SNR, own",
    "igm/violation": "IGM violations",
    "representation/error": "Repr. error",
    "degradation/uniform": "Drop, one uniform",
    "amplification/factor": "Amplification",
}
"""Of the main table."""


class Section(NamedTuple):
    """What the report shows of CDM; all empty where nothing was diagnosed."""

    drawings: tuple[Drawing, ...]
    tables: tuple[Table, ...]
    sentences: tuple[str, ...]


def section(study: Study) -> Section:
    """Figures, tables and a plain-words reading of the diagnostics in ``study``."""
    if study.cdm.empty:
        return Section((), (), ())
    look = looks(study.algorithms)
    at_end, over_training = last(study.cdm), averaged(study.cdm)
    success, marks = outcomes(at_end), cdm_games.marks(study, over_training, at_end)
    orders, numbers = cdm_games.orders(study, marks), cdm_games.numbers(study, marks)
    drawings = (
        cdm_games.drawing(numbers, look),
        cdm_figures.perturbation(study, at_end, look),
        cdm_figures.over_training(study, look),
        cdm_figures.against_success(over_training, success, look),
    )
    tables = (
        cdm_games.answers(marks, orders),
        cdm_games.table(numbers),
        measures(study, at_end),
        ends(success),
        missing(study),
    )
    answered = cdm_games.sentences(marks, orders)
    return Section(
        tuple(d for d in drawings if d is not None),
        tuple(t for t in tables if t is not None),
        (*answered, *sentences(study, over_training, () if answered else correlation(over_training, success))),
    )


# -- one number a seed ----------------------------------------------------------------------------------------------


def last(table: pd.DataFrame) -> pd.DataFrame:
    """Each seed's value at its last diagnosed point."""
    keys = ["task", "metric", "algorithm", "seed"]
    return table.sort_values("env_steps", kind="stable").groupby(keys, as_index=False).last()


def averaged(table: pd.DataFrame) -> pd.DataFrame:
    """Each seed's mean over its diagnosed points: at the end gradients, and CDM with them, have vanished."""
    keys = ["task", "metric", "algorithm", "seed"]
    return pd.DataFrame(table.groupby(keys)["value"].mean().reset_index())


def over_seeds(study: Study, table: pd.DataFrame, task: str, metric: str, algorithm: str) -> Estimate | None:
    """Mean over seeds with its interval; None where there is no value."""
    chosen = table[(table["task"] == task) & (table["metric"] == metric) & (table["algorithm"] == algorithm)]
    values = chosen["value"].dropna().to_numpy(float)
    if not len(values):
        return None
    return mean_interval(values, resamples=study.options.resamples, seed=study.options.seed)


def outcomes(at_end: pd.DataFrame) -> pd.DataFrame:
    """task, algorithm, seeds, optimal, shadowed: counts of seeds where greedy play ended, Wilson's intervals beside."""
    rows = []
    chosen = at_end[at_end["metric"].isin(["ends/optimal", "ends/shadowed"])]
    for (task, algorithm), part in chosen.groupby(["task", "algorithm"], sort=True):
        wide = part.pivot_table(index="seed", columns="metric", values="value").dropna()
        counts = {k: int((wide[f"ends/{k}"] > 0.5).sum()) for k in ("optimal", "shadowed") if f"ends/{k}" in wide}
        if len(counts) < 2 or wide.empty:
            continue
        row: dict[str, Any] = {"task": task, "algorithm": algorithm, "seeds": len(wide)}
        for kind, count in counts.items():
            low, high = wilson(count, len(wide))
            row |= {kind: count, f"{kind}_share": count / len(wide), f"{kind}_low": low, f"{kind}_high": high}
        rows.append(row)
    return pd.DataFrame(rows)


# -- tables ---------------------------------------------------------------------------------------------------------


def measures(study: Study, at_end: pd.DataFrame) -> Table | None:
    """Task by method: the main diagnostics at the last diagnosed point."""
    there = [m for m in COLUMNS if m in set(at_end["metric"])]
    rows, data = [], []
    for task in sorted(at_end["task"].unique()):
        for a in study.algorithms:
            found = {m: over_seeds(study, at_end, task, m, a) for m in there}
            if not any(found.values()):
                continue
            texts = ["–" if e is None else words.estimate(e, words.short) for e in found.values()]
            rows.append(cells([words.name_of(task), a, *texts]))
            data += [
                {"task": task, "algorithm": a, "metric": m, "seeds": e.n, "mean": e.value, "low": e.low, "high": e.high}
                for m, e in found.items()
                if e is not None
            ]
    if not rows:
        return None
    caption = (
        "At each seed's last diagnosed point: mean over seeds with 95% bootstrap intervals. “own”: the method's own "
        "gradient estimator; “Q_tot”: the score-function gradient with its joint value. “–”: not measurable, see "
        "below. Every other diagnostic is in cdm.csv."
    )
    columns = ("Task", "Method", *(COLUMNS[m] for m in there))
    return Table("cdm", "Centralised-decentralised mismatch", caption, columns, tuple(rows), pd.DataFrame(data), 2)


def ends(success: pd.DataFrame) -> Table | None:
    """Relative overgeneralisation: where the seeds ended."""
    if success.empty:
        return None
    rows = []
    for r in success.to_dict("records"):
        texts = [
            words.share(r[kind], r["seeds"], r[f"{kind}_low"], r[f"{kind}_high"]) for kind in ("optimal", "shadowed")
        ]
        rows.append(cells([words.name_of(r["task"]), r["algorithm"], *texts]))
    caption = (
        "Seeds whose greedy joint action ended at the optimum, and at a shadowed equilibrium (not optimal, yet no "
        "agent alone can gain: relative overgeneralisation), with Wilson's 95% intervals."
    )
    columns = ("Task", "Method", "At the optimum", "At a shadowed equilibrium")
    return Table("cdm_ends", "Relative overgeneralisation", caption, columns, tuple(rows), success, labels=2)


def missing(study: Study) -> Table | None:
    """What was not measured, and why, once a method and reason."""
    found: dict[tuple[str, str, str], set[str]] = {}
    for run in study.scores.all_runs():
        notes = (run.record.get("cdm") or {}).get("missing") or {}
        for metric, why in notes.items():
            found.setdefault((run.task, run.algorithm, str(why)), set()).add(str(metric))
    if not found:
        return None
    rows, data = [], []
    for (task, a, why), metrics in sorted(found.items()):
        listed = ", ".join(sorted(metrics)[:6]) + (" …" if len(metrics) > 6 else "")
        rows.append(cells([words.name_of(task), a, listed, why]))
        data.append({"task": task, "algorithm": a, "metrics": " ".join(sorted(metrics)), "reason": why})
    caption = "A method is measured through what it offers; these diagnostics it, or its task, does not allow."
    return Table("cdm_missing", "Not measured", caption, ("Task", "Method", "What", "Why"), tuple(rows),
                 pd.DataFrame(data), labels=4)  # fmt: skip


# -- in words -------------------------------------------------------------------------------------------------------


def sentences(study: Study, over: pd.DataFrame, related: Sequence[str]) -> list[str]:
    """What the numbers say, diagnostic by diagnostic: first what is measured, then which methods lie where, what is
    ``related`` to what, and the cost."""
    said = [f"{sources(study)}Own estimator: {ESTIMATORS['own']}; Q_tot: {ESTIMATORS['joint']}."]
    for metric in (*COLUMNS, "igm/policy_violation"):
        ranked = _ranked(over, metric)
        what = diagnostic(metric)
        if what is None or not ranked:
            continue
        title = what.title + (f" ({metric.partition('/')[0]})" if metric.partition("/")[0] in ESTIMATORS else "")
        ends_of = [f"{a} {words.short(v)}" for a, v in ranked]
        low_high = ends_of[0] if len(ranked) == 1 else f"lowest {ends_of[0]}, highest {ends_of[-1]}"
        if ranked[0][1] == ranked[-1][1]:
            low_high = f"{words.short(ranked[0][1])} for {words.join([a for a, _ in ranked])}"
        said.append(f"{title}: {low_high} (mean over training, seeds and the tasks all have it on). {what.reading}")
    said += related
    costs = cost(study)
    return [*said, costs] if costs else said


def _ranked(over: pd.DataFrame, metric: str) -> list[tuple[str, float]]:
    """Methods in order of their mean over the tasks that all of them have a value on."""
    chosen = over[over["metric"] == metric]
    wide = chosen.pivot_table(index="task", columns="algorithm", values="value").dropna()
    return sorted(((str(a), float(v)) for a, v in wide.mean().items()), key=lambda item: item[1])


def sources(study: Study) -> str:
    """Which policy was diagnosed."""
    found: dict[str, set[str]] = {}
    for run in study.scores.all_runs():
        policy = ((run.record.get("cdm") or {}).get("about") or {}).get("policy")
        if policy:
            found.setdefault(str(policy), set()).add(run.algorithm)
    return "".join(f"Policy diagnosed for {words.join(sorted(names))}: {p}. " for p, names in sorted(found.items()))


def correlation(over: pd.DataFrame, success: pd.DataFrame) -> list[str]:
    """Whether low CDM goes with success: Spearman's rank correlation over (task, method) pairs, for each measure."""
    said = []
    for metric in cdm_figures.AGAINST:
        table = cdm_figures.joined(over, success, metric)
        if len(table) < 5 or table["value"].nunique() < 2 or table["optimal_share"].nunique() < 2:
            continue
        rho, p = stats.spearmanr(table["value"], table["optimal_share"])
        what = DIAGNOSTICS[metric.partition("/")[2].partition("@")[0]]
        verdict = "a high value goes with success" if rho > 0 else "a high value goes with failure"
        said.append(
            f"{what.title} ({metric.partition('/')[0]}) against the share of seeds at the optimum, over {len(table)} "
            f"pairs of task and method: Spearman's ρ = {words.value(float(rho), 2)} (p {words.p_value(float(p))}): "
            + ("no clear relation." if p >= 0.05 else f"{verdict}.")
        )
    return said


def cost(study: Study) -> str:
    """Wall time of measuring, a trial."""
    found = [(run.record.get("cdm") or {}).get("seconds") for run in study.scores.all_runs()]
    times = [float(x) for x in found if isinstance(x, int | float)]
    return f"Measuring took {words.seconds(float(np.median(times)))} a trial (median)." if times else ""
