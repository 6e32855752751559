"""Diagnostics of trials already run: from their checkpoints to rows in ``cdm.csv`` beside their results."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping
from typing import Any

from harness.cdm import corrupt, play
from harness.cdm.definitions import COLUMNS
from harness.cdm.measure import Measurement, Options, measure
from harness.errors import UserError
from harness.saved import Saved, teams
from harness.store import TrialFolder, read_table, write_atomic

OWN_INDEX = 1_000_000
"""Of the diagnostics' random stream: those of a trial's own evaluations are smaller."""


def diagnose(
    saved: Saved, options: Options, which: str = "checkpoint", again: bool = False
) -> Iterator[tuple[str, Measurement | None]]:
    """Measure every saved team and append the rows; yields (file, measurement), None for a point measured before.

    ``again`` measures it anew and replaces its rows, which only a complete trial allows: the others' checkpoints count
    the bytes of their tables.
    """
    earlier: play.Player | None = None
    for name, player, target in teams(saved, which):
        old = _measured(saved.folder)
        if player.env_steps in old and not again:
            earlier = player
            yield name, None
            continue
        before = earlier if earlier is not None and earlier.env_steps < player.env_steps else None
        seed = saved.seeds.integer("diagnostics", OWN_INDEX + player.env_steps)
        found = measure(player, target, saved.suite, saved.trial.task, saved.env, seed, options, before)
        if player.env_steps in old:
            _drop(saved.folder, player.env_steps)
        saved.folder.append("cdm.csv", COLUMNS, found.rows())
        note = {"missing": found.missing, "about": found.about, "seconds": found.seconds}
        saved.folder.update(cdm=note)
        earlier = player
        yield name, found


def _measured(folder: TrialFolder) -> set[int]:
    table = read_table(folder.path / "cdm.csv")
    return set() if table is None else {int(x) for x in table["env_steps"].unique()}


def _drop(folder: TrialFolder, env_steps: int) -> None:
    record = folder.record() or {}
    if record.get("status") != "complete":
        raise UserError(
            f"{folder.path}: only a complete trial can be measured anew, this one is {record.get('status')}"
        )
    path = folder.path / "cdm.csv"
    with path.open(newline="") as file:
        rows = [row for row in csv.reader(file) if row and row[0] != str(env_steps)]
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    write_atomic(path, text.getvalue().encode())


# -- error amplification --------------------------------------------------------------------------------------------


def corruption(record: Mapping[str, Any]) -> corrupt.Corruption | None:
    """What ``corrupt=`` a trial was run with, as its settings keep it: text, or the fields."""
    kept = (record.get("settings") or {}).get("corrupt")
    if not kept:
        return None
    return corrupt.parse(kept) if isinstance(kept, str) else corrupt.Corruption(**kept)


def identity(saved: Saved) -> tuple[str, str, str, int]:
    """What a control shares with the trial it controls."""
    return saved.trial.suite, saved.trial.task, saved.trial.algorithm, saved.trial.seed


def amplification(harmed: Saved, control: Saved, episodes: int) -> dict[str, float]:
    """``play.amplification`` of the last checkpoints of a trial with ``corrupt=`` and of its control; appends rows."""
    found = corruption(harmed.folder.record() or {})
    if found is None:
        raise UserError(f"{harmed.folder.path}: was not run with corrupt=, like {corrupt.EXAMPLE}")
    if corruption(control.folder.record() or {}) is not None:
        raise UserError(f"{control.folder.path}: a control is run without corrupt=")
    last = [[player for _, player, _ in teams(s, "last")] for s in (harmed, control)]
    for saved, players in zip((harmed, control), last, strict=True):
        if not players:
            raise UserError(f"{saved.folder.path}: no checkpoint.pt")
    (bad,), (good,) = last
    if bad.env_steps < found.end:
        raise UserError(f"{harmed.folder.path}: its last checkpoint is at {bad.env_steps}, before the bad spell ends")
    seeds = harmed.seeds
    rounds = [seeds.integer("diagnostics", 2 * OWN_INDEX + k) for k in range(-(-episodes // harmed.env.num_envs))]
    rng = seeds.generator("diagnostics", harmed.trial.device, 3 * OWN_INDEX)
    values = play.amplification(harmed.env, good, bad, found.agent, rounds, rng)
    rows = [(bad.env_steps, metric, v) for metric, v in sorted(values.items()) if v == v]
    harmed.folder.append("cdm.csv", COLUMNS, rows)
    return values
