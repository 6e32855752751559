"""What the numbers say, in sentences."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from harness.analysis.compare import Pair
from harness.analysis.study import Study
from harness.reporting import words


def sentences(study: Study) -> list[str]:
    """The report's first lines."""
    return [setting(study), *(_over_tasks(study) or _one_by_one(study)), *versus(study), *cost(study)]


def setting(study: Study) -> str:
    """What was compared on what."""
    counts = sorted({len(c) for c in study.scores.runs.values()})
    seeds = words.plural(counts[0], "seed") if len(counts) == 1 else f"{counts[0]} to {counts[-1]} seeds"
    budgets = sorted({r.budget for r in study.scores.all_runs()})
    steps = words.steps_text(budgets[0])
    steps = steps if len(budgets) == 1 else f"{steps} to {words.steps_text(budgets[-1])}"
    engines = sorted({r.engine for r in study.scores.all_runs() if r.engine})
    on = f" ({words.join(engines)})" if engines else ""
    suites = words.join(sorted({t.suite for t in study.tasks}))
    tasks = f"the task {study.tasks[0].name}" if len(study.tasks) == 1 else words.plural(len(study.tasks), "task")
    who = (
        words.join(list(study.algorithms))
        if len(study.algorithms) <= 6
        else words.plural(len(study.algorithms), "method")
    )
    return f"{who} on {tasks} of {suites}{on}: {seeds} each, {steps} environment steps."


def _order(study: Study) -> list[str]:
    """Methods, best first: by IQM over tasks, or by the mean on the one task."""
    whole = study.overall
    if whole is not None:
        return sorted(whole.algorithms, key=lambda a: (-whole.aggregates[a]["iqm"].value, a))
    end = study.endpoints[0]
    return sorted(end.values, key=lambda a: (-study.finals[a, end.task.key]["mean"].value, a))


def _over_tasks(study: Study) -> list[str]:
    whole = study.overall
    if whole is None:
        return []
    parts = [f"{a} {words.estimate(whole.aggregates[a]['iqm'], lambda x: words.value(x, 2))}" for a in _order(study)]
    return [f"Over {len(whole.tasks)} tasks the IQM of normalised scores is {words.join(parts)}."]


def _one_by_one(study: Study) -> list[str]:
    made = []
    for end in study.endpoints:
        form = partial(words.value, decimals=words.digits(end.task))
        order = sorted(end.values, key=lambda a: (-study.finals[a, end.task.key]["mean"].value, a))
        parts = [f"{a} {words.estimate(study.finals[a, end.task.key]['mean'], form)}" for a in order]
        made.append(f"On {end.task.name} the mean {end.task.label} is {words.join(parts)}.")
    return made


def versus(study: Study) -> list[str]:
    """The best method (or each, against the baseline) in words."""
    if study.options.baseline is not None:
        others = sorted({p.a for p in study.pairs})
        return [_against(study, a, study.options.baseline, [p for p in study.pairs if p.a == a]) for a in others]
    order = _order(study)
    best = order[0]
    return [
        _against(study, best, b, [_facing(p, best) for p in study.pairs if {p.a, p.b} == {best, b}]) for b in order[1:]
    ]


def _facing(pair: Pair, a: str) -> Pair:
    """The comparison seen from ``a``; only what the sentences read is turned."""
    if pair.a == a:
        return pair
    return replace(pair, a=pair.b, b=pair.a, difference=pair.difference.mirrored(), seeds=pair.seeds[::-1])


def _against(study: Study, a: str, b: str, pairs: list[Pair]) -> str:
    if not pairs:
        return f"{a} and {b} have no task in common."
    above = [p for p in pairs if p.verdict == "above"]
    below = [p for p in pairs if p.verdict == "below"]
    open_ = [p for p in pairs if p.verdict == "undecided"]
    blind = [p for p in pairs if p.verdict == "not estimable"]
    if len(pairs) == 1:
        return _single(a, b, pairs[0])
    parts = [f"{a} is above {b} on {len(above) or 'none'} of {words.plural(len(pairs), 'task')}"]
    if below:
        parts.append(f"below on {len(below)} ({words.join([p.task.name for p in below])})")
    text = " and ".join(parts)
    if open_:
        text += f"; no difference shown on {_open_text(open_)}"
    if blind:
        text += f"; not estimable on {words.join([p.task.name for p in blind])} (too few seeds, or no spread)"
    return f"{text}{_odds(study, a, b)}."


def _odds(study: Study, a: str, b: str) -> str:
    """P(a > b) over all tasks."""
    e = None if study.overall is None else study.overall.improvement.get((a, b))
    return (
        "" if e is None else f". Over all tasks P({a} > {b}) is {words.estimate(e, partial(words.value, decimals=2))}"
    )


def _open_text(pairs: list[Pair]) -> str:
    told = [f"{p.task.name} ({_missing(p)})" for p in pairs[:4]]
    return words.join(told) if len(pairs) <= 4 else ", ".join(told) + f" and {len(pairs) - 4} more"


def _missing(pair: Pair) -> str:
    if pair.difference.value == 0:
        return "equal means"
    if pair.no_spread:
        return "neither has a spread: a few more seeds will tell"
    if pair.more_seeds is None:
        return "over 1,000 seeds each needed"
    return f"about {words.plural(pair.more_seeds, 'more seed')} each needed"


def _single(a: str, b: str, pair: Pair) -> str:
    where = f" on {pair.task.name}"
    if pair.verdict in ("above", "below"):
        return f"{a} is {pair.verdict} {b}{where} (adjusted p {_p(pair)})."
    if pair.verdict == "not estimable":
        return f"{a} against {b}{where}: not estimable (too few seeds, or no spread)."
    missing = _missing(pair) + " to show a difference of this size" * (pair.more_seeds is not None)
    return f"{a} and {b} cannot be told apart{where} (adjusted p {_p(pair)}; {missing})."


def _p(pair: Pair) -> str:
    text = words.p_value(pair.p)
    return text if text.startswith("<") else f"= {text}"


def cost(study: Study) -> list[str]:
    """What the methods were not given alike."""
    differing = [c for c in study.fairness.differing if c != "by network"]
    if not differing:
        return []
    return [f"The methods differ in {words.join(differing)}: see Fairness before calling one better."]
