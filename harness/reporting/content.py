"""The report's tables, from a study."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pandas as pd

from harness.analysis import energy, success
from harness.analysis.bootstrap import wilson
from harness.analysis.curves import AXES, Axis, Reached
from harness.analysis.scores import Run, TaskInfo
from harness.analysis.study import Study
from harness.reporting import words
from harness.reporting.drawings import basis
from harness.reporting.tables import Cell, Table, cells

STATISTICS = {"mean": "Mean", "median": "Median", "iqm": "IQM"}


def tables(study: Study) -> dict[str, Table]:
    """All tables that the study has data for, by name."""
    made = [final_by_task(study), final_scores(study), solved(study), aggregates(study), pairs(study)]
    made += [reached(study, axis) for axis in study.reached]
    made += [fairness(study), seeds(study), settings(study), provenance(study)]
    return {t.name: t for t in made if t is not None}


def _form(task: TaskInfo) -> Any:
    decimals = words.digits(task)
    return lambda x: words.value(x, decimals)


def final_scores(study: Study) -> Table:
    """Task by method: seeds, mean, median and IQM of the endpoint with intervals."""
    rows, data = [], []
    for end in study.endpoints:
        form = _form(end.task)
        best = max(study.finals[a, end.task.key]["mean"].value for a in end.values)
        for a in (a for a in study.algorithms if a in end.values):
            found = study.finals[a, end.task.key]
            texts = [words.estimate(found[s], form) for s in STATISTICS]
            top = found["mean"].value == best
            rows.append(cells([end.task.name, a, len(end.values[a]), Cell(texts[0], strong=top), *texts[1:]]))
            flat = {f"{s}{part}": getattr(found[s], k) for s in STATISTICS
                    for part, k in (("", "value"), ("_low", "low"), ("_high", "high"))}  # fmt: skip
            names = {"suite": end.task.suite, "task": end.task.name, "algorithm": a, "metric": end.task.metric}
            data.append({**names, "seeds": len(end.values[a]), **flat, "basis": end.basis})
    metrics = words.join(sorted({t.label for t in study.tasks}))
    caption = (
        f"{metrics.capitalize()} with 95% intervals over seeds; the highest mean of a task is bold. {basis(study)}"
    )
    if any(d["seeds"] < 4 for d in data):
        caption += " With fewer than four seeds the IQM is the mean."
    columns = ("Task", "Method", "Seeds", *STATISTICS.values())
    return Table("final_scores", "Final scores", caption, columns, tuple(rows), pd.DataFrame(data), labels=2)


def final_by_task(study: Study) -> Table | None:
    """Task by method, the table of a paper; None for one task, or for more methods than a page holds."""
    names = study.algorithms
    if len(study.endpoints) < 2 or len(names) > 8:
        return None
    rows, data = [], []
    for end in study.endpoints:
        form = _form(end.task)
        means = {a: study.finals[a, end.task.key]["mean"] for a in names if a in end.values}
        best = max(e.value for e in means.values())
        row = [
            Cell(words.estimate(means[a], form), strong=means[a].value == best) if a in means else "–" for a in names
        ]
        rows.append(cells([end.task.name, *row]))
        data.append({"task": end.task.key, **{a: e.value for a, e in means.items()}})
    metrics = words.join(sorted({t.label for t in study.tasks}))
    caption = f"Mean {metrics} with 95% intervals over seeds; the highest of a task is bold. {basis(study)}"
    return Table("final_by_task", "Final scores by task", caption, ("Task", *names), tuple(rows), pd.DataFrame(data))


def solved(study: Study) -> Table | None:
    """Task by method: seeds that solved the task; None where none did."""
    found = success.by_task(study)
    if not any(s.reached for s in found.values()):
        return None
    rows, data = [], []
    for task in study.tasks:
        mine = {a: found[a, task.key] for a in study.algorithms if (a, task.key) in found}
        most = max(s.share for s in mine.values())
        texts = [
            Cell(words.share(*mine[a].counted), strong=0 < mine[a].share == most) if a in mine else "–"
            for a in study.algorithms
        ]
        rows.append(cells([task.name, *texts]))
        data += [
            {"suite": task.suite, "task": task.name, "algorithm": a, "solved": s.reached, "seeds": s.seeds,
             "share": s.share, "low": s.low, "high": s.high}
            for a, s in mine.items()
        ]  # fmt: skip
    caption = (
        f"Seeds whose last evaluation is within {success.NEAR:.0%} of the task's upper bound (on the scale of its "
        "declared bounds), with Wilson's 95% interval of their share; the most of a task are bold. The policy that a "
        "seed ended with counts here, not the best one on the way."
    )
    return Table("solved", "Solved", caption, ("Task", *study.algorithms), tuple(rows), pd.DataFrame(data))


def aggregates(study: Study) -> Table | None:
    """Method by statistic over tasks."""
    whole = study.overall
    if whole is None:
        return None
    names = {"iqm": "IQM", "median": "Median", "mean": "Mean", "optimality_gap": "Optimality gap"}
    best = {s: (min if s == "optimality_gap" else max)(whole.aggregates[a][s].value for a in whole.algorithms)
            for s in names}  # fmt: skip
    rows, data = [], []
    for a in whole.algorithms:
        found = whole.aggregates[a]
        rows.append(cells([a, *(Cell(words.estimate(found[s]), strong=found[s].value == best[s]) for s in names)]))
        data += [
            {"algorithm": a, "statistic": s, "value": e.value, "low": e.low, "high": e.high} for s, e in found.items()
        ]
    caption = (
        f"Normalised scores over {len(whole.tasks)} tasks with 95% bootstrap intervals, stratified by task. A lower "
        "optimality gap is better."
    )
    columns = ("Method", *names.values())
    return Table("aggregate", "Aggregate scores", caption, columns, tuple(rows), pd.DataFrame(data))


def pairs(study: Study) -> Table | None:
    """Each comparison with its tests."""
    if not study.pairs:
        return None
    rows, data = [], []
    for p in study.pairs:
        form = _form(p.task)
        verdict = {"above": f"{p.a} above", "below": f"{p.b} above"}.get(p.verdict, p.verdict)
        more = "" if p.verdict in ("above", "below") else "–" if p.more_seeds is None else f"{p.more_seeds} more"
        texts = [
            p.task.name, p.a, p.b, words.estimate(p.difference, form),
            words.estimate(p.improvement, lambda x: words.value(x, 2)),
            words.p_value(p.welch_holm), words.p_value(p.mann_whitney_holm),
            "–" if p.hedges_g is None else words.value(p.hedges_g, 2), words.value(p.cliff_delta, 2),
        ]  # fmt: skip
        rows.append(cells([*texts, Cell(verdict, strong=p.verdict in ("above", "below")), more or "–"]))
        flat = {k: v for k, v in p.__dict__.items() if k not in ("task", "difference", "improvement", "seeds")}
        ends = {
            f"{w}_{k}": getattr(getattr(p, w), k)
            for w in ("difference", "improvement")
            for k in ("value", "low", "high")
        }
        data.append(
            {"task": p.task.key, **flat, **ends, "seeds_a": p.seeds[0], "seeds_b": p.seeds[1], "verdict": p.verdict}
        )
    caption = (
        "A − B of the means with 95% intervals; P(A > B) with Newcombe's interval; p values adjusted by Holm "
        "over these "
        f"{len(rows)} comparisons; Hedges' g; Cliff's δ. Verdict at 5% of the adjusted Welch test (Mann-Whitney where "
        "neither has a spread). Seeds missing: what each method would need beyond its own to show the observed "
        "difference with 80% power (“–”: cannot be said, or over 1,000)."
    )
    columns = ("Task", "A", "B", "A − B", "P(A > B)", "Welch p", "Mann-Whitney p", "g", "δ", "Verdict", "Seeds missing")
    return Table("pairs", "Pairwise comparisons", caption, columns, tuple(rows), pd.DataFrame(data), labels=3)


EFFICIENCY: dict[Axis, tuple[str, str, Callable[[float], str]]] = {
    "env_steps": ("steps_to_score", "Environment steps to score", words.steps_text),
    "updates": ("updates_to_score", "Gradient updates to score", words.steps_text),
    "seconds": ("time_to_score", "Wall time to score", words.seconds),
    "cpu_seconds": ("cpu_time_to_score", "CPU time to score", words.seconds),
    "joules": ("energy_to_score", "Energy to score", words.joules),
}
"""Axis -> name, title and form of its numbers."""
SPENT: dict[Axis, str] = {
    "seconds": "Wall time of training, evaluations left out; other work on the machine counts in.",
    "cpu_seconds": "CPU time of training, evaluations left out, child processes included, GPUs not.",
    "joules": "Energy of training, evaluations left out: {scope}; idle power counts in.",
}
"""What the numbers of an axis consist of."""


def reached(study: Study, axis: Axis) -> Table | None:
    """Steps, time or energy to 50, 80 and 95% of the best method's score; None where nobody recorded that."""
    source, (name, title, form) = study.reached[axis], EFFICIENCY[axis]
    rows, data = [], []
    for task in study.tasks:
        methods = [a for a in study.algorithms if (a, task.key) in source]
        if not methods:
            continue
        fastest = [_fastest([source[a, task.key][i] for a in methods]) for i in range(3)]
        for a in methods:
            found = source[a, task.key]
            row = [
                Cell(_reach_text(r, form), strong=_middle(r) == fastest[i] < float("inf")) for i, r in enumerate(found)
            ]
            rows.append(cells([task.name, a, *row]))
            data += [_reach_row(task, a, axis, r) for r in found]
    if not rows:
        return None
    what = AXES[axis].partition(" of ")[0]
    caption = (
        f"{what[0].upper()}{what[1:]} until the first greedy evaluation at or above a share of the best method's mean "
        "final score, no finer than evaluations are apart (on the scale from the task's lower bound): median over "
        "seeds with its 95% interval; in brackets how many seeds got there. “–”: at most half of them did; ∞: the "
        "interval reaches to seeds that never did. Bold: the lowest median, which is no test."
    )
    if axis in SPENT:
        caption += " " + SPENT[axis].format(scope=_scopes(study))
    if missing := [t.name for t in study.tasks if not any(k == t.key for _, k in source)]:
        caption += f" Not for {words.join(missing)}: not recorded by all runs, or nobody left the lower bound."
    columns = ("Task", "Method", "50% of best", "80% of best", "95% of best")
    return Table(name, title, caption, columns, tuple(rows), pd.DataFrame(data), labels=2)


