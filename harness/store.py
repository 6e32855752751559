"""The only reader and writer of ``results/``.

One folder a trial, ``results/<experiment>/<suite>/<task>/<algorithm>/seed_<k>/``::

    trial.json        identity, every setting, versions, commit, engine, machine, status, timings, parameter counts
    metrics.csv       env_steps, metric, value                         training, one row a number
    evaluations.csv   env_steps, episode, return, length, <outcomes>   one row a greedy episode
    final.csv         the same columns: the best policy on fresh episodes (env_steps: when it was the best)
    timings.csv       env_steps, updates, seconds, cpu_seconds, cpu_joules, gpu_joules   of training so far; differs
                      between identical trials, alone
    cdm.csv           env_steps, metric, value                         CDM diagnostics, where measured
    log.txt           what the trial printed, with the traceback of a failure
    checkpoint.pt     complete state, to continue from; best.pt: networks of the best evaluation

``<experiment>/tuning.json`` may declare, method by method, what was spent on tuning before the trials, for the report's
fairness table: {"qmix": "24 settings x 3 seeds x 2M steps"}. ``<experiment>/asked.json`` lists the trials that were
asked for, so that those which no process has begun yet are not forgotten.

Files grow by whole lines, floats are written by ``repr`` (exact), and ``trial.json`` is replaced atomically, so a
killed trial leaves nothing half-written but a last line, which the reader drops and the next writer cuts.
"""

from __future__ import annotations

import csv
import io
import json
import os
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.errors import UserError

if TYPE_CHECKING:  # reading results must not wait for torch, nor a running trial for pandas
    import pandas as pd

    from harness.types import Trial

VERSION = 1
"""Of this layout; written in trial.json, checked when read."""

REFERENCE = "reference"
"""Folder below ``results/`` of the experiments that are committed; read only where it is named."""

TUNING = "tuning.json"
"""In an experiment's folder: method -> what was spent on tuning it, in words."""

ASKED = "asked.json"
"""In an experiment's folder: every trial that a request named, <suite>/<task>/<algorithm>/seed_<k>, in that order."""

STATUSES = ("pending", "running", "complete", "failed", "interrupted")
TABLES = ("metrics.csv", "evaluations.csv", "final.csv", "timings.csv", "cdm.csv")


