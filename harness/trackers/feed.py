"""Results -> MLflow, pass by pass: what is new in the store since the last one, at most once each.

How far each trial was logged stands in ``tracking.json`` beside the experiment's results, by server. ``Feed`` is
used by the process beside a run (``harness.trackers.companion``) and by ``harness track``.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import platform
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from harness.store import TrialFolder, folders, write_atomic
from harness.trackers import points
from harness.trackers.points import Point, Told
from harness.trackers.server import PARENT, Differs, Missing, Server

VERSION = 1
NAME, LOCK = "tracking.json", ".tracking.lock"


class Busy(Exception):
    """Another process is logging this experiment."""


class Notes:
    """``tracking.json``: which run is which trial's, and how far it was logged."""

    def __init__(self, root: Path) -> None:
        self.path = root / NAME
        self.here = str(root.resolve())
        self.all: dict[str, Any] = {"version": VERSION, "place": self.here, "uri": "", "servers": {}}
        with contextlib.suppress(OSError, ValueError):  # damaged or gone: the server is asked instead
            found = json.loads(self.path.read_text())
            if found["version"] == VERSION and not self._copied(found["place"]):
                self.all = {**found, "place": self.here}

    def _copied(self, place: str) -> bool:
        """The experiment these notes are of still stands where it was: this folder is a copy with runs of its own."""
        return place != self.here and (Path(place) / NAME).exists()

    def of(self, uri: str) -> dict[str, Any]:
        """Notes about one server: {"parent": run, "trials": {key: {"run", "status", "logged": {table: [n, crc]}}}}."""
        self.all["uri"] = uri
        found: dict[str, Any] = self.all["servers"].setdefault(uri, {"parent": None, "trials": {}})
        return found

    def save(self) -> None:
        """Atomically."""
        write_atomic(self.path, (json.dumps(self.all, indent=1, sort_keys=True) + "\n").encode())