def _scopes(study: Study) -> str:
    return "; ".join(sorted({energy.scope(r.record) for r in study.scores.all_runs() if r.joules is not None}))


def _middle(r: Reached) -> float:
    return float("inf") if r.steps is None else r.steps.value


def _fastest(found: list[Reached]) -> float:
    return min(map(_middle, found))


def _reach_text(r: Reached, form: Any) -> str:
    count = f"({r.reached}/{r.seeds})"
    if r.steps is None:
        return f"– {count}"
    return f"{words.estimate(r.steps, lambda x: '∞' if x == float('inf') else form(x))} {count}"


def _reach_row(task: TaskInfo, algorithm: str, axis: str, r: Reached) -> dict[str, Any]:
    e = r.steps
    ends = {"median": e and e.value, "low": e and e.low, "high": e and e.high}
    share = {"reached": r.reached, "seeds": r.seeds, "share_low": r.share[0], "share_high": r.share[1]}
    return {
        "task": task.key,
        "algorithm": algorithm,
        "fraction": r.fraction,
        "level": r.level,
        "axis": axis,
        **ends,
        **share,
    }


def fairness(study: Study) -> Table:
    """What each method was given."""
    found = study.fairness
    rows = [
        cells([a, *(Cell(row[c].text, mark=row[c].differs) for c in found.columns)]) for a, row in found.rows.items()
    ]
    data = pd.DataFrame([{"algorithm": a, **{c: row[c].text for c in found.columns}} for a, row in found.rows.items()])
    caption = (
        "Median over seeds, lowest – highest over tasks. Marked: differs between methods on a task (time, energy and "
        "memory: by more than a tenth). CPU time and energy, like wall time, are of training and evaluation; CPU time "
        "counts child processes in."
    )
    if "tuning budget" not in found.columns:
        caption += " No tuning budget was declared."
    if told := energy.told(study.scores.all_runs()):
        caption += f" {told}"
    columns = ("Method", *(c[0].upper() + c[1:] for c in found.columns))
    return Table("fairness", "Fairness", caption, columns, tuple(rows), data)


