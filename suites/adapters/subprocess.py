"""One process an environment: for environments that are slow, leak, hang or die, StarCraft II first of all.

Observations come through shared memory, orders and errors over a pipe. A worker that dies, raises or does not answer in
time is ended with everything it started and replaced; how often is bounded and counted in ``record``. What was played
of its episode is void: in ``reset`` the adapter simply begins another, in ``step`` it raises
``harness.suite.EpisodeVoid`` so that nobody learns from a part of an episode.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from multiprocessing import Pipe
from typing import Any

import numpy as np
import torch
from torch import Tensor

from harness.errors import UserError
from harness.scene import Scene
from harness.suite import EpisodeVoid
from harness.types import Spec, Step
from suites.adapters.convert import spec_of, step_of
from suites.adapters.memory import Views, shared_bytes, views
from suites.adapters.single import IllegalMoment, Layout, Make, seeds

STARTUP_TIMEOUT = 120.0
"""Seconds in which a worker must have built its environment."""


class EnvironmentFailed(RuntimeError):
    """An environment was restarted as often as allowed and failed again; the message holds the last reason."""


class _Broken(Exception):
    """A worker died, raised or was silent for too long."""


class Subprocess:
    """E environments in E processes, each with its own memory, global generators and fate."""

    def __init__(
        self,
        make: Make,
        num_envs: int,
        device: torch.device,
        name: str,
        *,
        step_timeout: float = 60.0,
        reset_timeout: float = 120.0,
        max_restarts: int = 10,
        own_children: bool = False,
    ) -> None:
        """``make`` must be picklable. Timeouts are seconds; ``max_restarts`` counts over all environments and the whole
        life of this object. ``own_children``: the environment starts processes of its own, ended with the worker's.
        """
        self.num_envs, self._device, self._name = num_envs, device, name
        self._make, self._own_children = pickle.dumps(make), own_children
        self._step_timeout, self._reset_timeout, self._max_restarts = step_timeout, reset_timeout, max_restarts
        self._reasons: Counter[str] = Counter()
        self._memory = tempfile.TemporaryFile()  # noqa: SIM115  (closed in close; nameless, so nothing is left behind)
        self._workers: list[_Worker] = []
        try:
            for _ in range(num_envs):
                self._workers.append(self._start())
            layout = self._workers[0].layout(STARTUP_TIMEOUT)
            self._layout, self._views = layout, self._map(layout)
            for index in range(num_envs):
                self._attach(index)
        except _Broken as error:
            self.close()
            raise EnvironmentFailed(f"{name}: cannot be started: {error}") from error
        except BaseException:
            self.close()
            raise
        self.spec: Spec = spec_of(layout)
        self._done = np.ones(num_envs, bool)

    def reset(self, seed: int) -> Step:
        """New episodes from ``seed``. An environment that fails is replaced and begins another episode.

        Raises ``EnvironmentFailed`` after too many restarts.
        """
        chosen = dict(enumerate(seeds(seed, self.num_envs)))
        attempt = 0
        while chosen:
            broken = self._all("reset", chosen, self._reset_timeout)
            attempt += 1
            again = seeds(int(np.random.SeedSequence([seed, attempt]).generate_state(1)[0]), self.num_envs)
            chosen = {index: again[index] for index in broken}
            self._restart(broken)
        self._done[:] = False
        self._views.reward[:] = 0
        return self._step()

    def step(self, action: Tensor) -> Step:
        """Play ``action`` [E,N] int64 | [E,N,U] float32 where the episode runs.

        Raises ``EpisodeVoid`` when an environment had to be replaced: the round is to be begun anew with ``reset``.
        Raises ``EnvironmentFailed`` after too many restarts, ``IllegalMoment`` when an environment breaks its contract.
        """
        running = np.flatnonzero(~self._done)
        self._views.action[:] = action.detach().cpu().numpy()
        self._views.reward[:] = 0
        broken = self._all("step", dict.fromkeys(running.tolist()), self._step_timeout)
        if broken:
            self._restart(broken)
            self._done[:] = True
            which = ", ".join(f"environment {index}: {reason}" for index, reason in broken.items())
            raise EpisodeVoid(f"{self._name}: restarted in the middle of an episode; {which}")
        self._done |= self._views.terminated | self._views.truncated
        return self._step()

    def record(self) -> dict[str, Any]:
        """What the trial should keep: {"restarts": how often a worker was replaced, "reasons": {reason: times}}."""
        return {"restarts": self._reasons.total(), "reasons": dict(self._reasons)}

    def scene(self, index: int, action: Tensor) -> Scene | None:
        """What environment ``index`` looks like; None where its kind does not say.

        Raises ``EnvironmentFailed`` when its worker is gone.
        """
        try:
            self._workers[index].send("scene", action.numpy())
            found: Scene | None = self._workers[index].answer(self._step_timeout)
        except _Broken as error:
            raise EnvironmentFailed(f"{self._name}: environment {index} cannot say how it looks: {error}") from error
        return found

    def close(self) -> None:
        """End every worker, politely first. Safe to call twice."""
        for worker in self._workers:
            worker.ask_to_close()
        deadline = time.monotonic() + 5.0
        for worker in self._workers:
            worker.end(deadline)
        self._workers = []
        self._memory.close()

    def __del__(self) -> None:
        if getattr(self, "_workers", None):
            self.close()

    def _step(self) -> Step:
        # A copy: the shared memory changes with the next order, what was returned must not.
        return step_of(self._views, self._layout, self._device)

    def _start(self) -> _Worker:
        return _Worker(self._make, self._memory.fileno(), self._name, self._own_children)

    def _map(self, layout: Layout) -> Views:
        size = shared_bytes(layout, self.num_envs)
        self._memory.truncate(size)
        return views(mmap.mmap(self._memory.fileno(), size), layout, self.num_envs)

    def _attach(self, index: int) -> None:
        layout = self._workers[index].layout(STARTUP_TIMEOUT)
        if layout != self._layout:
            raise EnvironmentFailed(f"{self._name}: environments differ in shape: {layout} and {self._layout}")
        self._workers[index].send("memory", self.num_envs, index)
        self._workers[index].answer(STARTUP_TIMEOUT)

    def _all(self, order: str, which: Mapping[int, int | None], timeout: float) -> dict[int, str]:
        """Give ``order`` to all of ``which`` and wait for all: {environment: reason} of those that failed."""
        broken: dict[int, str] = {}
        for index, seed in which.items():
            try:
                self._workers[index].send(order, *([] if seed is None else [seed]))
            except _Broken as error:
                broken[index] = str(error)
        deadline = time.monotonic() + timeout
        for index in which:
            if index in broken:
                continue
            try:
                self._workers[index].answer(max(deadline - time.monotonic(), 0.0))
            except _Broken as error:
                broken[index] = f"{error} in {order}"
            except (IllegalMoment, UserError):
                self.close()  # the others' answers are still on their way: nobody must take them for later ones
                raise
        return broken

    def _restart(self, broken: dict[int, str]) -> None:
        for index, reason in broken.items():
            while True:
                self._reasons[reason.splitlines()[0]] += 1
                if self._reasons.total() > self._max_restarts:
                    self.close()
                    raise EnvironmentFailed(
                        f"{self._name}: environment {index} failed after {self._max_restarts} restarts: {reason}"
                    )
                self._workers[index].end()
                self._workers[index] = self._start()
                try:
                    self._attach(index)
                    break
                except _Broken as error:
                    reason = f"{error} at start-up"


class _Worker:
    """The parent's side of one process."""

    def __init__(self, make: bytes, memory: int, name: str, own_children: bool) -> None:
        self._pipe, theirs = Pipe()
        life, self._life = os.pipe()
        command = [
            sys.executable,
            "-m",
            "suites.adapters.worker",
            *map(str, (theirs.fileno(), memory, life, os.getpid())),
        ]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            pass_fds=(theirs.fileno(), memory, life),
            start_new_session=True,  # a process group of its own, so that a game server goes with it
            env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
        theirs.close()
        os.close(life)
        self._layout: Layout | None = None
        self._pipe.send((list(sys.path), name, own_children))
        self._pipe.send_bytes(make)

    def layout(self, timeout: float) -> Layout:
        """The environment's shape, once it is built."""
        if self._layout is None:
            self._layout = Layout(*self.answer(timeout))
        return self._layout

    def send(self, order: str, *arguments: Any) -> None:
        """Raises ``_Broken`` when nobody listens."""
        try:
            self._pipe.send((order, *arguments))
        except OSError as error:
            raise _Broken(self._fate()) from error

    def answer(self, timeout: float) -> Any:
        """What the worker has to say. Raises ``_Broken`` after ``timeout`` seconds or at its death, ``UserError`` and
        ``IllegalMoment`` as the worker did.
        """
        try:
            if not self._pipe.poll(timeout):
                raise _Broken(f"no answer within {timeout:.0f} s")
            kind, value = self._pipe.recv()
        except (EOFError, OSError) as error:
            raise _Broken(self._fate()) from error
        if kind == "user":
            raise UserError(value)
        if kind == "illegal":
            raise IllegalMoment(value)
        if kind == "error":
            raise _Broken(value)
        return value

    def ask_to_close(self) -> None:
        """Without waiting."""
        with contextlib.suppress(OSError):
            self._pipe.send(("close",))

    def end(self, deadline: float = 0.0) -> None:
        """Wait until ``deadline`` (of ``time.monotonic``), then kill the worker; what it started goes in any case."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(max(deadline - time.monotonic(), 0.0))
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._pipe.close()
        with contextlib.suppress(OSError):
            os.close(self._life)

    def _fate(self) -> str:
        """How it ended, in words."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = self._process.wait(5.0)
            return f"the worker was killed by signal {-code}" if code < 0 else f"the worker ended with exit code {code}"
        return "the worker closed its pipe"
