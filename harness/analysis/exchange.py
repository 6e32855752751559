"""Results in the formats of other tools (marl-eval's JSON, rliable's matrices, one tidy table), and as an archive."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from harness import archive
from harness.analysis import guards
from harness.analysis.curves import align
from harness.analysis.scores import Run, Scores, TaskInfo, from_results
from harness.errors import UserError, unknown
from harness.store import Results, load

NOT_METRICS = ("trial", "env_steps", "episode", "length")
IDENTITY = ("experiment", "suite", "task", "algorithm", "seed", "engine")


def export(
    paths: Sequence[Path | str], kind: str, out: Path, engine: str | None = None,
    say: Callable[[str], object] = lambda text: None,
) -> Path:  # fmt: skip
    """Write the complete trials at or below ``paths`` to ``out`` as ``kind``, one of ``EXPORTS``.

    The guards of the report apply: what may not be pooled is refused (``UserError``); what they leave out is left out;
    ``say`` hears their warnings.
    """
    if kind not in EXPORTS:
        raise unknown("format", kind, EXPORTS)
    results = [load(p) for p in paths]
    scores = guards.guard(from_results(results), engine=engine)
    for notice in scores.notices:
        if notice.level == "warning":
            say(notice.text)
    out.parent.mkdir(parents=True, exist_ok=True)
    EXPORTS[kind](results, scores, out)
    return out


# -- one tidy table --------------------------------------------------------------------------------------------------


def tidy(results: Sequence[Results], scores: Scores) -> pd.DataFrame:
    """One row an episode: identity, metric, low, high, split (eval | final), env_steps, episode, values."""
    about = {}
    tasks = {t.key: t for t in scores.tasks}
    for run in scores.all_runs():
        task = tasks[run.task]
        identity = {k: run.record.get(k) for k in IDENTITY}
        about[run.trial] = {**identity, "metric": task.metric, "low": task.low, "high": task.high}
    parts = []
    for part in results:
        for split, table in (("eval", part.evaluations), ("final", part.final)):
            mine = table[table["trial"].isin(list(about))]
            if len(mine):
                parts.append(mine.assign(split=split))
    if not parts:
        raise UserError("nothing to export: no evaluations")
    rows = pd.concat(parts, ignore_index=True)
    who = pd.DataFrame.from_dict(about, orient="index").rename_axis("trial").reset_index()
    merged: pd.DataFrame = who.merge(rows, on="trial", how="inner").drop(columns="trial")
    first = [*who.columns[1:], "split", "env_steps", "episode"]
    return merged.loc[:, [*first, *(c for c in merged.columns if c not in first)]]


def _csv(results: Sequence[Results], scores: Scores, out: Path) -> None:
    tidy(results, scores).to_csv(out, index=False)


def _parquet(results: Sequence[Results], scores: Scores, out: Path) -> None:
    tidy(results, scores).to_parquet(out, index=False)


# -- marl-eval -------------------------------------------------------------------------------------------------------


def _marl_eval(results: Sequence[Results], scores: Scores, out: Path) -> None:
    """environment -> task -> algorithm -> seed_k -> step_i -> {step_count, elapsed_time, metric: values of episodes}.

    marl-eval takes runs with the same points alone: each task is cut to the steps that all its runs have. Where budgets
    differ there are no absolute metrics: they would be those of different budgets.
    """
    tables = [(_by(p.evaluations, ["trial", "env_steps"]), _by(p.final, ["trial"])) for p in results]
    tree: dict[str, Any] = {}
    for task in scores.tasks:
        runs = [r for a in scores.present(task) for r in scores.cell(a, task)]
        common = sorted(set.intersection(*(set(r.steps.tolist()) for r in runs)))
        for run in runs:
            points: dict[str, Any] = {}
            for i, step in enumerate(common):
                where = int(np.searchsorted(run.steps, step))
                seconds = {} if run.seconds is None else {"elapsed_time": float(run.seconds[where])}
                points[f"step_{i}"] = {"step_count": step, **seconds, **_lists(tables, 0, (run.trial, step))}
            final = _lists(tables, 1, (run.trial,))
            if final and scores.common_step(task) is None:
                points["absolute_metrics"] = final
            where_task = tree.setdefault(task.suite, {}).setdefault(task.name, {})
            where_task.setdefault(run.algorithm, {})[f"seed_{run.seed}"] = points
    out.write_text(json.dumps(tree))


def _by(table: pd.DataFrame, keys: list[str]) -> dict[tuple[Any, ...], pd.DataFrame]:
    return {} if table.empty else {tuple(k): part for k, part in table.groupby(keys, sort=False)}


def _lists(tables: Sequence[tuple[Any, Any]], which: int, key: tuple[Any, ...]) -> dict[str, list[float]]:
    """Values of every metric at ``key``, an episode each."""
    for pair in tables:
        part = pair[which].get(key)
        if part is not None:
            return {c: part[c].tolist() for c in part.columns if c not in NOT_METRICS and part[c].notna().all()}
    return {}


# -- rliable ---------------------------------------------------------------------------------------------------------


def matrices(scores: Scores) -> dict[str, np.ndarray[Any, Any]]:
    """``score/<method>`` [seeds, tasks], ``curve/<method>`` [seeds, tasks, points], both normalised; ``tasks``, and
    ``steps`` [tasks, points].

    Takes the tasks that all methods have and, of a method, the seeds that it has on all of them. Scores are the
    absolute metric, or where budgets differ on a task the last evaluation that all runs share. Curves hold the steps
    that all runs on a task have; there are none where tasks have different numbers of them. Raises ``UserError`` naming
    a method that has no such seed, or a suite whose tasks ran on different engines.
    """
    tasks = [t for t in scores.tasks if len(scores.present(t)) == len(scores.algorithms)]
    if not tasks:
        raise UserError("rliable: no task that every method has runs on")
    for suite, known in guards.engines_over_tasks(scores).items():
        raise UserError(f"rliable: tasks of {suite} ran on different engines ({guards.names(known)}); choose --engine")
    found: dict[str, np.ndarray[Any, Any]] = {"tasks": np.array([t.key for t in tasks])}
    shared = [align([r for a in scores.algorithms for r in scores.cell(a, t)])[0] for t in tasks]
    alike = len({len(steps) for steps in shared}) == 1 and len(shared[0]) > 0
    if alike:
        found["steps"] = np.stack(shared)
    for a in scores.algorithms:
        cells = [{r.seed: r for r in scores.cell(a, t) if _score(scores, t, r) is not None} for t in tasks]
        seeds = sorted(set.intersection(*(set(c) for c in cells)))
        if not seeds:
            raise UserError(f"rliable: {a} has no seed that is complete on every task ({len(tasks)} tasks)")
        values = [[_score(scores, t, c[s]) for t, c in zip(tasks, cells)] for s in seeds]
        scale = np.array([[t.low, t.high] for t in tasks])
        found[f"score/{a}"] = (np.array(values, float) - scale[:, 0]) / (scale[:, 1] - scale[:, 0])
        if alike:
            curves = [
                np.array([t.normalise(c[s].values[np.searchsorted(c[s].steps, steps)]) for s in seeds])
                for t, c, steps in zip(tasks, cells, shared)
            ]
            found[f"curve/{a}"] = np.stack(curves, 1)
    return found


def _score(scores: Scores, task: TaskInfo, run: Run) -> float | None:
    """The absolute metric; the last evaluation up to the common step where budgets differ."""
    common = scores.common_step(task)
    return run.final if common is None else run.until(common).last


def _rliable(_: Sequence[Results], scores: Scores, out: Path) -> None:
    with out.open("wb") as file:
        np.savez_compressed(file, **matrices(scores))  # type: ignore[arg-type]


# -- whole experiments -----------------------------------------------------------------------------------------------


def _archive(results: Sequence[Results], scores: Scores, out: Path) -> None:
    """Everything measured of the trials that a report reads, as a folder that the harness reads again."""
    kept = {run.trial for run in scores.all_runs()}

    def joined(name: str) -> pd.DataFrame:
        whole: pd.DataFrame = pd.concat([getattr(r, name) for r in results], ignore_index=True)
        return whole.loc[whole["trial"].isin(list(kept))]

    tables = {f.name: joined(f.name) for f in fields(Results) if f.name not in ("trials", "damaged")}
    archive.write(joined("trials"), tables, out)


EXPORTS: Mapping[str, Callable[[Sequence[Results], Scores, Path], None]] = {
    "marl-eval": _marl_eval,
    "rliable": _rliable,
    "csv": _csv,
    "parquet": _parquet,
    "archive": _archive,
}
SUFFIX = {"marl-eval": ".json", "rliable": ".npz", "csv": ".csv", "parquet": ".parquet", "archive": ""}
