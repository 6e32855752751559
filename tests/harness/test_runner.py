"""A trial's misfortune is its own: each kind of failure is said in words, and the others finish.

Real processes of the fake package (tests/plugins/fake_marl.py) that misbehave on purpose.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import psutil
import pytest

from harness.config import parse
from harness.executors.local import Ending, environment
from harness.plan import Plan, make
from harness.runner import Outcome, Runner, set_aside
from harness.store import TrialFolder, load
from harness.types import Progress, Trial


class Silent:
    """A display that remembers."""

    def __init__(self) -> None:
        self.events: list[tuple[str, int]] = []
        self.said: list[str] = []
        self.heard: list[Progress] = []

    def started(self, trial: Trial) -> None:
        self.events.append(("started", trial.seed))

    def progress(self, trial: Trial, progress: Progress) -> None:
        self.heard.append(progress)

    def ended(self, trial: Trial, ending: Ending, again: bool, seconds: float) -> None:
        self.events.append(("again" if again else ending.status, trial.seed))

    def say(self, text: str) -> None:
        self.said.append(text)

    def tick(self) -> None:
        pass


Go = Callable[..., tuple[Plan, Outcome, Silent]]


@pytest.fixture
def go(fake_target: ModuleType, tmp_path: Path) -> Go:
    """Run a trial a behaviour (seed k does the k-th)."""

    def run(*behaviours: str, **options: object) -> tuple[Plan, Outcome, Silent]:
        asked = [f"{k}={v}" for k, v in {"retries": 0, "workers": 2, **options}.items()]
        common = ["suite=toy", "tasks=one", "algorithms=fake", "device=cpu", f"results={tmp_path}"]
        plan = make(parse([*common, f"seeds={len(behaviours)}", *asked]))
        items = []
        for item, behaviour in zip(plan.items, behaviours, strict=True):
            settings = {
                **item.trial.settings,
                "algorithm": {**item.trial.settings["algorithm"], "behaviour": behaviour},
            }
            items.append(dataclasses.replace(item, trial=dataclasses.replace(item.trial, settings=settings)))
        plan, display = dataclasses.replace(plan, items=tuple(items)), Silent()
        return plan, Runner(plan, display).run(), display

    return run


def endings(plan: Plan, outcome: Outcome) -> list[Ending]:
    return [outcome.endings[i.trial.key] for i in plan.items]


def record(plan: Plan, index: int) -> dict[str, object]:
    found = TrialFolder.of(plan.items[index].trial).record()
    assert found is not None
    return found


def gone(pid: int, within: float = 30.0) -> bool:
    until = time.monotonic() + within
    while time.monotonic() < until:
        try:
            if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
                return True
        except psutil.NoSuchProcess:
            return True
        time.sleep(0.05)
    return False


def test_each_kind_of_failure_costs_only_itself_and_is_said_in_words(go: Go) -> None:
    kinds = ("raise", "refuse", "segfault", "sigkill", "exit", "memory", "allocate", "tensor", "disk", "ok")
    plan, outcome, _ = go(*kinds)
    found = dict(zip(kinds, endings(plan, outcome), strict=True))
    assert {k: e.status for k, e in found.items()} == {**dict.fromkeys(kinds, "failed"), "ok": "complete"}
    assert found["raise"].reason == "ValueError: the sky is falling"
    assert found["refuse"].reason == "no such engine here"
    assert found["segfault"].reason.startswith("segmentation fault (SIGSEGV)")
    assert found["sigkill"].reason.startswith("killed from outside (SIGKILL)")
    assert found["exit"].reason.startswith("the process ended with exit code 7")
    assert found["memory"].reason == "out of memory"
    assert found["allocate"].reason == "out of memory"
    assert found["tensor"].reason.startswith("out of memory: ")
    assert found["disk"].reason.startswith("no space left on the disk")
    assert 'raise ValueError("the sky is' in found["raise"].traceback
    assert "string_at" in found["segfault"].traceback  # where it was, from the log
    assert outcome.exit_code == 1
    for k, kind in enumerate(kinds):
        kept = record(plan, k)
        assert kept["status"] == found[kind].status
        assert (kept["reason"] or "") == found[kind].reason
        assert kept["seed"] == k
        assert kept["settings"]["algorithm"]["behaviour"] == kind  # type: ignore[index]
    assert "the sky is" in (TrialFolder.of(plan.items[0].trial).path / "log.txt").read_text()
    trials = load(plan.experiment.options.results).trials
    assert sorted(trials["status"]) == ["complete"] + ["failed"] * (len(kinds) - 1)


def test_a_failed_trial_is_tried_again_and_a_hopeless_one_is_not(go: Go) -> None:
    plan, outcome, display = go("raise once", "refuse", retries=1)
    assert [e.status for e in endings(plan, outcome)] == ["complete", "failed"]
    visits = [len((TrialFolder.of(i.trial).path / "visits").read_text().split()) for i in plan.items]
    assert visits == [2, 1]
    assert record(plan, 0)["status"] == "complete"
    assert record(plan, 0)["failures"] == ["ValueError: the sky is falling"]
    assert not record(plan, 0)["reason"]
    assert ("again", 0) in display.events
    assert display.heard


def test_each_kind_of_failure_is_tried_again_and_kept_in_the_record(go: Go) -> None:
    kinds = ("raise", "segfault", "sigkill", "exit", "allocate", "disk")
    plan, outcome, display = go(*(f"{kind} once" for kind in kinds), retries=1)
    assert [e.status for e in endings(plan, outcome)] == ["complete"] * len(kinds)
    assert outcome.exit_code == 0
    said = (
        "ValueError: ",
        "segmentation fault",
        "killed from outside",
        "the process ended",
        "out of memory",
        "no space",
    )
    for k, words in enumerate(said):
        (reason,) = record(plan, k)["failures"]  # type: ignore[misc,attr-defined]
        assert reason.startswith(words)
        assert display.events.count(("again", k)) == 1
        hidden = {p.name for p in TrialFolder.of(plan.items[k].trial).path.glob(".*")}
        assert hidden == {".lock"}  # neither the space kept free nor what a kill left half-written


def test_a_hung_trial_is_tried_again(go: Go) -> None:
    plan, outcome, _ = go("hang once", retries=1, stall_timeout=15)
    assert endings(plan, outcome)[0].status == "complete"
    assert record(plan, 0)["failures"] == ["no sign of life for 15 s (stall_timeout); stopped"]


def test_a_hung_trial_is_stopped_and_says_where_it_hung(go: Go) -> None:
    plan, outcome, _ = go("hang", stall_timeout=8)
    ending = endings(plan, outcome)[0]
    assert ending.reason == "no sign of life for 8 s (stall_timeout); stopped"
    assert "most recent call first" in ending.traceback
    assert record(plan, 0)["status"] == "failed"


def test_what_a_trial_started_ends_with_it(go: Go) -> None:
    plan, _, _ = go("children")
    pid = int((TrialFolder.of(plan.items[0].trial).path / "grandchild").read_text())
    assert gone(pid)


def test_a_trial_that_another_run_has_finished_is_not_begun(fake_target: ModuleType, tmp_path: Path) -> None:
    plan = make(parse(["suite=toy", "tasks=one", "algorithms=fake", "seeds=2", f"results={tmp_path}"]))
    assert len(plan.todo) == 2
    for item, status in zip(plan.items, ("complete", "failed"), strict=True):  # after the plan was made
        TrialFolder.of(item.trial).update(status=status, reason="theirs", ended=time.time() + 60)
    display = Silent()
    outcome = Runner(plan, display).run()
    assert [(e.status, e.reason) for e in endings(plan, outcome)] == [("complete", "theirs"), ("failed", "theirs")]
    assert outcome.exit_code == 1
    assert display.events == [("complete", 0), ("failed", 1)]


def test_a_damaged_trial_is_set_aside_and_redone(go: Go, tmp_path: Path) -> None:
    folder = tmp_path / "toy-quick/toy/one/fake/seed_0"
    folder.mkdir(parents=True)
    (folder / "trial.json").write_text("{")
    (folder / "final.csv").write_text("env_steps,episode,return\n1,0,99\n")
    plan, outcome, display = go("ok")
    assert outcome.exit_code == 0
    assert record(plan, 0)["status"] == "complete"
    aside = folder.with_name("seed_0.damaged-1")
    assert (aside / "trial.json.damaged").read_text() == "{"
    assert (aside / "final.csv").exists()
    assert "damaged, set aside" in display.said[0]
    found = load(tmp_path)
    assert len(found.trials) == 1  # readers see the new one alone
    assert found.final["return"].max() == 1.0


def test_set_aside_never_overwrites(tmp_path: Path) -> None:
    for _ in range(2):
        (tmp_path / "seed_0").mkdir(exist_ok=True)
        (tmp_path / "seed_0" / "trial.json").write_text("x")
        (tmp_path / "seed_0" / ".lock").touch()
        set_aside(tmp_path / "seed_0")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["seed_0", "seed_0.damaged-1", "seed_0.damaged-2"]
    assert [p.name for p in (tmp_path / "seed_0").iterdir()] == [".lock"]


def test_children_use_one_thread_and_the_device_that_is_theirs(monkeypatch: pytest.MonkeyPatch) -> None:
    cpu = environment("cpu")
    assert {cpu[k] for k in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "NPROC")} == {"1"}
    assert cpu["CUDA_VISIBLE_DEVICES"] == ""
    assert cpu["JAX_PLATFORMS"] == "cpu"
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert environment("cuda:1")["CUDA_VISIBLE_DEVICES"] == "1"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,6")
    assert environment("cuda:1")["CUDA_VISIBLE_DEVICES"] == "6"
