"""Checks between the tables and the numbers: what would make a number wrong is refused, what bends it is said.

``guard`` takes raw scores and returns scores that may be compared, with a notice for all that a reader must know.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from harness.analysis.bootstrap import ENOUGH_SEEDS, MIN_SEEDS
from harness.analysis.scores import Notice, Run, Scores, TaskInfo
from harness.errors import UserError

Cells = dict[tuple[str, str], tuple[Run, ...]]

IN_NUMBERS = 2
"""Tasks outside of their bounds that a notice gives with their numbers; of more, the farthest alone."""

READABLE = 8
"""Methods on tasks that a notice names one by one; more are told method by method."""


def guard(scores: Scores, *, engine: str | None = None, split: bool = False) -> Scores:
    """Every check. ``engine`` keeps the runs of one engine; ``split`` shows mixed runs apart instead of refusing them.

    Raises ``UserError`` naming them where engines or settings are mixed and neither was asked for.
    """
    scores = engines(scores, engine, split)
    scores = settings(scores, split)
    scores = one_task(scores, split)
    scores = twice(scores)
    scores = identical(scores)
    return scores.with_notices(
        *unfinished(scores),
        *over_tasks(scores),
        *never_learned(scores),
        *protocols(scores),
        *versions(scores),
        *imported(scores),
        *few_seeds(scores),
        *uneven_seeds(scores),
        *no_final(scores),
        *out_of_bounds(scores),
        *budgets(scores),
    )


def names(items: Iterable[object]) -> str:
    """a, b and c."""
    words = [str(i) for i in items]
    return words[0] if len(words) == 1 else ", ".join(words[:-1]) + " and " + words[-1]


def _rebuild(scores: Scores, cells: Cells, notices: Sequence[Notice] = ()) -> Scores:
    cells = {k: v for k, v in sorted(cells.items()) if v}
    tasks = {t for _, t in cells}
    return replace(
        scores,
        tasks=tuple(t for t in scores.tasks if t.key in tasks),
        algorithms=tuple(sorted({a for a, _ in cells})),
        runs=cells,
        notices=scores.notices + tuple(notices),
    )


# -- what is refused -------------------------------------------------------------------------------------------------


def is_imported(run: Run) -> bool:
    """The run was measured by another system."""
    return bool(run.record.get("imported"))


def _known_engine(run: Run) -> str | None:
    return None if not run.engine or run.engine.startswith("unknown") else run.engine


def engines(scores: Scores, engine: str | None, split: bool) -> Scores:
    """Two engines (or two versions of one) on one task are never pooled nor compared."""
    cells: Cells = dict(scores.runs)
    if engine is not None:
        known = sorted({r.engine for r in scores.all_runs()})
        if engine not in known:
            raise UserError(f"no run of engine {engine!r}; there are {names(known)}")
        cells = {k: tuple(r for r in v if r.engine == engine) for k, v in cells.items()}
        return _rebuild(scores, cells)
    tasks = []
    for task in scores.tasks:
        runs = [r for (_, t), cell in cells.items() if t == task.key for r in cell]
        found = sorted({e for e in map(_known_engine, runs) if e})
        if len(found) <= 1:
            tasks.append(task)
            continue
        if not split:
            counts = names(f"{e} ({sum(r.engine == e for r in runs)} trials)" for e in found)
            raise UserError(
                f"{task.key}: mixed engines, never pooled: {counts}; choose one with --engine, or --split them"
            )
        tasks += _apart(cells, task, lambda run: run.engine)
    return _rebuild(replace(scores, tasks=tuple(tasks)), cells)


def _apart(cells: Cells, task: TaskInfo, label: Callable[[Run], str]) -> list[TaskInfo]:
    """Move the runs of ``task`` in ``cells`` to tasks of their own, one for each ``label``; those tasks, in order."""
    parts: dict[str, TaskInfo] = {}
    for a, t in list(cells):
        if t == task.key:
            for run in cells.pop((a, t)):
                name = label(run)
                part = parts.setdefault(name, replace(task, name=f"{task.name} [{name}]"))
                cells[a, part.key] = (*cells.get((a, part.key), ()), replace(run, task=part.key))
    return [parts[name] for name in sorted(parts)]


def _flat(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in settings.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{prefix}{key}.")
        else:
            flat[prefix + key] = value
    return flat


NEUTRAL = ("engine", "suite.engine", "suite.stepping", "cdm")
"""Settings that change nothing of what is trained and measured, or, engines, are judged apart."""


def task_settings(run: Run) -> dict[str, Any]:
    """Settings that make the task what it is: the suite's, and whether an agent was corrupted."""
    found = comparable_settings(run)
    return {k: v for k, v in found.items() if k.startswith("suite.") or k == "corrupt"}


