"""Finished trials as a few parquet files: what `results/reference` keeps, read by `load` like folders."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd

MARK = "trials.parquet"
"""The file that makes a folder an archive; the other tables lie beside it."""


def write(trials: pd.DataFrame, tables: dict[str, pd.DataFrame], folder: Path) -> None:
    """One file a table: ``trials`` as ``Results.trials``, its records as JSON; the others by name."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, table in tables.items():
        path = folder / f"{name}.parquet"
        path.unlink(missing_ok=True)
        if len(table):
            small = table.astype({c: "category" for c in ("trial", "metric") if c in table})
            small.to_parquet(path, index=False, compression="zstd")
    packed = trials.assign(record=[json.dumps(r, sort_keys=True) for r in trials["record"]])
    packed.to_parquet(folder / MARK, index=False, compression="zstd")


def find(root: Path) -> list[Path]:
    """Every archive at or below ``root``."""
    return [p.parent for p in sorted(root.rglob(MARK))]


def read(folder: Path, names: tuple[str, ...]) -> tuple[pd.DataFrame, dict[str, pd.DataFrame]]:
    """What ``write`` wrote: trials, and the tables of ``names`` that there are. Raises ``ValueError`` when damaged."""

    def table(name: str) -> pd.DataFrame:
        path = folder / f"{name}.parquet"
        try:
            found: pd.DataFrame = pd.read_parquet(path)
        except (OSError, ValueError) as error:
            raise ValueError(f"{path}: {error}") from error
        return found.astype({c: object for c in ("trial", "metric") if c in found})

    trials = table(MARK.removesuffix(".parquet"))
    trials["record"] = [json.loads(r) for r in trials["record"]]
    return trials, {name: table(name) for name in names if (folder / f"{name}.parquet").exists()}
