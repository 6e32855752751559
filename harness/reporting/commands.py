"""Commands of results already there: report, compare, export, import, replay. ``harness.cli`` registers ``COMMANDS``.

Nothing heavy is imported before a command runs.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

PATHS = click.argument("paths", nargs=-1, type=click.Path(path_type=Path))


def _chosen(paths: tuple[Path, ...]) -> list[Path]:
    if paths:
        return list(paths)
    from harness.results_table import latest

    return [latest(Path("results"))]


def _names(_: Any, __: Any, text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _all_names(context: Any, option: Any, texts: tuple[str, ...]) -> tuple[str, ...]:
    return _names(context, option, ",".join(texts))


def _selection(command: Any) -> Any:
    """Options that report and compare share; names and defaults are those of ``harness.analysis.study.Options``."""
    for option in (
        click.option(
            "--match", default="env_steps", help="At equal env_steps | updates | seconds | cpu_seconds | joules."
        ),
        click.option("--engine", help="Keep the trials of this engine."),
        click.option("--split", is_flag=True, help="Show mixed engines or settings apart instead of refusing them."),
        click.option(
            "--tasks",
            "--task",
            "tasks",
            multiple=True,
            callback=_all_names,
            help="Keep these tasks: separated by commas, or one after the other.",
        ),
        click.option("--seed", default=0, show_default=True, help="Of the bootstrap."),
        click.option("--resamples", default=10_000, show_default=True, help="Of the bootstrap."),
    ):
        command = option(command)
    return command


@click.command()
@PATHS
@click.option("--out", type=click.Path(path_type=Path), help="Folder to write. Default: reports/<experiment>.")
@click.option("--format", "formats", default="html,md", show_default=True, callback=_names, help="Of html and md.")
@click.option("--baseline", help="Compare every method with this one. Default: all pairs.")
@click.option("--statistic", default="mean", show_default=True, help="Of the curves: mean, iqm or median over seeds.")
@click.option("--partial", is_flag=True, help="Draw unfinished trials too.")
@click.option("--algorithms", default="", callback=_names, help="Keep these methods, separated by commas.")
@_selection
def report(paths: tuple[Path, ...], out: Path | None, formats: tuple[str, ...], **options: Any) -> None:
    """Compare the methods of an experiment: curves, tables, intervals, in one page.

    PATHS are folders of results, pooled where that is right. Default: the experiment run last. Where an experiment is
    tracked (tracking=mlflow), the report is logged with it.
    """
    from harness import tracking
    from harness.reporting.report import build

    chosen = _chosen(paths)
    made = build(chosen, out, formats, **options)
    click.echo(made)
    if trouble := tracking.log_report(chosen, made.parent if made.is_file() else made):
        click.echo(trouble, err=True)


@click.command()
@click.argument("a")
@click.argument("b")
@PATHS
@_selection
def compare(a: str, b: str, paths: tuple[Path, ...], **options: Any) -> None:
    """Compare methods A and B on each task, in the terminal.

    PATHS are folders of results. Default: the experiment run last.
    """
    from harness.reporting.terminal import compare as told

    told(a, b, _chosen(paths), **options)


@click.command()
@PATHS
@click.option("--format", "kind", required=True, help="marl-eval | rliable | csv | parquet | archive (for `report`).")
@click.option("--out", type=click.Path(path_type=Path), help="What to write. Default: <experiment> with its suffix.")
@click.option("--engine", help="Keep the trials of this engine.")
def export(paths: tuple[Path, ...], kind: str, out: Path | None, engine: str | None) -> None:
    """Write complete trials in the format of another tool. Default PATHS: the experiment run last."""
    from harness.analysis import exchange
    from harness.errors import unknown

    if kind not in exchange.EXPORTS:
        raise unknown("format", kind, exchange.EXPORTS)
    chosen = _chosen(paths)
    target = out or Path(chosen[0].resolve().name + exchange.SUFFIX[kind])
    click.echo(exchange.export(chosen, kind, target, engine, lambda text: click.echo(f"! {text}", err=True)))


@click.command("import")
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--format", "kind", required=True, help="marl-eval | csv | sacred | tensorboard.")
@click.option("--name", required=True, help="Of the experiment to make below results/.")
@click.option("--suite", default="imported", show_default=True, help="Where the file does not say.")
@click.option("--task", default="", help="Where the file does not say.")
@click.option("--algorithm", default="", help="Where the file does not say.")
@click.option("--engine", default="unknown", show_default=True, help='What it was measured on, e.g. "smax 0.2.0".')
@click.option("--metric", default="", help="That methods are compared by. Default: won, else return.")
@click.option("--bounds", default="", help="LOW,HIGH of the metric; needed for returns.")
@click.option("--tag", "tags", multiple=True, help="SOURCE=METRIC: what a tag or column of the source is here.")
@click.option("--results", default="results", type=click.Path(path_type=Path), help="Folder of all experiments.")
def import_(path: Path, kind: str, name: str, bounds: str, tags: tuple[str, ...], results: Path, **about: Any) -> None:
    """Take in results of another system, marked as imported, so that they stand in the same report."""
    from harness.analysis import imports

    said = imports.About(experiment=name, bounds=_bounds(bounds), tags=_tags(tags), **about)
    made = imports.read(path, kind, said, results)
    click.echo(f"{len(made)} trials below {results / name}")


def _bounds(text: str) -> tuple[float, float] | None:
    from harness.errors import UserError

    if not text:
        return None
    try:
        low, high = (float(part) for part in text.split(","))
    except ValueError as error:
        raise UserError(f"bounds={text!r}: two numbers are expected, LOW,HIGH") from error
    if not low < high:
        raise UserError(f"bounds={text!r}: the first must be below the second")
    return low, high


def _tags(tags: tuple[str, ...]) -> dict[str, str]:
    from harness.errors import UserError

    for tag in tags:
        if "=" not in tag:
            raise UserError(f"tag {tag!r}: SOURCE=METRIC is expected, e.g. eval/win_rate=won")
    return {t.rpartition("=")[0]: t.rpartition("=")[2] for t in tags}


@click.command()
@click.argument("trial", type=click.Path(path_type=Path))
@click.option("--episodes", default=3, show_default=True, type=click.IntRange(1, 100), help="Greedy episodes to show.")
@click.option(
    "--out", type=click.Path(path_type=Path), help="Folder to write. Default: one below reports/<experiment>."
)
@click.option(
    "--checkpoint",
    type=click.Choice(["best", "last"]),
    default="best",
    show_default=True,
    help="The networks of the best evaluation, or those of the last checkpoint.",
)
@click.option(
    "--seed", default=0, show_default=True, type=click.IntRange(0), help="0: the first episodes of final.csv."
)
def replay(trial: Path, episodes: int, out: Path | None, checkpoint: str, seed: int) -> None:
    """Show greedy episodes of a trial's saved networks: a page that opens without a network, and GIFs.

    TRIAL is a trial's folder, or one above no other trial. With the best networks of a complete trial and seed 0 the
    episodes are the first of its final.csv, number for number.

    \b
    harness replay results/smac-quick/smac/3m/qmix/seed_0
    """
    from harness.reporting.replay import write
    from harness.saved import one
    from harness.watch import watch

    seen = watch(one(trial), episodes, checkpoint, seed)
    name = "{suite}-{task}-{algorithm}-seed_{seed}".format(**seen.about)
    folder = out or Path("reports") / seen.about["experiment"] / "replay" / name
    made = write(seen.about, seen.recordings, folder)
    for recording in seen.recordings:
        click.echo(f"episode {recording.number + 1}: {recording.ending}")
    for path in made:
        click.echo(path)


COMMANDS = (report, compare, export, import_, replay)
