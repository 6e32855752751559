"""MLflow's side: the only module that imports it. One experiment, a parent run, a child run a trial.

A point is logged once. What the server has already is asked where that is not certain: at the first visit of a session
to a run that is older than it, and after a request whose answer never came.
"""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.trackers.points import Point

PLACE, TRIAL, PARENT = "harness.results", "harness.trial", "mlflow.parentRunId"
"""Tags by which runs are found again: the experiment's folder with its host, and the trial's path below it."""
PARENT_KEY = "all"
"""In place of a trial's path: the experiment's own run."""
REQUEST_TIMEOUT = 5
"""Seconds of one HTTP request; not repeated by MLflow itself, which would take minutes."""
LARGEST = 1.7976931348623157e308
CHUNK = {"metrics": 1000, "params": 100, "tags": 100}
"""Most that MLflow takes at once; values are cut to TEXT characters."""
TEXT = {"params": 6000, "tags": 5000}


def bounded() -> None:
    """Settings that MLflow reads when it is imported: short requests, no telemetry, no chat."""
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", str(REQUEST_TIMEOUT))
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    os.environ.setdefault("MLFLOW_LOGGING_LEVEL", "WARNING")
    os.environ.setdefault("MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT", "true")
    os.environ.setdefault("GIT_PYTHON_REFRESH", "quiet")


class Missing(Exception):
    """A run that was known is not there any more."""


class Differs(Exception):
    """A run holds another value than the store for the same metric and step."""


class Server:
    """One experiment of one MLflow server or database."""

    def __init__(self, uri: str, name: str, place: str, artifacts: str | None) -> None:
        """``place`` identifies the folder of results; ``artifacts``: where a database without a server keeps files."""
        bounded()
        from mlflow import MlflowClient

        _create_database(uri)
        self.client = MlflowClient(tracking_uri=uri)
        self.place = _plain(place)
        found = self.client.get_experiment_by_name(name)
        if found is None:
            self.experiment = self.client.create_experiment(name, artifact_location=artifacts)
        else:
            self.experiment = found.experiment_id
            if found.lifecycle_stage == "deleted":
                self.client.restore_experiment(self.experiment)

    # -- runs -----------------------------------------------------------------------------------------------------

    def parent(self, known: str | None, name: str) -> str:
        """Id of the experiment's own run, made where there is none."""
        if known and self._alive(known):
            return known
        for run in self._search(f"tags.`{PLACE}` = '{self.place}' and tags.`{TRIAL}` = '{PARENT_KEY}'"):
            return str(run.info.run_id)
        tags = {PLACE: self.place, TRIAL: PARENT_KEY, "mlflow.runName": name}
        return str(self.client.create_run(self.experiment, tags=tags, run_name=name).info.run_id)

    def child(self, key: str) -> str | None:
        """Id of the run of trial ``key``, where there is one."""
        where = f"tags.`{PLACE}` = '{self.place}' and tags.`{TRIAL}` = '{_plain(key)}'"
        return next((str(run.info.run_id) for run in self._search(where)), None)

    def create_child(self, key: str, name: str, started: int) -> str:
        """A new run for trial ``key``."""
        tags = {TRIAL: _plain(key), PLACE: self.place, "mlflow.runName": name}
        made = self.client.create_run(self.experiment, start_time=started, tags=tags, run_name=name)
        return str(made.info.run_id)

    def delete(self, run: str) -> None:
        """Out of sight; MLflow keeps it among the deleted."""
        self.client.delete_run(run)

    def _search(self, where: str) -> Iterable[Any]:
        found: Iterable[Any] = self.client.search_runs(
            [self.experiment], where, max_results=10, order_by=["attributes.start_time ASC"]
        )
        return found

    def _alive(self, run: str) -> bool:
        with contextlib.suppress(Missing):
            return bool(self._get(run).info.lifecycle_stage == "active")
        return False

    def _get(self, run: str) -> Any:
        from mlflow.exceptions import MlflowException

        try:
            return self.client.get_run(run)
        except MlflowException as error:
            if error.error_code == "RESOURCE_DOES_NOT_EXIST":
                raise Missing(run) from error
            raise

    # -- what is logged -------------------------------------------------------------------------------------------

    def params(self, run: str) -> dict[str, str]:
        """Parameters that ``run`` has; these cannot be changed any more. Raises ``Missing``."""
        found = self._get(run)
        if found.info.lifecycle_stage != "active":
            raise Missing(run)
        return dict(found.data.params)

    def lacking(self, run: str, points: Iterable[Point]) -> list[Point]:
        """Those of ``points`` that ``run`` has not got. Raises ``Differs``."""
        wanted: dict[str, list[Point]] = {}
        for point in points:
            wanted.setdefault(metric_name(point.metric), []).append(point)
        found: list[Point] = []
        for name, mine in wanted.items():
            theirs = {m.step: m.value for m in self.client.get_metric_history(run, name)}
            for point in mine:
                if point.step not in theirs:
                    found.append(point)
                elif not _same(theirs[point.step], point.value):
                    raise Differs(f"{name} at {point.step}: {theirs[point.step]} there, {point.value} here")
        return found

    def log(self, run: str, points: Sequence[Point], params: Mapping[str, str], tags: Mapping[str, str]) -> None:
        """Add all of it."""
        from mlflow.entities import Metric, Param, RunTag

        parts: dict[str, list[Any]] = {
            "params": [Param(_key(k), v[: TEXT["params"]]) for k, v in params.items()],
            "tags": [RunTag(_key(k), v[: TEXT["tags"]]) for k, v in tags.items()],
            "metrics": [Metric(metric_name(p.metric), _finite(p.value), p.time, p.step) for p in points],
        }
        for what, items in parts.items():
            for at in range(0, len(items), CHUNK[what]):
                self.client.log_batch(run, **{what: items[at : at + CHUNK[what]]})

    def status(self, run: str, status: str, ended: int | None) -> None:
        """RUNNING again, or closed as FINISHED, FAILED or KILLED."""
        if status == "RUNNING":
            self.client.update_run(run, status=status)
        else:
            self.client.set_terminated(run, status, ended or int(1000 * time.time()))

    def artifacts(self, run: str, folder: Path, under: str) -> None:
        """Copy a folder of files."""
        self.client.log_artifacts(run, str(folder), under)


def metric_name(name: str) -> str:
    """``name`` with what MLflow refuses replaced by an underscore."""
    return _key(name)


def _key(name: str) -> str:
    return "".join(c if c.isalnum() or c in "_-. /" else "_" for c in name)[:250]


def _plain(text: str) -> str:
    """As it can stand in a search."""
    return text.replace("'", "")


def _finite(value: float) -> float:
    """Infinity as MLflow keeps it; it knows NaN."""
    return value if math.isnan(value) else max(-LARGEST, min(LARGEST, value))


def _same(theirs: float, ours: float) -> bool:
    ours = _finite(ours)
    both_nan = math.isnan(ours) and (math.isnan(theirs) or theirs == 0)  # some stores read NaN back as 0
    return both_nan or math.isclose(theirs, ours, rel_tol=1e-9, abs_tol=1e-300)


def _create_database(uri: str) -> None:
    """A new SQLite database is built aside and put in place whole: one left half-built could not be used any more."""
    path = Path(uri.removeprefix("sqlite:///"))
    if not uri.startswith("sqlite:///") or path.exists():
        return
    from mlflow import MlflowClient

    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        MlflowClient(tracking_uri=f"sqlite:///{aside}").search_experiments(max_results=1)
        with contextlib.suppress(FileExistsError):
            os.link(aside, path)
    finally:
        aside.unlink(missing_ok=True)
