"""The command line: run, status, list, show here; what reads results in ``harness.reporting.commands``.

Nothing heavy is imported before a command needs it.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console

from harness import __version__
from harness.cdm.commands import COMMANDS as CDM_COMMANDS
from harness.errors import UserError
from harness.reporting.commands import COMMANDS

if TYPE_CHECKING:
    from harness.plan import Plan


class Group(click.Group):
    """Turns a ``UserError``, and a place that cannot be read or written, into one line on stderr and exit code 2."""

    def invoke(self, ctx: click.Context) -> Any:
        """The command's work."""
        try:
            return super().invoke(ctx)
        except UserError as error:
            click.echo(f"harness: {error}", err=True)
            ctx.exit(2)
        except (PermissionError, FileExistsError, NotADirectoryError, IsADirectoryError, FileNotFoundError) as error:
            if error.filename is None:
                raise
            click.echo(f"harness: {error.filename}: {error.strerror}", err=True)
            ctx.exit(2)


class RunCommand(click.Command):
    """``run``, whose help lists every setting from where it is defined."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The settings."""
        from harness.show import settings_help

        settings_help(formatter)


@click.group(cls=Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="harness")
def main() -> None:
    """Compare multi-agent RL methods that train centrally and act alone."""


@main.command(cls=RunCommand, context_settings={"ignore_unknown_options": False})
@click.argument("settings", nargs=-1, metavar="suite=NAME [key=value]...")
@click.option("--dry-run", is_flag=True, help="Print what would be run, with memory and time, and stop.")
def run(settings: tuple[str, ...], dry_run: bool) -> None:
    """Run an experiment: every task x algorithm x seed, each trial in a process of its own.

    The same command again does only what is missing: complete trials are skipped, interrupted ones continue from their
    checkpoint, failed ones are tried again. Ctrl-C writes checkpoints and stops; twice stops at once.

    \b
    harness run suite=smac
    harness run suite=smac tasks=3m,2s3z algorithms=vdn,qmix seeds=5 qmix.lr=3e-4
    harness run suite=smac budget=paper --dry-run
    """
    from harness import config, plan

    made = plan.make(config.parse(settings))
    console = Console(highlight=False)
    if dry_run:
        from harness.display import plan_table

        console.print(plan_table(made))
        return
    sys.exit(_run(made, console))


def _run(made: Plan, console: Console) -> int:
    from harness import display, tracking
    from harness.display import count
    from harness.results_table import after_run
    from harness.runner import Runner

    experiment = made.experiment
    done = len(made.items) - len(made.todo)
    console.print(
        f"[bold]{experiment.name}[/]: {count(len(made.todo), 'trial')} to do",
        f"({done} complete already)" if done else "",
    )
    for note in experiment.notes:
        console.print(note, style="dim")
    place = Path(experiment.options.results) / experiment.name
    with display.of(made, console) as shown, tracking.beside(experiment.options, place, shown.say) as look:
        outcome = Runner(made, shown, between=look).run()
    console.print(after_run(made, outcome))
    return outcome.exit_code


@main.command()
@click.argument("path", required=False, type=click.Path(path_type=Path))
def status(path: Path | None) -> None:
    """Show where every trial stands. PATH is a folder of results; default: the experiment run last."""
    from harness.results_table import latest, status_table

    Console(highlight=False).print(status_table(path or latest(Path("results"))))


@main.command()
@click.argument("paths", nargs=-1, type=click.Path(path_type=Path))
@click.option("--tracking-uri", default="", help="As in `harness run`. Default: where it was logged last.")
@click.option("--report", type=click.Path(path_type=Path), help="Folder of a report to log with it.")
def track(paths: tuple[Path, ...], tracking_uri: str, report: Path | None) -> None:
    """Bring MLflow to what the results hold: experiments run without tracking=mlflow, or while the server was down.

    PATHS are folders of results; default: the experiment run last. What is there already is not logged again.
    """
    from harness import tracking
    from harness.results_table import latest

    tracking.check(tracking_uri)
    chosen = paths or [latest(Path("results"))]
    for path in chosen:
        if not tracking.experiments([path]):
            raise UserError(f"{path}: no trials there; `harness run suite=smac` makes some")
    for root in tracking.experiments(chosen):
        click.echo(tracking.track(root, tracking_uri, report))


@main.command(name="list")
@click.argument("what", required=False, type=click.Choice(["algorithms", "suites", "tasks"]))
def list_(what: str | None) -> None:
    """List what is installed: algorithms, suites or tasks; all of them by default."""
    from harness.show import listing

    for part in [what] if what else ["algorithms", "suites", "tasks"]:
        Console(highlight=False).print(listing(part))


@main.command()
@click.argument("name")
def show(name: str) -> None:
    """Show an algorithm (qmix, qmix@pymarl2, qmix@hidden=128) or a suite: settings, defaults, docs, presets, tasks."""
    from harness.show import page

    Console(highlight=False).print(page(name))


for _command in (*COMMANDS, *CDM_COMMANDS):
    main.add_command(_command)
