"""Where a trial's time goes: every moment counted once, across interruptions, and nothing else changed."""

import dataclasses
import json
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import torch

from harness import checkpoint, evaluate, learner, profile, registry, trial
from harness.config import parse
from harness.profile import PARTS, Clock, Profile
from harness.store import TrialFolder
from harness.types import Progress, Trial
from tests.support.episodes import CPU, method_kinds
from tests.support.trials import finish, identical, state, stop_after, tables, tiny

EACH = pytest.mark.parametrize(("name", "kind"), method_kinds())


def run(one: Trial, rounds: int = 1_000_000) -> dict[str, Any]:
    """Its record after ``rounds`` rounds, profiled."""
    profile.run(one, lambda progress: None, stop_after(rounds))
    found = TrialFolder.of(one).record()
    assert found is not None
    return found


# -- the clock --------------------------------------------------------------------------------------------------------


def test_a_clock_gives_every_moment_to_the_innermost_part() -> None:
    times = iter([0.0, 1.0, 3.0, 7.0, 8.0, 20.0])
    made = Clock(lambda: next(times))

    def whole() -> None:  # 0 to 20
        made.wrap("act", lambda: None)()  # 1 to 3
        made.wrap("log", lambda: None, "evaluation")()  # 7 to 8

    made.wrap("rest", whole)()
    assert made.seconds == {("training", "rest"): 1 + 4 + 12, ("training", "act"): 2, ("evaluation", "log"): 1}
    assert made.total() == 20
    assert made.total(phase="evaluation") == 1
    assert made.calls["training", "act"] == 1


def test_a_part_that_fails_gives_the_clock_back() -> None:
    times = iter([0.0, 1.0, 3.0, 4.0])
    made = Clock(lambda: next(times))

    def whole() -> None:
        with pytest.raises(ZeroDivisionError):
            made.wrap("forward", lambda: 1 / 0, "evaluation")()  # 1 to 3

    made.wrap("rest", whole)()
    assert made.seconds == {("training", "rest"): 2, ("evaluation", "forward"): 2}


def test_idle_slots_are_those_of_finished_environments() -> None:
    made = Profile(lambda: 0.0)
    made.counting(lambda: (type("", (), {"length": torch.tensor([2, 5, 3])}), None))()
    assert (made.slots, made.idle, made.env_steps) == (15, 5, 10)
    assert made.idle_share == pytest.approx(1 / 3)


class Slotted:
    """Takes no attributes."""

    __slots__ = ()

    def step(self) -> int:
        return 1


def test_wrappers_go_where_they_can_and_leave_no_trace() -> None:
    method = next(iter(registry.algorithms()))
    called: list[int] = []
    for owner, name in ((Slotted(), "step"), (registry.algorithm(method)(), "act"), (evaluate, "episodes")):
        before = getattr(owner, name)
        with ExitStack() as stack:
            profile.replace(stack, owner, name, lambda f: lambda *a: called.append(1))
            getattr(owner, name)()
        assert called == [1]
        called.clear()
        assert getattr(owner, name) == before
        assert name not in getattr(owner, "__dict__", {}) or owner is evaluate


# -- a trial ----------------------------------------------------------------------------------------------------------


@EACH
def test_profiled_or_not_the_same_bytes(tmp_path: Path, name: str, kind: str) -> None:
    plain, watched = tiny(tmp_path / "a", name, kind), tiny(tmp_path / "b", name, kind)
    folder, record = finish(plain), run(watched)
    assert tables(folder) == tables(TrialFolder.of(watched).path)
    identical(state(folder), state(TrialFolder.of(watched).path))
    before = json.loads((folder / "trial.json").read_text())
    assert "profile" not in before
    assert set(record) == set(before) | {"profile"}
    assert record["settings"] == before["settings"]

    told = record["profile"]
    assert told["env_steps"] == record["env_steps"]
    for phase in ("training", "evaluation"):
        assert set(told[phase]) <= set(PARTS)
        assert sum(part["share"] for part in told[phase].values()) == pytest.approx(1.0, abs=0.001)
    for part in ("environment", "act", "collect", "forward", "backward", "optimiser", "targets", "log", "checkpoint"):
        assert told["training"][part]["calls"] > 0, part
    assert {"environment", "act", "collect"} <= set(told["evaluation"])
    assert ("store" in told["training"]) == (registry.algorithm(name).data == "replay")
    assert 0 <= told["slots"]["idle_share"] < 1


def test_a_trial_that_continues_adds_up(tmp_path: Path) -> None:
    whole, halves = run(tiny(tmp_path / "a", "vdn")), tiny(tmp_path / "b", "vdn")
    first = run(halves, rounds=2)
    assert first["status"] != "complete"
    assert 0 < first["profile"]["env_steps"] < whole["env_steps"]
    then = run(halves)["profile"]
    for phase, part in (("training", "forward"), ("training", "act"), ("evaluation", "environment")):
        assert then[phase][part]["calls"] == whole["profile"][phase][part]["calls"], part
        assert then[phase][part]["seconds"] > first["profile"][phase][part]["seconds"]
    assert then["env_steps"] == whole["env_steps"]
    assert then["slots"] == whole["profile"]["slots"]


def test_what_a_failure_loses_is_not_counted_twice(tmp_path: Path) -> None:
    one = tiny(tmp_path, "vdn", checkpoint_every=40)

    def fail(progress: Progress) -> None:
        if progress.phase == "evaluating" and progress.env_steps >= 80:
            raise OSError("no space left")

    with pytest.raises(OSError, match="no space"):
        profile.run(one, fail, lambda: False)
    folder = TrialFolder.of(one)
    saved, record = checkpoint.load(folder.path, None, CPU), folder.record()
    assert saved is not None
    assert record is not None
    assert 0 < record["profile"]["env_steps"] == saved["counters"][0]
    again = run(one)
    assert again["profile"]["env_steps"] == again["env_steps"]


def test_nothing_of_an_earlier_attempt_is_added_to_one_that_begins_anew(tmp_path: Path) -> None:
    one = tiny(tmp_path, "vdn")
    run(one, rounds=2)
    (TrialFolder.of(one).path / checkpoint.NAME).unlink()
    record = run(one)
    assert record["profile"]["env_steps"] == record["env_steps"]


def test_diagnostics_have_a_phase_of_their_own(tmp_path: Path) -> None:
    one = tiny(tmp_path, "vdn")
    told = run(dataclasses.replace(one, settings={**one.settings, "cdm": True}))["profile"]
    assert told["diagnostics"]["rest"]["seconds"] > 0
    assert sum(part["share"] for part in told["diagnostics"].values()) == pytest.approx(1.0, abs=0.001)


def test_the_wrappers_are_gone_afterwards(tmp_path: Path) -> None:
    places = (torch.Tensor, "backward"), (evaluate, "episodes"), (trial, "episodes"), (learner, "split")
    before = [getattr(owner, name) for owner, name in places]
    run(tiny(tmp_path, "vdn", env_steps=8))
    assert [getattr(owner, name) for owner, name in places] == before
    assert "act" in vars(registry.algorithm("vdn"))


# -- the switch -------------------------------------------------------------------------------------------------------


def test_the_switch_is_no_part_of_a_trial() -> None:
    asked = ["suite=matrix", "tasks=climbing", "algorithms=vdn", "seeds=2", "budget=smoke"]
    assert parse([*asked, "profile=on"]).trials("cpu") == parse(asked).trials("cpu")
    assert parse(asked).options.profile == "off"
