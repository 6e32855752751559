"""A third party's package, as an installation would leave it: methods and a suite for tests of the machine around them.

``Fake`` behaves as its fields say: it is the trial function ``run`` below that reads them, in place of the real
``harness.trial.run``, so that a trial takes a fraction of a second, hangs, or dies as a test wants it to.
"""

from __future__ import annotations

import ctypes
import errno
import os
import resource
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

from harness.errors import UserError
from harness.store import TrialFolder
from harness.suite import Budget, Task
from harness.types import Discrete, Progress, Spec, Trial

Behaviour = Literal[
    "ok",
    "raise",
    "refuse",
    "segfault",
    "sigkill",
    "exit",
    "hang",
    "memory",
    "allocate",
    "tensor",
    "disk",
    "slow",
    "children",
    "deaf",
    "raise once",
    "segfault once",
    "sigkill once",
    "exit once",
    "hang once",
    "allocate once",
    "disk once",
]


class NeverAsked:
    """The methods of a method; trials of this package are played by ``run`` below and ask for none of them."""

    def networks(self, *_: Any) -> Any:
        raise AssertionError

    act = losses = targets = networks


@dataclass(frozen=True)
class Fake(NeverAsked):
    """Fake (Nobody 2000): does what it is told.

    A second paragraph.
    """

    gamma: float = 0.99
    """Discount."""
    lr: float = 5e-4
    """Learning rate,
    over two lines."""
    num_envs: int = 1
    buffer_episodes: int = 100
    """Episodes that the replay holds."""
    batch_episodes: int = 8
    updates_per_collect: int = 1
    mixer: Literal["sum", "product"] = "sum"
    """How utilities are joined."""
    clip: float | None = None
    layers: tuple[int, ...] = (64,)
    double: bool = True
    floor: float = -1.0
    behaviour: Behaviour = "ok"
    bad_seed: int = -1
    """The one seed that misbehaves; -1 is all."""

    data: ClassVar[str] = "replay"
    actions: ClassVar[frozenset[str]] = frozenset({"discrete"})
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "discrete": {"lr": 1e-3, "batch_episodes": 16},
        "toy": {"batch_episodes": 24},
        "big": {"layers": (128, 128), "lr": 2e-3},
    }


@dataclass(frozen=True)
class FakeContinuous(NeverAsked):
    """Plays continuous actions only."""

    gamma: float = 0.99
    num_envs: int = 1
    data: ClassVar[str] = "on_policy"
    actions: ClassVar[frozenset[str]] = frozenset({"continuous"})
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {}


@dataclass(frozen=True)
class Toy:
    """Tasks that need no environment."""

    physics: Literal["auto", "exact"] = "auto"
    """What computes it."""
    scale: float = 1.0

    name: ClassVar[str] = "toy"
    budgets: ClassVar[Mapping[str, Budget]] = {
        "smoke": Budget(100, 50, 2, 4, seeds=1),
        "quick": Budget(1000, 500, 2, 4, seeds=2),
        "paper": Budget(10_000, 500),
    }
    algorithms: ClassVar[tuple[str, ...]] = ("fake", "fake_continuous", "not_written_yet")
    default_tasks: ClassVar[tuple[str, ...]] = ("one", "two")

    def tasks(self) -> Mapping[str, Task]:
        names = {"one": "discrete", "two": "discrete", "three": "discrete", "smooth": "continuous"}
        return {n: Task(n, a, metric="won") for n, a in names.items()}

    def engine_version(self) -> str:
        return os.environ.get("TOY_ENGINE", "toy 1.0")

    def make(self, *_: Any) -> Any:
        raise AssertionError

    def spec(self, task: str) -> Spec:
        return Spec(2, 10, 12, 50, Discrete(4), ("won",))


def run(trial: Trial, tell: Callable[[Progress], None], stopping: Callable[[], bool]) -> str:
    """A trial that counts to its budget in $FAKE_SECONDS. ``visits`` in its folder has a line for each beginning."""
    settings, folder = trial.settings["algorithm"], TrialFolder.of(trial)
    total = trial.settings["budget"]["env_steps"]
    with open(folder.path / "visits", "a") as file:
        file.write(f"{os.getpid()}\n")
    if settings.get("bad_seed", -1) in (-1, trial.seed):
        misbehave(settings.get("behaviour", "ok"), folder.path)
    for k in range(11):
        tell(Progress(total * k // 10, total, 1000.0, "training", "won", k / 10))
        until = time.monotonic() + float(os.environ.get("FAKE_SECONDS", "0")) / 10
        while not stopping() and time.monotonic() < until:
            time.sleep(0.02)
        if stopping():
            (folder.path / "checkpoint.pt").write_text(str(k))
            return "interrupted"
    rows = [(total, e, 1.0, 5, 1.0) for e in range(2)]
    folder.update(metric="won")
    folder.append("evaluations.csv", ("env_steps", "episode", "return", "length", "won"), rows)
    folder.append("final.csv", ("env_steps", "episode", "return", "length", "won"), rows)
    return "complete"


def exhaust() -> None:
    """Ask for more memory than this process may have, until there is none."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + (64 << 20), resource.RLIM_INFINITY))
    hoard = []
    while True:
        hoard.append(bytearray(8 << 20))


def misbehave(how: str, folder: Path) -> None:
    """Fail as ``how`` says; "... once" at the trial's first attempt only."""
    if how.endswith(" once"):
        how = how.removesuffix(" once") if len((folder / "visits").read_text().split()) == 1 else "ok"
    if how == "raise":
        raise ValueError("the sky is\nfalling")
    if how == "refuse":
        raise UserError("no such engine here")
    if how == "segfault":
        ctypes.string_at(0)
    if how == "sigkill":  # in the middle of ``write_atomic``
        (folder / ".checkpoint.pt.half").write_text("half")
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "exit":
        os._exit(7)
    if how == "memory":
        raise MemoryError
    if how == "allocate":
        exhaust()
    if how == "tensor":
        import torch

        torch.empty(1 << 60)
    if how == "disk":
        raise OSError(errno.ENOSPC, "No space left on device")
    if how == "children":
        child = os.fork()
        if child == 0:
            time.sleep(60)
            os._exit(0)
        (folder / "grandchild").write_text(str(child))
        os._exit(7)
    if how == "deaf":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if how in ("hang", "deaf"):
        (folder / "hanging").write_text(str(os.getpid()))
        time.sleep(60)
