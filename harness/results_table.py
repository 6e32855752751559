"""Where trials stand, as tables: ``harness status`` and the end of ``harness run``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from harness import archive
from harness.display import COLOURS, duration, steps
from harness.errors import UserError
from harness.plan import Plan, status
from harness.runner import Outcome
from harness.store import ASKED, REFERENCE, TrialFolder, asked, folders, read_table


def latest(root: Path) -> Path:
    """The experiment below ``root`` in which something was written last. Raises ``UserError`` when there is none.

    Never one of the committed reference results: their files are as new as the checkout, and nobody here ran them.
    """
    times: dict[Path, float] = {}
    shipped: set[str] = set()
    for folder in folders(root) if root.exists() else ():
        parts = folder.path.relative_to(root).parts
        if parts[:1] == (REFERENCE,):
            shipped.add(str(root.joinpath(*parts[:2])))
            continue
        place = root.joinpath(*parts[:1])
        times[place] = max(times.get(place, 0.0), (folder.path / "trial.json").stat().st_mtime)
    if not times:
        shipped |= {str(place) for place in archive.find(root / REFERENCE)}
        more = f"; those that came with the repository are read when named: {', '.join(sorted(shipped))}"
        raise UserError(f"no results below {root}; `harness run suite=smac` makes some" + more * bool(shipped))
    return max(times, key=lambda p: times[p])


def standing(folder: TrialFolder, metric: str | None) -> tuple[int | None, str]:
    """Env steps of the last evaluation, and the last score in words: "won 0.94", "won 0.97 final".

    ``metric`` is the one the trial is scored by; the return where its record does not say.
    """
    at, score = None, ""
    for name, suffix in (("evaluations.csv", ""), ("final.csv", " final")):
        try:
            table = read_table(folder.path / name)
        except ValueError:
            return at, f"{name} damaged"
        if table is None:
            continue
        column = metric if metric in table else "return"
        last = table["env_steps"].iloc[-1]
        at = int(last) if name == "evaluations.csv" else at
        score = f"{column} {table.loc[table['env_steps'] == last, column].mean():.2f}{suffix}"
    return at, score


def _row(folder: TrialFolder, named: tuple[str, str, str], state: str, record: dict[str, Any]) -> tuple[Any, ...]:
    at, score = standing(folder, record.get("metric"))
    total = ((record.get("settings") or {}).get("budget") or {}).get("env_steps")
    share = f"{steps(at)}/{steps(total)}" if at is not None and total else ""
    return (*named, Text(state, style=COLOURS.get(state, "")), share, score, duration(record.get("wall_s")))


def _table() -> Table:
    table = Table(box=None, padding=(0, 1, 0, 0), header_style="bold")
    for column in ("task", "algorithm", "seed", "status", "steps", "last", "time"):
        right = column in ("seed", "steps", "time")
        table.add_column(column, justify="right" if right else "left", overflow="fold")
    return table


def status_table(path: Path) -> RenderableType:
    """Every trial at or below ``path``, those not begun too, with reasons of failures below. Raises ``UserError`` when
    there is none."""
    found = folders(path) if path.exists() else []
    found = sorted({f.path: f for f in (*found, *_not_begun(path))}.values(), key=lambda f: f.path)
    if not found:
        if path.exists() and archive.find(path):
            raise UserError(f"{path}: an archive of finished trials; `harness report {path}` reads it")
        raise UserError(f"{path}: no trials there; `harness run suite=smac` makes some")
    parts: list[RenderableType] = [Text(str(path), style="bold")]
    table, troubles, counts = _table(), [], dict[str, int]()
    for folder in found:
        state = status(folder)
        counts[state] = counts.get(state, 0) + 1
        try:
            record = folder.record() or {}
        except ValueError as error:
            troubles.append((str(folder.path), str(error)))
            record = {}
        task, algorithm, seed = folder.path.parts[-3:]
        table.add_row(*_row(folder, (task, algorithm, seed.removeprefix("seed_")), state, record))
        if state == "failed":
            troubles.append((str(folder.path), str(record.get("reason") or "no reason recorded")))
    parts += [table, _troubles(troubles)] if troubles else [table]
    return Group(*parts, Text(", ".join(f"{n} {s}" for s, n in sorted(counts.items()))))


def _not_begun(path: Path) -> list[TrialFolder]:
    """Trials at or below ``path`` that were asked for: whether they were begun, their folders say."""
    here = path.absolute()
    places = {p.parent for p in here.rglob(ASKED)} | {p for p in here.parents if (p / ASKED).exists()}
    paths = [place / key for place in places for key in asked(place)]
    return [TrialFolder(path / p.relative_to(here)) for p in paths if p.is_relative_to(here)]


def after_run(plan: Plan, outcome: Outcome) -> RenderableType:
    """The end of a run: a row a trial of the plan, failures with their reason, and what to do next."""
    table, troubles = _table(), []
    for item in sorted(plan.items, key=lambda i: (i.trial.task, i.trial.algorithm, i.trial.seed)):
        trial, folder = item.trial, TrialFolder.of(item.trial)
        ending = outcome.endings.get(trial.key)
        state = ending.status if ending else ("complete" if item.done else status(folder))
        try:
            record = folder.record() or {}
        except ValueError:
            record = {}
        table.add_row(*_row(folder, (trial.task, trial.algorithm, str(trial.seed)), state, record))
        if ending and ending.status == "failed":
            troubles.append((str(folder.path), ending.reason))
    parts: list[RenderableType] = [Text(""), table]
    if troubles:
        parts.append(_troubles(troubles))
    if plan.experiment.options.profile == "on":
        from harness.profile_table import profile_table

        parts.append(profile_table([item.trial for item in plan.items]))
    place = Path(plan.experiment.options.results) / plan.experiment.name
    if outcome.signal is not None:
        parts.append(Text("stopped; the same command continues", style="yellow"))
    elif troubles:
        parts.append(Text("the same command tries the failed trials again", style="yellow"))
    else:
        parts.append(Text(f"results in {place}; `harness report {place}` compares them"))
    return Group(*parts)


def _troubles(troubles: list[tuple[str, str]]) -> Group:
    lines = [Text("")]
    for place, reason in troubles:
        lines += [Text.assemble((place, "bold red")), Text(f"  {reason}")]
    return Group(*lines, Text(""))
