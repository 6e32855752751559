"""The command ``harness diagnose``; ``harness.cli`` registers it. Nothing heavy is imported before it runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

SHOWN = (
    "own/teammate_share", "joint/teammate_share", "joint/gap_share", "own/cosine@1.0", "joint/cosine@1.0", "own/snr",
    "igm/violation", "representation/error", "degradation/uniform",
)  # fmt: skip
"""What is printed of each measurement; everything goes into ``cdm.csv``."""


@click.command()
@click.argument("path", type=click.Path(path_type=Path))
@click.option(
    "--every",
    type=click.Choice(["checkpoint", "last", "best"]),
    default="checkpoint",
    show_default=True,
    help="Every saved checkpoint of a trial (its best and its last), or one of them.",
)
@click.option("--states", default=256, show_default=True, type=click.IntRange(2), help="States looked at.")
@click.option(
    "--samples",
    default=64,
    show_default=True,
    type=click.IntRange(4),
    help="Draws of the teammates' actions a state, where joint actions are too many to enumerate.",
)
@click.option("--episodes", default=32, show_default=True, type=click.IntRange(1), help="Greedy episodes a return.")
@click.option(
    "--control", type=click.Path(path_type=Path), help="Trials without corrupt=: measure what it did to others."
)
@click.option("--again", is_flag=True, help="Measure points anew that were measured before.")
@click.option("--device", default="cpu", show_default=True, type=click.Choice(["auto", "cpu", "cuda"]))
def diagnose(path: Path, every: str, control: Path | None, again: bool, device: str, **how: int) -> None:
    """Measure the centralised-decentralised mismatch of trials already run, beside their results.

    PATH is a trial's folder or one above several. What the numbers mean: docs/cdm.md.

    \b
    harness diagnose results/smac-quick
    harness diagnose results/corrupted --control results/clean
    """
    import torch

    from harness import saved
    from harness.cdm import saved as measured
    from harness.cdm.measure import Options
    from harness.errors import UserError
    from harness.plan import devices

    torch.set_num_threads(1)
    device = devices(device, 1, 1)[0]
    options, failed = Options(**how), 0
    if control is not None:
        _amplification(path, control, how["episodes"], device)
        return
    for folder in saved.find(path):
        click.echo(f"{folder.path}")
        opened = None
        try:
            opened = saved.opened(folder, device)
            count = 0
            for name, found in measured.diagnose(opened, options, every, again):
                count += 1
                _say(name, found)
            if not count:
                raise UserError("no saved networks")
        except UserError as error:
            failed += 1
            click.echo(f"  left out: {error}", err=True)
        finally:
            if opened is not None:
                opened.env.close()
    if failed:
        raise UserError(f"{failed} of the trials below {path} could not be measured; the reasons are above")


def _say(name: str, found: Any) -> None:
    if found is None:
        click.echo(f"  {name}: measured before; --again measures anew")
        return
    about = found.about
    click.echo(f"  {name} at {found.env_steps:,} steps: {about['states']} states, {found.seconds:.1f} s")
    click.echo(f"    policy: {about['policy']}; own estimator: {about.get('own', 'none')}")
    shown = [f"{metric} {found.values[metric]:.3g}" for metric in SHOWN if metric in found.values]
    click.echo("    " + ", ".join(shown))
    for metric, why in sorted(found.missing.items()):
        click.echo(f"    no {metric}: {why}")


def _amplification(path: Path, control: Path, episodes: int, device: str) -> None:
    from harness import saved
    from harness.cdm import saved as measured
    from harness.errors import UserError

    controls = {measured.identity(s): s for s in (saved.opened(f, device) for f in saved.find(control))}
    for folder in saved.find(path):
        harmed = saved.opened(folder, device)
        partner = controls.get(measured.identity(harmed))
        if partner is None:
            raise UserError(f"{folder.path}: no trial of the same suite, task, method and seed below {control}")
        values = measured.amplification(harmed, partner, episodes)
        click.echo(f"{folder.path}")
        click.echo("  " + ", ".join(f"{metric.partition('/')[2]} {v:.3g}" for metric, v in values.items()))


COMMANDS = (diagnose,)
