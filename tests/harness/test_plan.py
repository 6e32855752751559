"""What is left to do, what it takes, and what may not be mixed.

Cases: a sweep run again does only what is missing (hydra#1407); replay memory is estimated before the start and refused
over the limit (epymarl#51, pymarl2#23).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from harness import lock
from harness.config import parse
from harness.errors import UserError
from harness.plan import Plan, devices, make, memory_limit, size
from harness.replay import bytes_needed
from harness.store import TrialFolder

Make = Callable[..., Plan]


@pytest.fixture
def plan(fake_marl: ModuleType, tmp_path: Path) -> Make:
    def of(*arguments: str) -> Plan:
        return make(parse(["suite=toy", "device=cpu", "algorithms=fake", f"results={tmp_path}", *arguments]))

    return of


def leave(plan: Plan, index: int, **values: object) -> TrialFolder:
    """A record as a run would have left it."""
    trial = plan.items[index].trial
    folder = TrialFolder.of(trial)
    named = {k: getattr(trial, k) for k in ("experiment", "suite", "task", "algorithm", "seed")}
    folder.update(**named, settings=dict(trial.settings), engine=trial.settings["engine"], **values)
    return folder


def test_complete_trials_are_skipped_and_all_others_done(plan: Make) -> None:
    first = plan("seeds=3")
    assert [i.status for i in first.items] == ["new"] * 6
    for k, status in enumerate(("complete", "failed", "interrupted", "running", "complete")):
        leave(first, k, status=status)
    again = plan("seeds=3")
    assert [i.status for i in again.items] == ["complete", "failed", "interrupted", "interrupted", "complete", "new"]
    assert [i.trial.key for i in again.todo] == [i.trial.key for i in (*again.items[1:4], again.items[5])]
    more = plan("seeds=4")
    assert len(more.todo) == 6


def test_a_running_trial_is_one_whose_lock_is_held(plan: Make) -> None:
    first = plan("seeds=1")
    folder = leave(first, 0, status="running")
    handle = lock.acquire(folder.path)
    assert handle is not None
    assert lock.acquire(folder.path) is None
    assert plan("seeds=1").items[0].status == "running"
    os.close(handle)
    assert plan("seeds=1").items[0].status == "interrupted"


def test_a_damaged_record_is_work_to_do(plan: Make) -> None:
    folder = leave(plan("seeds=1"), 0, status="complete")
    (folder.path / "trial.json").write_text('{"version": 1, "stat')
    assert plan("seeds=1").items[0].status == "damaged"


def test_a_complete_trial_with_a_cut_table_is_work_to_do(plan: Make) -> None:
    folder = leave(plan("seeds=1"), 0, status="complete")
    folder.append("final.csv", ("env_steps", "return"), [(1, 2.5), (1, 3.5)])
    folder.update(bytes=folder.positions())
    assert plan("seeds=1").items[0].status == "complete"
    folder.append("cdm.csv", ("env_steps", "metric", "value"), [(1, "gap", 0.5)])  # diagnosed afterwards
    assert plan("seeds=1").items[0].status == "complete"
    os.truncate(folder.path / "final.csv", 20)
    assert plan("seeds=1").items[0].status == "damaged"


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ("fake.lr=0.5", "toy-quick already holds fake on one with fake.lr=0.001, now it is 0.5"),
        ("env_steps=2000", "with env_steps=1000, now it is 2000"),
        ("scale=3", "with scale=1.0, now it is 3.0"),
        ("eval_episodes=3", "with eval_episodes=2, now it is 3"),
    ],
)
def test_other_settings_in_the_same_place_are_refused(plan: Make, changed: str, message: str) -> None:
    leave(plan("seeds=1"), 0, status="complete")
    with pytest.raises(UserError) as error:
        plan("seeds=1", changed)
    assert message in str(error.value)
    assert "name=" in str(error.value)
    with pytest.raises(UserError):  # another seed, so another folder: it would still be averaged with the first
        plan("seeds=5,", changed)
    assert len(plan("seeds=1", changed, "name=other").todo) == 2


def test_other_engines_are_never_mixed(plan: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    leave(plan("seeds=1"), 0, status="complete")
    monkeypatch.setenv("TOY_ENGINE", "toy 2.0")
    with pytest.raises(UserError, match=r"engine=toy 1\.0, now it is toy 2\.0"):
        plan("tasks=three")


def test_what_changes_no_number_may_change(plan: Make) -> None:
    leave(plan("seeds=1"), 0, status="complete")
    again = plan("seeds=1", "checkpoint_every=7", "workers=1", "retries=0")
    assert [i.status for i in again.items] == ["complete", "new"]


def test_replay_memory_is_estimated_and_refused_over_the_limit(plan: Make, fake_marl: ModuleType) -> None:
    alone = bytes_needed(fake_marl.Toy().spec("one"), 100)
    made = plan("workers=3", "seeds=2")
    assert [i.replay_bytes for i in made.items] == [alone] * 4
    assert made.memory == 3 * alone
    assert plan("workers=3", "seeds=1").memory == 2 * alone  # no more than two trials to do
    with pytest.raises(UserError) as error:
        plan("workers=3", "seeds=2", f"max_memory={int(2.5 * alone)}")
    assert "try workers=2" in str(error.value)
    with pytest.raises(UserError) as error:
        plan("workers=1", f"max_memory={alone // 2}")
    assert "try fake.buffer_episodes=50" in str(error.value)


def test_time_is_known_once_such_a_trial_is_complete(plan: Make) -> None:
    first = plan("seeds=3", "tasks=one", "workers=2")
    assert first.seconds is None
    for k, seconds in enumerate((10.0, 30.0)):
        leave(first, k, status="complete", wall_s=seconds)
    again = plan("seeds=6", "tasks=one", "workers=2")
    assert [i.seconds for i in again.todo] == [20.0] * 4
    assert again.seconds == 40.0
    assert plan("seeds=1", "tasks=one", "name=long", "env_steps=1e4").todo[0].seconds == 200.0


def test_sizes_are_read_and_written() -> None:
    assert [memory_limit(t) for t in ("8GB", "1.5G", "500mb", "2 KiB", "1000")] == [
        8 * 2**30, 3 * 2**29, 500 * 2**20, 2048, 1000,
    ]  # fmt: skip
    assert [size(n) for n in (12, 2048, 3 * 2**29, 2**40)] == ["12 B", "2.0 KB", "1.5 GB", "1.0 TB"]
    for text in ("lots", "GB", "1.2.3GB", "-1GB"):
        with pytest.raises(UserError, match="expected a size such as 8GB"):
            memory_limit(text)


def test_a_gpu_asked_for_must_be_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(UserError, match="torch finds no GPU"):
        devices("cuda", None, 1)
    assert devices("auto", 3, 1) == ("cpu",) * 3
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    assert devices("auto", None, 2) == ("cuda:0", "cuda:1", "cuda:0", "cuda:1")
    assert devices("cpu", 1, 2) == ("cpu",)
