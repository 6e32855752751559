"""How a run goes, for the eye: a live table on a terminal, plain lines elsewhere; and the tables before and after."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from harness.executors.local import Ending
from harness.plan import Plan, size
from harness.types import Progress, Trial

COLOURS = {"complete": "green", "failed": "red", "damaged": "red", "interrupted": "yellow", "running": "cyan"}


def duration(seconds: float | None) -> str:
    """ "8s", "3m05s", "2h10m"; a dash where unknown."""
    if seconds is None:
        return "–"
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}s"
    return f"{whole // 3600}h{whole % 3600 // 60:02d}m"


def count(number: int, noun: str) -> str:
    """ "1 trial", "2 trials"."""
    return f"{number} {noun}" + ("" if number == 1 else "s")


def steps(number: float) -> str:
    """Environment steps: "950", "12.5k", "2M"."""
    for unit, scale in (("M", 1e6), ("k", 1e3)):
        if number >= scale:
            return f"{number / scale:.3g}{unit}" if number < 1000 * scale else f"{number / scale:.0f}{unit}"
    return f"{number:.0f}"


def name(trial: Trial) -> str:
    """As the tables show it."""
    return f"{trial.task} {trial.algorithm} {trial.seed}"


def _eta(progress: Progress | None) -> float | None:
    if progress is None or progress.steps_per_s <= 0:
        return None
    return max(0.0, progress.total - progress.env_steps) / progress.steps_per_s


def _last(progress: Progress | None) -> str:
    if progress is None or progress.last_eval is None:
        return ""
    return f"{progress.metric} {progress.last_eval:.2f}"


@dataclass
class State:
    """What is known of a run: kept by both displays."""

    plan: Plan
    running: dict[str, tuple[Trial, Progress | None]] = field(default_factory=dict)
    done: int = 0
    failed: int = 0
    began: float = field(default_factory=time.monotonic)

    @property
    def total(self) -> int:
        """Trials that this run had to do."""
        return len(self.plan.todo)

    def eta(self) -> float | None:
        """Seconds for all that is left, at the speed that the running trials have now."""
        rate = sum(p.steps_per_s for _, p in self.running.values() if p)
        if rate <= 0:
            return None
        whole = {i.trial.key: int(i.trial.settings["budget"]["env_steps"]) for i in self.plan.todo}
        waiting = self.total - self.done - len(self.running)
        left = waiting * sum(whole.values()) / max(1, self.total)
        left += sum(p.total - p.env_steps if p else whole[k] for k, (_, p) in self.running.items())
        return max(0.0, left) / rate

    def started(self, trial: Trial) -> None:
        """Note it."""
        self.running[trial.key] = (trial, None)

    def progress(self, trial: Trial, progress: Progress) -> None:
        """Note it."""
        self.running[trial.key] = (trial, progress)

    def ended(self, trial: Trial, ending: Ending, again: bool) -> None:
        """Note it."""
        self.running.pop(trial.key, None)
        if not again:
            self.done += 1
            self.failed += ending.status == "failed"


class LiveDisplay:
    """A line for each running trial and one for all, redrawn in place; what has ended scrolls away above."""

    def __init__(self, plan: Plan, console: Console) -> None:
        self.state, self.console = State(plan), console
        self.live = Live(
            console=console, auto_refresh=False, transient=True, redirect_stdout=False, redirect_stderr=False
        )

    def __enter__(self) -> LiveDisplay:
        self.live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.live.stop()

    def started(self, trial: Trial) -> None:
        """A trial has begun."""
        self.state.started(trial)

    def progress(self, trial: Trial, progress: Progress) -> None:
        """A trial tells where it is."""
        self.state.progress(trial, progress)

    def ended(self, trial: Trial, ending: Ending, again: bool, seconds: float) -> None:
        """A trial has ended, or will be tried again."""
        last = _last(self.state.running.get(trial.key, (trial, None))[1])
        self.state.ended(trial, ending, again)
        self.console.print(_ending_line(trial, ending, again, seconds, last))

    def say(self, text: str) -> None:
        """A line that stays."""
        self.console.print(Text(text, style="yellow"))

    def tick(self) -> None:
        """Draw."""
        self.live.update(self._table(), refresh=True)

    def _table(self) -> Group:
        width, room = self.console.width, max(1, self.console.height - 5)
        table = Table(box=None, padding=(0, 1, 0, 0), expand=False, show_header=False)
        table.add_column(no_wrap=True, overflow="ellipsis", max_width=max(14, width // 3))
        table.add_column(width=max(6, min(30, width // 5)))
        table.add_column(justify="right", no_wrap=True)
        if width >= 76:
            table.add_column(justify="right", no_wrap=True)
        table.add_column(no_wrap=True, overflow="ellipsis", max_width=16)
        table.add_column(justify="right", no_wrap=True)
        for trial, progress in list(self.state.running.values())[:room]:
            table.add_row(*self._row(trial, progress, width))
        hidden = len(self.state.running) - room
        more = [Text(f"  and {hidden} more", style="dim")] if hidden > 0 else []
        return Group(table, *more, self._overall())

    def _row(self, trial: Trial, progress: Progress | None, width: int) -> list[Text | ProgressBar]:
        at, total = (progress.env_steps, progress.total) if progress else (0, 1)
        phase = progress.phase if progress else "starting"
        share = f"{steps(at)}/{steps(total)}" if width >= 76 else f"{100 * at // max(1, total)}%"
        rate = f"{steps(progress.steps_per_s)}/s" if progress and progress.steps_per_s > 0 else ""
        training = phase in ("training", "evaluating") and _eta(progress) is not None
        row: list[Text | ProgressBar] = [
            Text(name(trial)),
            ProgressBar(total=max(1, total), completed=at, pulse=phase == "starting", complete_style="cyan"),
            Text(share if progress else ""),
        ]
        if width >= 76:
            row.append(Text(rate, style="dim"))
        row += [
            Text(_last(progress), style="green"),
            Text(duration(_eta(progress)) if training else phase, style="dim"),
        ]
        return row

    def _overall(self) -> Text:
        state = self.state
        text = Text(f"{state.done}/{state.total} trials", style="bold")
        if state.failed:
            text.append(f"  {state.failed} failed", style="bold red")
        text.append(f"  {duration(time.monotonic() - state.began)} so far", style="dim")
        if (left := state.eta()) is not None:
            text.append(f"  about {duration(left)} left", style="dim")
        return text


class PlainDisplay:
    """Lines for a file or a pipe: starts, ends, and where each trial is every 10% or 30 s."""

    def __init__(self, plan: Plan, console: Console, every: float = 30.0, least: float = 5.0) -> None:
        self.state, self.console, self.every, self.least = State(plan), console, every, least
        self.said: dict[str, tuple[float, int]] = {}

    def __enter__(self) -> PlainDisplay:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def _print(self, text: str | Text) -> None:
        self.console.print(text, soft_wrap=True, highlight=False, markup=False)

    def started(self, trial: Trial) -> None:
        """A trial has begun."""
        self.state.started(trial)
        self.said[trial.key] = (time.monotonic(), 0)
        self._print(f"started      {name(trial)}")

    def progress(self, trial: Trial, progress: Progress) -> None:
        """A trial tells where it is; printed when it is news."""
        self.state.progress(trial, progress)
        (at, share), now = self.said[trial.key], time.monotonic()
        tenth = 10 * progress.env_steps // max(1, progress.total)
        if now - at < self.least or (tenth <= share and now - at < self.every):
            return
        self.said[trial.key] = (now, tenth)
        parts = [f"{progress.env_steps:,} of {progress.total:,} env steps", f"{progress.steps_per_s:,.0f}/s"]
        parts += [_last(progress)] if _last(progress) else []
        parts += [f"{duration(_eta(progress))} left" if progress.phase == "training" else progress.phase]
        self._print(f"             {name(trial)}: " + ", ".join(parts))

    def ended(self, trial: Trial, ending: Ending, again: bool, seconds: float) -> None:
        """A trial has ended, or will be tried again."""
        last = _last(self.state.running.get(trial.key, (trial, None))[1])
        self.state.ended(trial, ending, again)
        line = _ending_line(trial, ending, again, seconds, last)
        line.append(f"  [{self.state.done}/{self.state.total}]")
        self._print(line)

    def say(self, text: str) -> None:
        """A line."""
        self._print(text)

    def tick(self) -> None:
        """Nothing to draw."""


def _ending_line(trial: Trial, ending: Ending, again: bool, seconds: float, last: str) -> Text:
    line = Text(f"{ending.status:<12} ", style=COLOURS.get(ending.status, ""))
    line.append(name(trial), style="default")
    if ending.status == "failed":
        line.append(f": {ending.reason}" + ("; trying again" if again else ""))
    else:
        line.append("".join(f"  {x}" for x in (last, duration(seconds)) if x), style="dim")
    return line


def of(plan: Plan, console: Console) -> LiveDisplay | PlainDisplay:
    """The display that suits where the output goes."""
    return (
        LiveDisplay(plan, console)
        if console.is_terminal and not console.is_dumb_terminal
        else PlainDisplay(plan, console)
    )


# -- tables -------------------------------------------------------------------------------------------------------


def plan_table(plan: Plan) -> Group:
    """The plan as ``--dry-run`` prints it: one row a task and method."""
    budget, notes = plan.experiment.budget, plan.experiment.notes
    head = (
        f"{plan.experiment.name}: {count(len(plan.items), 'trial')}, {len(plan.todo)} to do, {len(plan.slots)} at once"
    )
    each = (
        f"each {budget.env_steps:,} env steps, evaluated every {budget.eval_every:,} on {budget.eval_episodes} episodes"
    )
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for column, right in (("task", 0), ("algorithm", 0), ("seeds", 0), ("to do", 1), ("replay", 1), ("time", 1)):
        table.add_column(column, justify="right" if right else "left", overflow="fold")
    for task, label in plan.experiment.methods:
        items = [i for i in plan.items if (i.trial.task, i.trial.algorithm) == (task, label)]
        todo = [i for i in items if not i.done]
        replay, seconds = items[0].replay_bytes, items[0].seconds
        seeds = _ranges([i.trial.seed for i in items])
        table.add_row(
            task,
            label,
            seeds,
            str(len(todo)),
            "–" if replay is None else size(replay) if replay else "none",
            duration(seconds),
            style=None if todo else "dim",
        )
    memory = "unknown" if plan.memory is None else size(plan.memory)
    foot = f"replay memory at once: {memory}; time: " + (
        f"about {duration(plan.seconds)}" if plan.seconds is not None else "known once such a trial is complete"
    )
    lines: list[RenderableType] = [
        Text(head, style="bold"),
        *(Text(n, style="dim") for n in notes),
        Text(each),
        Text(""),
    ]
    return Group(*lines, table, Text(""), Text(foot))


def _ranges(seeds: Sequence[int]) -> str:
    """ "0-4, 7"."""
    parts: list[list[int]] = []
    for seed in sorted(seeds):
        if parts and seed == parts[-1][-1] + 1:
            parts[-1].append(seed)
        else:
            parts.append([seed])
    return ", ".join(f"{p[0]}-{p[-1]}" if len(p) > 1 else str(p[0]) for p in parts)