def write_atomic(path: Path, data: bytes) -> None:
    """Replace ``path`` by ``data`` in one step: a reader sees the old file or the new one, whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


class TrialFolder:
    """One trial's folder: its record and its growing tables."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)

    @classmethod
    def of(cls, trial: Trial) -> TrialFolder:
        """The folder of ``trial`` below its results root."""
        return cls(Path(trial.results) / trial.key)

    # -- record -------------------------------------------------------------------------------------------------

    def record(self) -> dict[str, Any] | None:
        """``trial.json``, or None where there is none. Raises ``ValueError`` naming the file when it is damaged."""
        try:
            text = (self.path / "trial.json").read_text()
        except FileNotFoundError:
            return None
        try:
            record = json.loads(text)
            version = record["version"]
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{self.path / 'trial.json'}: damaged ({error})") from error
        if version != VERSION:
            raise ValueError(f"{self.path / 'trial.json'}: layout version {version}, this harness reads {VERSION}")
        return dict(record)

    def update(self, **values: Any) -> None:
        """Merge ``values`` into the record, atomically."""
        record = self.record() or {"version": VERSION}
        record.update(values)
        write_atomic(self.path / "trial.json", (json.dumps(record, indent=1, sort_keys=True) + "\n").encode())

    def tidy(self) -> None:
        """Remove what a kill in ``write_atomic`` left half-written. For whoever holds the trial's lock."""
        for path in self.path.glob(".*.*"):
            path.unlink(missing_ok=True)

    # -- tables -------------------------------------------------------------------------------------------------

    def append(self, table: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
        """Add whole lines to ``table``; writes the header first where the table is new."""
        path = self.path / table
        path.parent.mkdir(parents=True, exist_ok=True)
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        if not path.exists() or path.stat().st_size == 0:
            writer.writerow(columns)
        for row in rows:
            writer.writerow([repr(x) if isinstance(x, float) else x for x in row])
        with open(path, "ab") as file:
            file.write(text.getvalue().encode())

    def positions(self) -> dict[str, int]:
        """Bytes in each table now; a checkpoint keeps them."""
        return {t: (self.path / t).stat().st_size if (self.path / t).exists() else 0 for t in TABLES}

    def changed(self, sizes: Mapping[str, int]) -> str | None:
        """The first table that is not as long as when the trial was completed, ``sizes`` in bytes then; diagnostics are
        added afterwards."""
        now = self.positions()
        return next((t for t, size in sizes.items() if t != "cdm.csv" and now.get(t) != size), None)

    def rewind(self, positions: Mapping[str, int]) -> None:
        """Cut every table back to where it stood at a checkpoint, so that continuing repeats no row."""
        for table in TABLES:
            path, size = self.path / table, positions.get(table, 0)
            if not path.exists():
                if size:
                    raise ValueError(f"{path}: missing, {size} bytes were written")
                continue
            if path.stat().st_size < size:
                raise ValueError(f"{path}: {path.stat().st_size} bytes, {size} were written")
            os.truncate(path, size)


def ask(trials: Sequence[Trial]) -> None:
    """Note that ``trials``, of one experiment, were asked for."""
    place = Path(trials[0].results) / trials[0].experiment
    before = asked(place)
    now = [t.key.partition("/")[2] for t in trials]
    if new := [key for key in now if key not in set(before)]:
        write_atomic(place / ASKED, (json.dumps([*before, *new], indent=0) + "\n").encode())


def asked(experiment: Path) -> list[str]:
    """Trials of ``experiment`` that were asked for; none where no list is, or none that can be read: it is a
    convenience, and the trials' own folders say what there is."""
    try:
        found = json.loads((experiment / ASKED).read_text())
    except (OSError, ValueError):
        return []
    return [str(key) for key in found] if isinstance(found, list) else []


# -- reading ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Results:
    """Trials of one or several experiments, as tables.

    ``trials``       one row a trial: trial (its key), experiment, suite, task, algorithm, seed, status, engine, and
                     ``record`` (the whole trial.json as a dict)
    the others       the columns of the files, preceded by ``trial``; empty where no trial has the file
    ``damaged``      (path, reason) of what could not be read; its trial is left out of the tables it concerns
    """

    trials: pd.DataFrame
    metrics: pd.DataFrame
    evaluations: pd.DataFrame
    final: pd.DataFrame
    timings: pd.DataFrame
    cdm: pd.DataFrame
    damaged: tuple[tuple[str, str], ...] = ()


TRIAL_COLUMNS = ("trial", "experiment", "suite", "task", "algorithm", "seed", "status", "engine", "record")


def folders(path: Path | str) -> list[TrialFolder]:
    """Every trial folder at or below ``path``, in order of path."""
    return [TrialFolder(p.parent) for p in sorted(Path(path).rglob("trial.json"))]


def exact() -> dict[str, Any]:
    """For ``read_csv``: floats as they were written. From 3.1 on pandas does so by itself and warns of the option."""
    import pandas as pd

    new = tuple(map(int, pd.__version__.split(".")[:2])) >= (3, 1)
    return {} if new else {"float_precision": "round_trip"}


def read_table(path: Path) -> pd.DataFrame | None:
    """One table; None where there is none. A last line without its end is dropped. ValueError when damaged."""
    import pandas as pd

    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    data = data[: data.rfind(b"\n") + 1]
    if not data:
        return None
    try:
        table: pd.DataFrame = pd.read_csv(io.BytesIO(data), **exact())
    except (ValueError, pd.errors.ParserError) as error:
        raise ValueError(f"{path}: {error}") from error
    if "env_steps" not in table or table["env_steps"].isna().any():
        raise ValueError(f"{path}: not a table of this harness, or damaged")
    return table


def tuning(experiment: Path) -> dict[str, str]:
    """What the experiment's ``tuning.json`` declares; nothing without one. Raises ``UserError`` when it is damaged."""
    path = experiment / TUNING
    try:
        found = json.loads(path.read_text())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: not JSON ({error})") from error
    if not isinstance(found, dict) or not all(isinstance(v, str) for v in found.values()):
        raise UserError(f'{path}: a method and a text each is expected, e.g. {{"qmix": "24 settings x 3 seeds"}}')
    return found


def load(path: Path | str) -> Results:
    """All trials at or below ``path``, in folders or in archives. Raises ``UserError`` when there is none."""
    import pandas as pd

    from harness import archive

    root = Path(path)
    if not root.exists():
        raise UserError(f"{root}: no such folder; results are written below results/<experiment>")
    rows: list[dict[str, Any]] = []
    tables: dict[str, list[pd.DataFrame]] = {t: [] for t in TABLES}
    damaged: list[tuple[str, str]] = []
    declared: dict[Path, dict[str, str]] = {}
    for folder in folders(root):
        try:
            record = folder.record()
        except ValueError as error:
            damaged.append((str(folder.path), str(error)))
            continue
        if record is None:
            continue
        if record.get("status") == "complete" and (changed := folder.changed(record.get("bytes") or {})):
            damaged.append((str(folder.path), f"{folder.path}: complete, but {changed} is not as it was written"))
            continue
        place = Path(os.path.normpath(folder.path.absolute() / "../../../.."))  # the experiment, four levels up
        if place not in declared:
            declared[place] = tuning(place)
        if text := declared[place].get(str(record.get("algorithm"))):
            record["tuning"] = text
        identity = {k: record.get(k) for k in TRIAL_COLUMNS if k not in ("trial", "record")}
        key = "/".join(str(record.get(k)) for k in ("experiment", "suite", "task", "algorithm"))
        key += f"/seed_{record.get('seed')}"
        rows.append({"trial": key, **identity, "record": record})
        for name, parts in tables.items():
            try:
                table = read_table(folder.path / name)
            except ValueError as error:
                damaged.append((str(folder.path / name), str(error)))
                continue
            if table is not None:
                table.insert(0, "trial", key)
                parts.append(table)
    for place in archive.find(root):
        try:
            packed, found = archive.read(place, tuple(t.removesuffix(".csv") for t in TABLES))
        except ValueError as error:
            damaged.append((str(place), str(error)))
            continue
        rows += [dict(zip(TRIAL_COLUMNS, row, strict=True)) for row in packed[list(TRIAL_COLUMNS)].values.tolist()]
        for name, table in found.items():
            tables[f"{name}.csv"].append(table)
    if not rows and not damaged:
        raise UserError(f"{root}: no trials there; `harness run suite=smac` makes some")
    joined = {
        name.removesuffix(".csv"): pd.concat(parts, ignore_index=True) if parts else pd.DataFrame({"trial": []})
        for name, parts in tables.items()
    }
    return Results(trials=pd.DataFrame(rows, columns=list(TRIAL_COLUMNS)), damaged=tuple(damaged), **joined)