def one_task(scores: Scores, split: bool) -> Scores:
    """Methods on one task that was set differently for them did not play the same task: refused, or shown apart."""
    cells: Cells = dict(scores.runs)
    tasks, notices = [], []
    for task in scores.tasks:
        runs = [r for (_, t), cell in cells.items() if t == task.key for r in cell if not is_imported(r)]
        every = [task_settings(r) for r in runs]
        found = sorted({k for s in every for k in s if len({repr(o.get(k)) for o in every}) > 1})
        if not found:
            tasks.append(task)
            continue
        words = []
        for key in found:
            by: dict[str, set[str]] = {}
            for run, mine in zip(runs, every, strict=True):
                by.setdefault(repr(mine.get(key)), set()).add(run.algorithm)
            values = " or ".join(f"{v} ({names(sorted(who))})" for v, who in sorted(by.items()))
            words.append(f"{key} is {values}")
        if not split:
            raise UserError(
                f"{task.key}: the methods did not play the same task: {'; '.join(words)}; report them apart, or --split"
            )
        notices.append(
            Notice("warning", "settings", f"{task.key} was set in several ways ({'; '.join(words)}): shown apart.")
        )

        def own(run: Run, keys: Sequence[str] = found) -> str:
            mine = task_settings(run)
            return ", ".join(f"{k.rpartition('.')[2]}={mine.get(k)}" for k in keys)

        tasks += _apart(cells, task, own)
    return _rebuild(replace(scores, tasks=tuple(tasks)), cells, notices)


def comparable_settings(run: Run) -> dict[str, Any]:
    """Settings that seeds of one cell must share; budgets and engines are judged apart, and measuring mismatch beside
    training changes nothing of it."""
    flat = _flat(run.record.get("settings") or {})
    return {k: v for k, v in flat.items() if not k.startswith("budget.") and k not in NEUTRAL}


def differing(runs: Sequence[Run]) -> dict[str, list[Any]]:
    """Setting -> its values, where they differ between ``runs``."""
    all_settings = [comparable_settings(r) for r in runs]
    found: dict[str, list[Any]] = {}
    for key in sorted({k for s in all_settings for k in s}):
        values = {repr(s.get(key)): s.get(key) for s in all_settings}
        if len(values) > 1:
            found[key] = [values[k] for k in sorted(values)]
    return found


def settings(scores: Scores, split: bool) -> Scores:
    """Seeds trained with different settings are not seeds of one method."""
    cells: Cells = {}
    notices = []
    for (algorithm, task), runs in scores.runs.items():
        found = differing(runs)
        if not found:
            cells[algorithm, task] = runs
            continue
        words = names(f"{k} is {' or '.join(map(repr, v))}" for k, v in found.items())
        if not split:
            where = names(sorted({str(r.record.get("experiment")) for r in runs}))
            raise UserError(
                f"{algorithm} on {task}: mixed settings, never pooled: {words} (experiments: {where}); "
                "report them apart, or --split them"
            )
        text = f"{algorithm} on {task} ran with mixed settings ({words}): shown apart, never pooled."
        notices.append(Notice("warning", "settings", text))
        for run in runs:
            mine = comparable_settings(run)
            own = ", ".join(f"{k.rpartition('.')[2]}={mine.get(k)}" for k in found)
            label = f"{algorithm} ({own})"
            cells[label, task] = (*cells.get((label, task), ()), replace(run, algorithm=label))
    return _rebuild(scores, cells, notices)


# -- what is left out ------------------------------------------------------------------------------------------------


def twice(scores: Scores) -> Scores:
    """One seed in two experiments: the same run copied counts once, two different runs are refused."""
    cells: Cells = {}
    for key, runs in scores.runs.items():
        kept: dict[int, Run] = {}
        for run in runs:
            other = kept.setdefault(run.seed, run)
            if other is not run and (other.measured, other.trained) != (run.measured, run.trained):
                raise UserError(
                    f"{key[0]} on {key[1]}: seed {run.seed} is there twice with different results "
                    f"({other.trial}, {run.trial}); report the experiments apart"
                )
        cells[key] = tuple(kept.values())
    return _rebuild(scores, cells)