def seeds(study: Study) -> Table:
    """Every run's own endpoint."""
    rows, data = [], []
    for task in study.tasks:
        form = _form(task)
        for a in study.algorithms:
            for run in study.scores.cell(a, task):
                own = "–" if run.final is None else form(run.final)
                wins = _wins(task, run)
                counted = "–" if wins is None else f"[{wins[0]:.3f}, {wins[1]:.3f}]"
                when = "–" if run.final_steps is None else words.steps_text(run.final_steps)
                last = form(run.last) if run.last is not None else "–"
                rows.append(cells([task.name, a, run.seed, own, counted, when, last]))
                measured = {"final": run.final, "episodes": run.final_episodes, "best_at": run.final_steps}
                data.append({"task": task.key, "algorithm": a, "seed": run.seed, **measured, "trial": run.trial})
    caption = (
        "Absolute metric of each seed's best policy. The interval is Wilson's over the final episodes: how "
        "well this one "
        "policy is measured, which says nothing of the method; never used across seeds."
    )
    columns = ("Task", "Method", "Seed", "Final", "Wilson 95% over episodes", "Best at step", "Last evaluation")
    return Table("seeds", "Every seed", caption, columns, tuple(rows), pd.DataFrame(data), labels=2)


def _wins(task: TaskInfo, run: Run) -> tuple[float, float] | None:
    """Wilson interval of a win count; None where the metric is no count."""
    if run.final is None or run.final_episodes < 2 or task.metric == "return" or (task.low, task.high) != (0.0, 1.0):
        return None
    count = run.final * run.final_episodes
    return wilson(round(count), run.final_episodes) if abs(count - round(count)) < 1e-6 else None


