"""A process that has done the imports once and forks a child for each trial: what starting a second trial costs.

The runner talks to it over one socket: a line of JSON and the files that the child is given; back come the child's
process id and, later, its exit code. It has one thread and has run no tensor operation when it forks.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

PRELOAD = ("harness.trial", "torch._dynamo")
"""Imported before the first fork. Every optimiser of torch imports the second, whether it compiles or not."""
STARTING = 120.0
"""Seconds that a nursery may take to import and to start a child."""

GONE = "the process that starts trials is gone"

_BOOT = """import json, sys
told = json.load(sys.stdin)
sys.path[:] = told["path"]
from harness.executors.nursery import serve
serve(**told)"""


class Child:
    """A process that a nursery started."""

    def __init__(self, nursery: Nursery, pid: int) -> None:
        self.nursery, self.pid = nursery, pid

    def poll(self) -> int | None:
        """Its exit code, minus the signal that killed it; None while it runs."""
        return self.nursery.code(self.pid)

    def wait(self, timeout: float | None = None) -> int:
        """Its exit code, when it has ended. Raises ``subprocess.TimeoutExpired``."""
        end = None if timeout is None else time.monotonic() + timeout
        while (code := self.poll()) is None:
            left = None if end is None else end - time.monotonic()
            if left is not None and left <= 0:
                raise subprocess.TimeoutExpired("trial", timeout or 0.0)
            self.nursery.listen(left)
        return code


class Nursery:
    """The runner's side. Its children end when it does, and it ends with the runner, however that ends."""

    def __init__(self, env: Mapping[str, str], preload: Sequence[str] = PRELOAD) -> None:
        """``env`` is what the imports of ``preload`` see; each child is then given its own."""
        self._codes: dict[int, int | None] = {}
        self._unread = b""
        self._gone = False
        self._asked = 0
        self._started: int | str | None = None
        self._socket, theirs = socket.socketpair()
        with theirs:
            self._server = subprocess.Popen(
                [sys.executable, "-P", "-c", _BOOT],
                stdin=subprocess.PIPE,
                env=dict(env),
                pass_fds=(theirs.fileno(),),
                start_new_session=True,  # Ctrl-C reaches the runner alone
            )
            told = {"handle": theirs.fileno(), "path": sys.path, "preload": preload}
        assert self._server.stdin is not None
        with contextlib.suppress(BrokenPipeError), self._server.stdin as stdin:
            stdin.write(json.dumps(told).encode())

    @property
    def pid(self) -> int:
        """The parent of its children."""
        return self._server.pid

    @property
    def alive(self) -> bool:
        """It can start children."""
        return not self._gone

    def start(self, target: str, job: Mapping[str, Any], env: Mapping[str, str], files: Sequence[int]) -> Child:
        """Fork a child that calls ``target``(job, files) with ``env``, its output going to the first of ``files``.

        Raises ``OSError`` where the nursery is gone or can't fork.
        """
        self._asked, self._started = self._asked + 1, None
        word = {"asked": self._asked, "target": target, "job": job, "env": dict(env)}
        line = json.dumps(word).encode() + b"\n"
        try:
            sent = socket.send_fds(self._socket, [line], list(files))
            self._socket.sendall(line[sent:])
        except OSError as error:
            self._end()
            raise OSError(GONE) from error
        end = time.monotonic() + STARTING
        while self._started is None and not self._gone and time.monotonic() < end:
            self.listen(end - time.monotonic())
        if isinstance(self._started, int):
            return Child(self, self._started)
        self._asked += 1  # an answer that comes yet is to nobody
        raise OSError(self._started or (GONE if self._gone else f"it took more than {STARTING:g} s"))

    def code(self, pid: int) -> int | None:
        """Exit code of a child; None while it runs."""
        if self._codes[pid] is None:
            self.listen(0.0)
        return self._codes[pid]

    def listen(self, timeout: float | None) -> None:
        """Hear of children, waiting at most ``timeout`` seconds for one word."""
        if self._gone or not select.select([self._socket], [], [], timeout)[0]:
            return
        data = b""
        with contextlib.suppress(ConnectionError):
            data = self._socket.recv(65536)
        if not data:
            self._end()
            return
        *lines, self._unread = (self._unread + data).split(b"\n")
        for line in lines:
            word = json.loads(line)
            if "ended" in word:
                self._codes[word["ended"]] = word["code"]
            elif "started" in word:
                self._codes[word["started"]] = None
                if word["asked"] == self._asked:
                    self._started = word["started"]
                else:  # too late: who asked has given it up
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(word["started"], signal.SIGKILL)
            elif word["asked"] == self._asked:
                self._started = word["refused"]

    def close(self) -> None:
        """End it, and with it the children that are left."""
        if not self._gone:
            self._socket.close()
            self._end()

    def _end(self) -> None:
        self._gone = True
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._server.wait(1.0)
        self._server.kill()
        self._server.wait()
        self._socket.close()
        for pid, code in self._codes.items():
            if code is None:  # the kernel kills them with it
                self._codes[pid] = -signal.SIGKILL