def identical(scores: Scores) -> Scores:
    """Two seeds with identical results are one observation: named, and counted once.

    Identical is every number of every episode evaluated, and everything logged in training: in a game of few outcomes
    seeds evaluate alike by chance. Where nothing was logged and the score never moved, nothing shows it.
    """
    cells: Cells = {}
    notices = []
    for (algorithm, task), runs in scores.runs.items():
        groups: dict[object, list[Run]] = {}
        for run in runs:
            moved = len(run.values) > 1 and np.ptp(run.values) > 0
            told = run.measured and (moved or run.trained)
            groups.setdefault((run.measured, run.trained) if told else run.trial, []).append(run)
        for group in groups.values():
            if len(group) > 1:
                seeds = names(r.seed for r in group)
                text = f"Seeds {seeds} of {algorithm} on {task} are byte-identical: they count as one seed."
                notices.append(Notice("warning", "identical", text))
        cells[algorithm, task] = tuple(g[0] for g in groups.values())
    return _rebuild(scores, cells, notices)


# -- what is said ----------------------------------------------------------------------------------------------------


def unfinished(scores: Scores) -> list[Notice]:
    """Trials that are not complete, by status, with the reason of the failed ones."""
    notices = []
    for status in sorted({str(r.get("status")) for r in scores.unfinished}):
        records = [r for r in scores.unfinished if str(r.get("status")) == status]
        who = names(f"{r['algorithm']} on {r['task']} seed {r['seed']}" for r in records[:6])
        more = f" and {len(records) - 6} more" if len(records) > 6 else ""
        reasons = sorted({str(r["reason"]).splitlines()[-1] for r in records if r.get("reason")})
        why = f" Reasons: {'; '.join(reasons[:3])}." if reasons else ""
        n = f"{len(records)} trials are" if len(records) > 1 else "1 trial is"
        notices.append(Notice("warning", "unfinished", f"{n} {status} and in no final number: {who}{more}.{why}"))
    return notices


def engines_over_tasks(scores: Scores) -> dict[str, list[str]]:
    """Suite -> its engines, where its tasks ran on several."""
    found: dict[str, set[str]] = {}
    for task in scores.tasks:
        for a in scores.present(task):
            found.setdefault(task.suite, set()).update(e for r in scores.cell(a, task) if (e := _known_engine(r)))
    return {suite: sorted(known) for suite, known in sorted(found.items()) if len(known) > 1}


def over_tasks(scores: Scores) -> list[Notice]:
    """Tasks of one suite on different engines, or versions of one: nothing is computed over them."""
    return [
        Notice(
            "warning", "engine", f"Tasks of {suite} ran on different engines ({names(known)}): no number over tasks."
        )
        for suite, known in engines_over_tasks(scores).items()
    ]


def never_learned(scores: Scores) -> list[Notice]:
    """Methods whose best policy was found before their first gradient step."""
    cells: dict[tuple[str, str], int] = {}
    for key, runs in scores.runs.items():
        count = sum((r.record.get("best") or {}).get("updates") == 0 for r in runs)
        if count:
            cells[key] = count
    if not cells:
        return []
    text = f"Scored without a gradient step before any evaluation, so nothing learned (seeds): {_cells(scores, cells)}."
    return [Notice("warning", "untrained", text)]


def protocols(scores: Scores) -> list[Notice]:
    """Evaluations that are not alike on one task: a finer grid has more chances of a lucky best policy."""
    notices = []
    for field, words in (
        ("eval_every", "env steps between evaluations"),
        ("eval_episodes", "episodes an evaluation"),
        ("final_episodes", "episodes of the final evaluation"),
    ):
        where = {}
        for task in scores.tasks:
            runs = [r for a in scores.present(task) for r in scores.cell(a, task) if not is_imported(r)]
            budgets = [(r.record.get("settings") or {}).get("budget") or {} for r in runs]
            values = sorted({b[field] for b in budgets if b.get(field) is not None})
            if len(values) > 1:
                where[task.name] = f"{task.name} ({names(f'{v:,}' for v in values)})"
        if where:
            notices.append(Notice("warning", "protocol", f"Trials differ in {words}: {names(where.values())}."))
    return notices