def settings(study: Study) -> Table:
    """Every hyperparameter, one column a method; several values where it is set by task."""
    found: dict[str, dict[str, set[str]]] = {}
    for run in study.scores.all_runs():
        own = (run.record.get("settings") or {}).get("algorithm") or {}
        for key, value in own.items():
            found.setdefault(str(key), {}).setdefault(run.algorithm, set()).add(str(value))
    names = study.algorithms
    rows = [cells([k, *(" / ".join(sorted(found[k].get(a, {"–"}))) for a in names)]) for k in sorted(found)]
    data = pd.DataFrame(
        [{"setting": k, **{a: " / ".join(sorted(found[k].get(a, set()))) for a in names}} for k in found]
    )
    caption = "As recorded with the trials; several values: set by task."
    return Table("settings", "Hyperparameters", caption, ("Setting", *names), tuple(rows), data)


def provenance(study: Study) -> Table:
    """Where the numbers come from."""
    runs = list(study.scores.all_runs())

    def seen(values: list[Any]) -> str:
        return "; ".join(sorted({str(v) for v in values if v not in (None, "")})) or "not recorded"

    budgets = [(r.record.get("settings") or {}).get("budget") or {} for r in runs]
    packages = {p for r in runs for p in (r.record.get("versions") or {})}
    versions = {p: seen([(r.record.get("versions") or {}).get(p) for r in runs]) for p in sorted(packages)}
    started = sorted(str(r.record["started"]) for r in runs if r.record.get("started"))
    finished = sorted(str(r.record["finished"]) for r in runs if r.record.get("finished"))
    facts = {
        "experiments": seen([r.record.get("experiment") for r in runs]),
        "trials": f"{len(runs)} complete, {len(study.scores.unfinished)} not",
        "engine": seen([r.engine for r in runs]),
        "evaluation every (env steps)": seen([f"{b['eval_every']:,}" for b in budgets if b.get("eval_every")]),
        "episodes an evaluation": seen([b.get("eval_episodes") for b in budgets]),
        "episodes of the final evaluation": seen([r.final_episodes or None for r in runs]),
        "harness commit": seen([str(r.record.get("commit") or "")[:12] for r in runs]),
        "uncommitted changes": f"in {sum(bool(r.record.get('dirty')) for r in runs)} of {len(runs)} trials",
        "machine": seen([_machine(r.record.get("machine")) for r in runs]),
        "device": seen([r.record.get("device") for r in runs]),
        "versions": "; ".join(f"{p} {v}" for p, v in versions.items()) or "not recorded",
        "imported from": seen([r.record.get("imported") for r in runs]),
        "from – to": f"{started[0]} – {finished[-1]}" if started and finished else "not recorded",
    }
    if facts["imported from"] == "not recorded":
        del facts["imported from"]
    rows = tuple(cells([k[0].upper() + k[1:], v]) for k, v in facts.items())
    data = pd.DataFrame(list(facts.items()), columns=["what", "value"])
    return Table("provenance", "Provenance", "As recorded with the trials.", ("What", "Value"), rows, data, labels=2)


def _machine(value: Any) -> str | None:
    if not isinstance(value, dict):
        return value if value is None else str(value)
    parts = {k: v for k, v in value.items() if v not in (None, "")}
    told = [str(parts.pop("cpu"))] if "cpu" in parts else []
    told += [f"{parts.pop('cores')} cores"] if "cores" in parts else []
    told += [f"{words.memory(float(parts.pop('memory_bytes')))} memory"] if "memory_bytes" in parts else []
    return ", ".join(told + [f"{k} {v}" for k, v in sorted(parts.items())])
