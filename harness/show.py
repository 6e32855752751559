"""What is installed, for the eye: listings, pages of methods and suites, the help of ``harness run``."""

from __future__ import annotations

import dataclasses
import inspect
from typing import Any

import click
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from harness import registry, variant
from harness.errors import UserError, unknown
from harness.fields import Field, fields_of, plain, short, written


def first_line(cls: Any) -> str:
    """Of the docstring."""
    return next(iter(inspect.cleandoc(cls.__doc__ or "").splitlines()), "")


def _table(*columns: str) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def listing(what: str) -> RenderableType:
    """Registered "algorithms", "suites" or "tasks". One that can't be imported is listed with the reason."""
    names = registry.algorithms() if what == "algorithms" else registry.suites()
    load = registry.algorithm if what == "algorithms" else registry.suite
    table = _table(
        *{
            "algorithms": ("algorithm", "actions", ""),
            "suites": ("suite", "tasks", ""),
            "tasks": ("suite", "task", "actions"),
        }[what]
    )
    for name in names:
        try:
            cls = load(name)
            if what == "algorithms":
                table.add_row(name, ", ".join(sorted(cls.actions)), first_line(cls))
                continue
            tasks = cls().tasks()
        except UserError as error:
            table.add_row(name, "–", Text(str(error), style="red"))
            continue
        if what == "suites":
            table.add_row(name, str(len(tasks)), first_line(cls))
        for k, task in enumerate(tasks.values() if what == "tasks" else ()):
            default = " (default)" if task.name in cls.default_tasks else ""
            table.add_row(name if k == 0 else "", task.name, task.action + default)
    return Group(table, Text(""))


def page(name: str) -> RenderableType:
    """All about one method or suite. Raises ``UserError`` with the nearest name."""
    if variant.base(name) in registry.algorithms():
        return _algorithm_page(name)
    if name in registry.suites():
        return _suite_page(name)
    raise unknown("algorithm or suite", name, [*registry.algorithms(), *registry.suites()])


def _algorithm_page(label: str) -> RenderableType:
    from harness.config import method

    found = variant.read(label)
    cls, name = found.cls, found.name
    parts: list[RenderableType] = [Text(inspect.cleandoc(cls.__doc__ or name), style="bold"), Text("")]
    marked = {field for preset in found.presets for field in variant.presets_of(cls)[preset]} | set(found.settings)
    parts.append(_settings(cls, method(label), marked))
    parts += [Text(""), _facts({"actions": ", ".join(sorted(cls.actions)), "data": cls.data, "source": _source(cls)})]
    if variant.presets_of(cls):
        table = _table("preset", "sets")
        for key, values in variant.presets_of(cls).items():
            table.add_row(f"{name}@{key}", written(values))
        parts += [Text(""), table]
        kinds = ("discrete", "continuous")
        default = {n for suite in registry.suites() for kind in kinds for n in variant.taken_by_default(suite, kind)}
        if taken := [k for k in variant.presets_of(cls) if k in default]:
            line = f"Taken by default for the kind of actions, the suite or both of that name: {', '.join(taken)}."
            parts.append(Text(line, style="dim"))
    return Group(*parts)


def _suite_page(name: str) -> RenderableType:
    cls = registry.suite(name)
    suite = cls()
    parts: list[RenderableType] = [Text(inspect.cleandoc(cls.__doc__ or name), style="bold"), Text("")]
    if dataclasses.fields(cls):
        parts += [_settings(cls, suite, set()), Text("")]
    budgets = _table("budget", "env steps", "evaluated every", "episodes", "final", "seeds")
    for key, b in suite.budgets.items():
        budgets.add_row(
            key, *(f"{n:,}" for n in (b.env_steps, b.eval_every, b.eval_episodes, b.final_episodes, b.seeds))
        )
    tasks = _table("task", "actions", "scored by", "")
    for task in suite.tasks().values():
        default = "*" if task.name in cls.default_tasks else ""
        tasks.add_row(
            task.name + default, task.action, f"{task.metric} {plain(task.bounds[0])}–{plain(task.bounds[1])}", task.doc
        )
    parts += [budgets, Text(""), tasks, Text("* run when no tasks are named", style="dim"), Text("")]
    parts.append(_facts({"algorithms": ", ".join(cls.algorithms) + " (when none are named)", "source": _source(cls)}))
    return Group(*parts)


def _settings(cls: Any, instance: Any, marked: set[str]) -> Table:
    table = _table("field", "type", "default", "")
    for field in fields_of(cls).values():
        value = plain(getattr(instance, field.name))
        table.add_row(
            field.name, short(field.type), Text(value, style="bold cyan" if field.name in marked else ""), field.doc
        )
    return table


def _facts(facts: dict[str, str]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
    for key, value in facts.items():
        table.add_row(Text(key, style="bold"), value)
    return table


def _source(cls: Any) -> str:
    return inspect.getsourcefile(cls) or cls.__module__


def settings_help(formatter: click.HelpFormatter) -> None:
    """Every setting of ``harness run``, from the dataclasses that define them."""
    from harness.config import Choice, Options
    from harness.suite import Budget

    def rows(cls: type, hidden: tuple[str, ...] = ()) -> list[tuple[str, str]]:
        return [(f"{f.name}=", _doc(f)) for f in fields_of(cls).values() if f.name not in hidden]

    for title, entries in (
        ("What", rows(Choice)),
        ("How much (default: the budget's)", rows(Budget, ("seeds",))),
        ("How", rows(Options)),
        (
            "Beyond",
            [
                ("<suite's field>=", "A setting of the suite, e.g. engine=; `harness show SUITE` lists them."),
                (
                    "<algorithm>.<field>=",
                    "A method's field: qmix.lr=3e-4 (all its variants), qmix@pymarl2.lr=3e-4 (that preset).",
                ),
            ],
        ),
    ):
        with formatter.section(title):
            formatter.write_dl(entries)


def _doc(field: Field) -> str:
    default = "" if field.default in (None, "", (), dataclasses.MISSING) else f" Default: {plain(field.default)}."
    return field.doc.replace("``", "") + default
