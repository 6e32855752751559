"""MLflow, fed from the store by one process beside the runner: nothing that a tracker does can slow or stop a trial.

The runner starts a companion (``harness.trackers.companion``) that reads results/ and logs what is new. It never waits
for it while trials run, and at the end only while the server answers, at most ``LAST`` seconds. What was missed is
logged at the next run, or by ``harness track``.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from harness.errors import UserError, unknown

SCHEMES = ("sqlite", "http", "https", "postgresql", "mysql", "mssql", "file", "databricks")
INSTALL = "pip install -e '.[mlflow]'"
LOG = "tracking.log"
GRACE = 3.0
"""Seconds that the companion gets beyond its own limit before it is killed."""
PATIENCE = 3.0
"""Seconds of waiting at the end of a run after which the user is told why."""
REPORT_SECONDS = 60.0
"""Most that logging a report may take."""


def check(uri: str) -> None:
    """Raise ``UserError`` where MLflow is not installed or ``uri`` is of no kind that it knows. Imports nothing."""
    if importlib.util.find_spec("mlflow") is None:
        raise UserError(f"tracking=mlflow: the package mlflow is not installed; {INSTALL}")
    scheme = uri.partition(":")[0].partition("+")[0]
    if uri and (":" not in uri or scheme not in SCHEMES):
        example = "e.g. sqlite:///results/mlflow.db or http://localhost:5000"
        if ":" not in uri:
            raise UserError(f"tracking_uri={uri}: not a URI, {example}")
        raise unknown("kind of tracking_uri", scheme, SCHEMES)
    if uri.startswith("sqlite:") and not uri.startswith("sqlite:///"):
        raise UserError(f"tracking_uri={uri}: three slashes before the path, e.g. sqlite:///results/mlflow.db")


def resolve(uri: str, results: Path) -> tuple[str, str | None]:
    """``uri`` with an absolute path, and where a database keeps artifacts; by default a database beside the results."""
    if not uri:
        uri = f"sqlite:///{results / 'mlflow.db'}"
    if not uri.startswith("sqlite:///"):
        return uri, None
    path = Path(uri.removeprefix("sqlite:///")).resolve()
    return f"sqlite:///{path}", (path.parent / f"{path.stem}-artifacts").as_uri()


class Companion:
    """The runner's side of the process that logs. Every method returns at once but ``close``."""

    def __init__(self, root: Path, uri: str, say: Callable[[str], None]) -> None:
        """``root`` is results/<experiment>; ``say`` shows the user a line."""
        self.root, self.say = root, say
        self.uri, artifacts = resolve(uri, root.parent)
        self._done = self._told = False
        self._partial = b""
        root.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-P", "-m", "harness.trackers.companion"]
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        with open(root / LOG, "ab") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=env,
                start_new_session=True,  # Ctrl-C reaches the runner alone
            )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._in, self._out = self._process.stdin, self._process.stdout
        os.set_blocking(self._out.fileno(), False)
        with contextlib.suppress(BrokenPipeError):
            job = {"parent": os.getpid(), "root": str(root), "uri": self.uri, "artifacts": artifacts}
            self._in.write(json.dumps(job).encode() + b"\n")
            self._in.flush()

    def poll(self) -> None:
        """Pass on what the companion has to say."""
        with contextlib.suppress(BlockingIOError):
            while part := os.read(self._out.fileno(), 65536):
                self._partial += part
        *lines, self._partial = self._partial.split(b"\n")
        for line in lines:
            message: dict[str, Any] = json.loads(line)
            self._done = self._done or bool(message.get("done"))
            if "say" in message:
                self.say(message["say"])
        if self._process.poll() is not None and not self._done and not self._told:
            self._told = True
            self.say(f"tracking: stopped, see {self.root / LOG}; the trials go on")

    def close(self) -> None:
        """Let it log the rest, within bounds; Ctrl-C ends the wait."""
        from harness.trackers.companion import LAST

        self._told = True
        with contextlib.suppress(BrokenPipeError):
            self._in.close()
        began, said = time.monotonic(), False
        try:
            while self._process.poll() is None and time.monotonic() < began + LAST + GRACE:
                self.poll()
                time.sleep(0.05)
                if not said and time.monotonic() > began + PATIENCE:
                    said = True
                    self.say(f"tracking: logging the rest, at most {LAST} s; Ctrl-C leaves it for `harness track`")
            self.poll()
        except KeyboardInterrupt:
            pass
        finally:
            self._process.kill()
            self._process.wait()
            self._out.close()
        if not self._done:
            self.say(f"tracking: {self.uri} has not got everything; `harness track {self.root}` logs the rest")


@contextlib.contextmanager
def beside(options: Any, root: Path, say: Callable[[str], None]) -> Any:
    """A companion while the block runs, as ``options.tracking`` says; yields what is to be called now and then."""
    if options.tracking == "off":
        yield lambda: None
        return
    try:
        companion = Companion(root, options.tracking_uri, say)
    except OSError as error:  # no memory for another process, no space for its log
        say(f"tracking: cannot be started: {error}; the trials go on, `harness track {root}` logs them later")
        yield lambda: None
        return
    try:
        yield companion.poll
    finally:
        companion.close()


# -- afterwards ---------------------------------------------------------------------------------------------------


def experiments(paths: Iterable[Path]) -> list[Path]:
    """The folders results/<experiment> that ``paths`` lie in or hold; those of folders alone."""
    from harness.store import folders

    found: dict[Path, None] = {}
    for path in paths:
        below = folders(path) if path.is_dir() else []
        found |= dict.fromkeys((f.path if len(f.path.parts) > 4 else f.path.resolve()).parents[3] for f in below)
    return list(found)


def track(root: Path, uri: str, report: Path | None = None) -> str:
    """Bring MLflow to what the experiment ``root`` holds, and log ``report``; what was done, in words.

    Without ``uri`` the server is the one that the experiment was tracked on last. Raises ``UserError`` when it does not
    answer, or when another process is logging this experiment.
    """
    from harness.trackers.feed import Busy, Feed, Notes, in_words, only

    check(uri)
    if report is not None and not report.is_dir():
        raise UserError(f"{report}: no such folder; `harness report` writes one")
    uri, artifacts = resolve(uri or Notes(root).all["uri"], root.parent)
    try:
        with only(root):
            feed = Feed(root, uri, artifacts, compare=True)
            logged = feed.step(live=False)
            if report is not None:
                feed.server.artifacts(feed.parent(), report, "report")
    except Busy:
        raise UserError(f"{root}: another process is logging this experiment, probably its `harness run`") from None
    except Exception as error:
        raise UserError(f"{uri}: {in_words(error)}") from error
    lines = [f"{root.name}: {logged} new points" + (", the report" if report else "") + f" -> {uri}"]
    return "\n".join(lines + [f"left out: {reason}" for reason in feed.unreadable.values()])


def log_report(paths: Iterable[Path], report: Path) -> str:
    """Log ``report`` with every tracked experiment among ``paths``, within bounds; "" or what went wrong."""
    from harness.trackers.feed import NAME

    troubles = []
    for root in experiments(paths):
        if not (root / NAME).exists():
            continue
        command = [sys.executable, "-m", "harness", "track", str(root), "--report", str(report)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=REPORT_SECONDS, check=False)
            trouble = done.stderr.strip().splitlines()[-1:] if done.returncode else []
        except subprocess.TimeoutExpired:
            trouble = [f"no answer within {REPORT_SECONDS:g} s"]
        troubles += [f"tracking: {t}; `harness track {root} --report {report}` tries again" for t in trouble]
    return "\n".join(troubles)