def versions(scores: Scores) -> list[Notice]:
    """Libraries, commits and devices that differ between runs on one task."""
    notices = []
    packages: dict[str, set[str]] = {}
    for run in scores.all_runs():
        for package, version in (run.record.get("versions") or {}).items():
            packages.setdefault(str(package), set()).add(str(version))
    mixed = {p: sorted(v) for p, v in sorted(packages.items()) if len(v) > 1}
    if mixed:
        words = "; ".join(f"{p} {names(v)}" for p, v in mixed.items())
        notices.append(Notice("warning", "versions", f"Library versions differ between trials: {words}."))
    for what, words in (("commit", "commits of the harness"), ("device", "devices")):
        found = sorted({str(r.record[what]) for r in scores.all_runs() if r.record.get(what)})
        if len(found) > 1:
            short = [f[:10] if what == "commit" else f for f in found]
            notices.append(Notice("warning", what, f"Trials ran on different {words}: {names(short)}."))
    changed = [r for r in scores.all_runs() if r.record.get("dirty")]
    if changed:
        count = f"{len(changed)} of {sum(1 for _ in scores.all_runs())} trials"
        text = f"{count} ran with changes to the harness that no commit holds: nobody else can run them again."
        notices.append(Notice("warning", "dirty", text))
    return notices + sources(scores) + machines(scores)


def sources(scores: Scores) -> list[Notice]:
    """Methods and suites whose own file, or package, is not the same for all trials of a cell."""
    found: dict[str, set[str]] = {}
    for (algorithm, task), runs in scores.runs.items():
        for what, name in (("algorithm", algorithm), ("suite", task.partition("/")[0])):
            every = [s.get(what) for r in runs for s in (r.record.get("source") or {}, *_earlier_sources(r))]
            if len({repr(sorted(s.items())) for s in every if s}) > 1:
                found.setdefault(name, set()).update(
                    f"{s.get('package')} {s.get('version')}, file {str(s.get('sha256'))[:10]}" for s in every if s
                )
    return [
        Notice("warning", "source", f"Trials of {name} ran different source: {names(sorted(versions))}.")
        for name, versions in sorted(found.items())
    ]


def _earlier_sources(run: Run) -> list[Mapping[str, Any]]:
    """Of a trial that was continued after its method's or suite's file had been changed."""
    return [s for s in run.record.get("earlier_sources") or [] if isinstance(s, Mapping)]


def machines(scores: Scores) -> list[Notice]:
    """Tasks whose trials ran on machines that differ in what time and energy depend on."""
    found: dict[str, set[str]] = {}
    for run in scores.all_runs():
        machine = run.record.get("machine")
        if isinstance(machine, Mapping):
            words = f"{machine.get('cpu')} ({machine.get('cores')} cores)"
            found.setdefault(run.task, set()).add(words)
    mixed = sorted(task for task, seen in found.items() if len(seen) > 1)
    if not mixed:
        return []
    every = names(sorted({m for task in mixed for m in found[task]}))
    text = f"Trials on {names(mixed)} ran on different machines: {every}. Time and energy there say as much of the "
    return [Notice("warning", "machine", f"{text}machine as of the method.")]


def imported(scores: Scores) -> list[Notice]:
    """Methods whose runs another system measured."""
    notices = []
    for algorithm in scores.algorithms:
        runs = [r for (a, _), cell in scores.runs.items() if a == algorithm for r in cell if is_imported(r)]
        if runs:
            source = names(sorted({str(r.record["imported"]) for r in runs}))
            blind = (
                " Its engine is unknown: nothing shows that it played the same task."
                if not all(_known_engine(r) for r in runs)
                else ""
            )
            notices.append(Notice("warning", "imported", f"{algorithm} is imported from {source}.{blind}"))
    return notices


def _cells(scores: Scores, counts: Mapping[tuple[str, str], int]) -> str:
    """Which methods on which tasks, with their numbers of seeds: one by one while that can be read, else by method."""
    short = {t.key: t.name for t in scores.tasks}

    def seeds(values: Sequence[int]) -> str:
        low, high = min(values), max(values)
        if high == 0:
            return ""
        return f" ({low})" if low == high else f" ({low} to {high})"

    if len(counts) <= READABLE:
        ordered = [(a, t.key) for t in scores.tasks for a in scores.algorithms if (a, t.key) in counts]
        return names(f"{a} on {short[t]}{seeds([counts[a, t]])}" for a, t in ordered)
    texts = []
    for a in scores.algorithms:
        mine = {short[t]: n for (b, t), n in counts.items() if b == a}
        if mine:
            where = names(mine) if len(mine) == 1 else f"{len(mine)} tasks"
            texts.append(f"{a} on {where}{seeds(list(mine.values()))}")
    return names(texts)


