"""The process beside a run: looks at the store every few seconds and logs what is new, until its standard input ends.

Started by ``harness.tracking``. A server that is slow or dead keeps nobody waiting but this process.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness.trackers.feed import Busy, Feed, in_words, only
from harness.trackers.server import bounded

PERIOD = 2.0
"""Seconds between two looks at the store."""
BACKOFF = 30.0
"""Most seconds between two attempts at a server that does not answer."""
LAST, LAST_IN_TROUBLE = 60, 6
"""Seconds for what is left when the run is over; the second where the server did not answer before."""
DYING = 5.0
"""Seconds that trials killed with their runner may take to be gone."""


class Companion:
    """The process beside a run: looks at the store every few seconds until its standard input ends."""

    def __init__(self, job: Mapping[str, Any], out: int) -> None:
        self.job, self.root, self.out = job, Path(job["root"]), out
        self.trouble = ""
        self.over = threading.Event()

    def say(self, **message: Any) -> None:
        """A line of JSON to the runner, if it still listens."""
        with contextlib.suppress(OSError):
            os.write(self.out, (json.dumps(message) + "\n").encode())

    def wait_for_end(self) -> None:
        """In a thread: once the runner closes the pipe, or is dead, so much time is left (the kernel's alarm)."""
        sys.stdin.read()
        signal.alarm(LAST_IN_TROUBLE if self.trouble else LAST)
        self.over.set()

    def run(self) -> int:
        """0 when everything was logged."""
        threading.Thread(target=self.wait_for_end, daemon=True).start()
        while True:
            with contextlib.suppress(Busy), only(self.root):
                return self._feed()
            if self.over.wait(PERIOD):  # another run of this experiment logs these trials too
                self.say(done=True)
                return 0

    def _feed(self) -> int:
        feed, wait = Feed(self.root, self.job["uri"], self.job["artifacts"]), PERIOD
        while not self.over.is_set():
            wait = PERIOD if self._attempt(feed, live=True) else min(2 * wait, BACKOFF)
            self.over.wait(wait)
        done = self._attempt(feed, live=False)
        until = time.monotonic() + DYING
        while done and feed.running and os.getppid() != self.job["parent"] and time.monotonic() < until:
            time.sleep(0.5)
            done = self._attempt(feed, live=False)
        if done:
            self.say(done=True)
        return 0 if done else 1

    def _attempt(self, feed: Feed, live: bool) -> bool:
        try:
            feed.step(live)
        except Exception as error:
            self._troubled(error)
            return False
        if self.trouble:
            self.trouble = ""
            self.say(say=f"tracking: {self.job['uri']} answers again")
        return True

    def _troubled(self, error: Exception) -> None:
        traceback.print_exception(error)
        if not self.trouble and not self.over.is_set():
            self.say(say=f"tracking: {in_words(error)}; the trials go on, what is missed is logged later")
        self.trouble = in_words(error)


def main() -> None:
    """Read the job {"parent", "root", "uri", "artifacts"} from the first line of standard input; keep it company."""
    out = os.dup(1)
    os.dup2(2, 1)  # whatever libraries print goes to the log
    os.nice(5)  # the cores are the trials'
    bounded()
    job = json.loads(sys.stdin.readline())
    os._exit(Companion(job, out).run())


if __name__ == "__main__":
    main()