# -- the other side ---------------------------------------------------------------------------------------------------


def serve(handle: int, path: Sequence[str], preload: Sequence[str]) -> NoReturn:
    """Import, then fork a child at each request until the runner is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for name in preload:
        with contextlib.suppress(Exception):  # the trial meets it too, and says so in its log
            importlib.import_module(name)
    gc.collect()
    gc.freeze()  # what is shared now stays shared: the collector writes to no page of it
    server = socket.socket(fileno=handle)
    wake, woken = os.pipe()
    os.set_blocking(woken, False)
    os.set_blocking(wake, False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    signal.set_wakeup_fd(woken)
    watched: list[Any] = [server, wake]
    while True:
        ready = select.select(watched, [], [])[0]
        if wake in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(wake, 4096)
            _reap(server)
        if server in ready:
            _fork(server, (wake, woken))


def _say(server: socket.socket, **word: Any) -> None:
    try:
        server.sendall(json.dumps(word).encode() + b"\n")
    except OSError:  # no runner any more
        os._exit(0)


def _reap(server: socket.socket) -> None:
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            _say(server, ended=ended[0], code=os.waitstatus_to_exitcode(ended[1]))


def _fork(server: socket.socket, own: Sequence[int]) -> None:
    line, files = _receive(server)
    word, parent = json.loads(line), os.getpid()
    try:
        pid = os.fork()
    except OSError as error:
        _say(server, asked=word["asked"], refused=str(error))
    else:
        if not pid:
            _become(word, files, parent, (server.detach(), *own))
        _say(server, asked=word["asked"], started=pid)
    finally:
        for file in files:
            os.close(file)


def _receive(server: socket.socket) -> tuple[bytes, list[int]]:
    line, files = b"", []
    while not line.endswith(b"\n"):
        try:
            data, more, _, _ = socket.recv_fds(server, 65536, 8, getattr(socket, "MSG_CMSG_CLOEXEC", 0))
        except ConnectionError:
            data, more = b"", []
        if not data:
            os._exit(0)
        line += data
        files += more
    return line, files


def _become(word: Mapping[str, Any], files: Sequence[int], parent: int, close: Sequence[int]) -> NoReturn:
    """What the child does: a session of its own, its own output and environment, then the target."""
    code = 1
    try:
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        os.setsid()
        for file in close:
            os.close(file)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.close(nothing)
        os.dup2(files[0], 1)
        os.dup2(files[0], 2)
        os.environ.clear()
        os.environ.update(word["env"])
        module, _, name = word["target"].partition(":")
        getattr(importlib.import_module(module), name)({**word["job"], "parent": parent}, files[1:])
        code = 0
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(code)