def few_seeds(scores: Scores) -> list[Notice]:
    """Fewer than five seeds, fewer than three."""
    notices = []
    for least, most, words in (
        (1, MIN_SEEDS, "intervals and tests are not estimable"),
        (
            MIN_SEEDS,
            ENOUGH_SEEDS,
            "the intervals are too narrow: in simulations a task's 95% interval "
            "from three seeds held the truth 69 to 75% of the time (docs/statistics.md)",
        ),
    ):
        cells = {key: len(runs) for key, runs in scores.runs.items() if least <= len(runs) < most}
        if cells:
            who = "every method on every task" if len(cells) == len(scores.runs) else _cells(scores, cells)
            notices.append(Notice("warning", "seeds", f"Fewer than {most} seeds: {who}; {words}."))
    return notices


def uneven_seeds(scores: Scores) -> list[Notice]:
    """Cells with fewer seeds than others, and methods without runs on a task."""
    most = max(len(c) for c in scores.runs.values())
    fewer = {key: len(runs) for key, runs in scores.runs.items() if 0 < len(runs) < most}
    absent = {(a, t.key): 0 for t in scores.tasks for a in scores.algorithms if not scores.cell(a, t)}
    notices = []
    if fewer:
        notices.append(Notice("warning", "seeds", f"Most have {most} seeds; fewer: {_cells(scores, fewer)}."))
    if absent:
        text = f"No runs of {_cells(scores, absent)}; numbers over several tasks use the tasks that every method has."
        notices.append(Notice("warning", "missing", text))
    return notices


def no_final(scores: Scores) -> list[Notice]:
    """Runs without a final evaluation."""
    runs = [r for r in scores.all_runs() if r.final is None]
    if not runs:
        return []
    who = sorted({f"{r.algorithm} on {r.task}" for r in runs})
    text = (
        f"{len(runs)} runs have no final evaluation ({names(who)}): there the methods are compared by their last "
        "common evaluation."
    )
    return [Notice("warning", "final", text)]


def out_of_bounds(scores: Scores) -> list[Notice]:
    """Values outside of the bounds that the suite declares: a line for all tasks, with the farthest ones' numbers."""
    outside: list[tuple[float, str, str]] = []
    for task in scores.tasks:
        spans = {}
        for a in scores.present(task):
            values = [x for r in scores.cell(a, task) for x in (*r.values, *([] if r.final is None else [r.final]))]
            low, high = (float(min(values)), float(max(values))) if values else (task.low, task.high)
            if low < task.low - 1e-9 or high > task.high + 1e-9:
                spans[a] = low, high
        if spans:
            low, high = min(s[0] for s in spans.values()), max(s[1] for s in spans.values())
            declared = f"declared [{task.low:.4g}, {task.high:.4g}]"
            who = "" if len(spans) == len(scores.present(task)) > 1 else f" of {names(spans)}"
            far = max(task.low - low, high - task.high) / (task.high - task.low)
            outside.append((far, task.name, f"{task.label} from {low:.4g} to {high:.4g}{who}, {declared}"))
    if not outside:
        return []
    if len(outside) > IN_NUMBERS:
        _, name, numbers = max(outside)
        text = f"{names(name for _, name, _ in outside)}; the farthest is {name}, {numbers}"
    else:
        text = "; ".join(f"{name}, {numbers}" for _, name, numbers in outside)
    return [
        Notice(
            "warning",
            "bounds",
            f"Outside of the declared bounds: {text}. Normalised scores leave [0, 1] there and are not clipped.",
        )
    ]


def budgets(scores: Scores) -> list[Notice]:
    """Methods or seeds trained for different numbers of environment steps."""
    notices = []
    for task in scores.tasks:
        spans = {a: sorted({r.budget for r in scores.cell(a, task)}) for a in scores.present(task)}
        if (common := scores.common_step(task)) is not None:
            each = names(f"{a} {' to '.join(f'{b:,}' for b in dict.fromkeys((v[0], v[-1])))}" for a, v in spans.items())
            text = f"Budgets differ on {task.name} (env steps: {each}): compared at {common:,}, the common step."
            notices.append(Notice("warning", "budget", text))
    return notices