class Feed:
    """Keeps one experiment on one server."""

    def __init__(self, root: Path, uri: str, artifacts: str | None = None, compare: bool = False) -> None:
        """``root`` is results/<experiment>. ``compare``: believe the server, not the notes. It is not asked yet."""
        self.root, self.uri, self._artifacts, self._compare = root, uri, artifacts, compare
        self.notes = Notes(root)
        self.mine = self.notes.of(uri)
        self._server: Server | None = None
        self._asked: set[str] = set()
        """Trials whose run is known to hold what the notes say: made, or compared, in this session."""
        self._seen: dict[str, Any] = {}
        self._parent: str | None = None
        self.unreadable: dict[str, str] = {}

    @property
    def server(self) -> Server:
        """Connected at the first use."""
        if self._server is None:
            place = f"{platform.node()}:{self.notes.here}"
            self._server = Server(self.uri, self.root.resolve().name, place, self._artifacts)
        return self._server

    def parent(self) -> str:
        """The experiment's own run; asked for once a session."""
        if self._parent is None:
            run = self.server.parent(self.mine["parent"], self.root.resolve().name)
            if run != self.mine["parent"]:
                for note in self.mine["trials"].values():
                    note["about"] = None  # they may be gone with it; if not, they get a new parent
                self.mine.update(parent=run, status="RUNNING")
                self.notes.save()
            self._parent = run
        return self._parent

    def step(self, live: bool) -> int:
        """Log what is new. ``live``: a runner is at work. Returns the number of points logged."""
        parent, logged, states = self.parent(), 0, []
        for folder in folders(self.root):
            key = str(folder.path.relative_to(self.root))
            mark = (points.stamp(folder), live)
            before = self._seen.get(key, (None, ""))
            if before[0] != mark or (before[1] == "RUNNING" and not live):
                told = self._read(folder, live)
                if told is None:
                    continue
                logged += self._trial(parent, told)
                self._seen[key] = (mark, told.status)
            states.append(self._seen[key][1])
        state = "RUNNING" if live else _whole(states)
        if self.mine.get("status") != state:
            self.server.status(parent, state, None)
            self.mine["status"] = state
            self.notes.save()
        return logged

    @property
    def running(self) -> bool:
        """A trial ran when it was looked at last."""
        return any(status == "RUNNING" for _, status in self._seen.values())

    def _read(self, folder: TrialFolder, live: bool) -> Told | None:
        try:
            told = points.read(folder, self.root, live)
        except ValueError as error:
            self.unreadable[str(folder.path)] = str(error)
            return None
        for reason in told.damaged if told else ():
            self.unreadable[str(folder.path)] = reason
        return told

    # -- one trial ------------------------------------------------------------------------------------------------

    def _trial(self, parent: str, told: Told) -> int:
        note = self.mine["trials"].get(told.key)
        if note is not None and _contradicts(note, told):  # begun anew with other results
            self._delete(note["run"])
            note = None
        done = note["logged"] if note else {}
        new = [p for table, part in told.points.items() for p in part[done.get(table, (0,))[0] :]]
        sure = note is not None and told.key in self._asked
        if note is not None and not new and self._described(note, told) and (sure or not self._compare):
            return 0
        try:
            return self._log(parent, told, note, new if sure else None)
        except Missing:  # deleted by somebody
            return self._log(parent, told, None, None)
        except BaseException:
            self._asked.discard(told.key)  # did it arrive? ask next time
            raise

    def _log(self, parent: str, told: Told, note: dict[str, Any] | None, new: list[Point] | None) -> int:
        """``new`` are the points to log; None: those that the server lacks."""
        run, there, new = self._run(told, note, new)
        params = {k: v for k, v in told.params.items() if k not in there}
        self.server.log(run, new, params, {**told.tags, PARENT: parent})
        self.server.status(run, told.status, told.ended)
        logged = {t: [len(p), points.digest(p)] for t, p in told.points.items()}
        for table, done in (note["logged"] if note else {}).items():  # rows cut by a resume, not yet written again
            if table not in logged or logged[table][0] < done[0]:
                logged[table] = done
        self.mine["trials"][told.key] = {"run": run, "status": told.status, "logged": logged, "about": _about(told)}
        self._asked.add(told.key)
        self.notes.save()
        return len(new)

    def _run(
        self, told: Told, note: dict[str, Any] | None, new: list[Point] | None
    ) -> tuple[str, dict[str, str], list[Point]]:
        """The trial's run, the parameters that it has, and the points that it has not."""
        run = note["run"] if note else self.server.child(told.key)
        everything = [p for part in told.points.values() for p in part]
        if run is not None:
            there = self.server.params(run)
            with contextlib.suppress(Differs):  # not of these results
                return run, there, self.server.lacking(run, everything) if new is None else new
            self._delete(run)
        return self.server.create_child(told.key, told.name, told.started), {}, everything

    def _delete(self, run: str) -> None:
        with contextlib.suppress(Missing):
            self.server.params(run)
            self.server.delete(run)

    def _described(self, note: Mapping[str, Any], told: Told) -> bool:
        return note["status"] == told.status and note.get("about") == _about(told)


def _about(told: Told) -> int:
    """Changes when parameters or tags do."""
    return zlib.crc32(json.dumps([dict(told.params), dict(told.tags)], sort_keys=True).encode())


def _contradicts(note: Mapping[str, Any], told: Told) -> bool:
    """What was logged does not begin what the store holds. While a trial repeats rows, nothing is known yet."""
    for table, (count, crc) in note["logged"].items():
        have = told.points.get(table, ())
        if len(have) >= count and points.digest(have[:count]) != crc:
            return True
        if len(have) < count and told.status == "FINISHED" and table != "cdm.csv":
            return True
    return False


def _whole(states: list[str]) -> str:
    """The experiment's status, of its trials'."""
    return next((s for s in ("RUNNING", "FAILED", "KILLED") if s in states), "FINISHED")


@contextlib.contextmanager
def only(root: Path) -> Iterator[None]:
    """One process logs an experiment at a time. Raises ``Busy``."""
    handle = os.open(root / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Busy(str(root)) from None
        yield
    finally:
        os.close(handle)


def in_words(error: BaseException) -> str:
    """One line."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}"[:300]
