"""One process an environment: what goes wrong costs an episode and no more, and nothing stays behind."""

from __future__ import annotations

import importlib
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import torch

pytest.importorskip("pettingzoo")

from harness.errors import UserError
from harness.suite import EpisodeVoid, VecEnv
from harness.types import Step
from suites.adapters.inline import Inline
from suites.adapters.pettingzoo import build
from suites.adapters.single import IllegalMoment, seeds
from suites.adapters.subprocess import EnvironmentFailed, Subprocess

CPU = torch.device("cpu")
STANDINS = Path(__file__).parent / "standins"
FIRST = torch.zeros(2, 2, dtype=torch.int64)
Start = Callable[..., Subprocess]


@pytest.fixture
def standins(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(STANDINS))
    return importlib.import_module("standin_envs")


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    return tmp_path / "plan"


@pytest.fixture
def start(standins: Any, plan: Path) -> Iterator[Start]:
    started: list[Subprocess] = []

    def begin(num_envs: int = 2, ends: str = "truncated", **options: Any) -> Subprocess:
        make = partial(standins.Misbehaving, str(plan), ends)
        started.append(Subprocess(make, num_envs, CPU, "standin", **options))
        return started[-1]

    yield begin
    for env in started:
        env.close()


def episode(env: VecEnv, seed: int) -> list[Step]:
    steps = [env.reset(seed)]
    while not bool((steps[-1].terminated | steps[-1].truncated).all()):
        steps.append(env.step(torch.full((env.num_envs, 2), len(steps) % 3)))
    return steps


def same(a: list[Step], b: list[Step]) -> bool:
    return len(a) == len(b) and all(
        torch.equal(x.obs, y.obs) and torch.equal(x.state, y.state) and torch.equal(x.reward, y.reward)
        for x, y in zip(a, b)
    )


@pytest.mark.parametrize("ends", ["truncated", "terminated"])
def test_whole_episodes_arrive_as_they_happened(start: Start, ends: str) -> None:
    env = start(ends=ends)
    assert isinstance(env, VecEnv)
    assert (env.spec.n_agents, env.spec.obs_dim, env.spec.state_dim, env.spec.episode_limit) == (2, 4, 3, 6)
    assert (env.spec.action.dim, env.spec.outcomes) == (3, ("won",))
    steps = episode(env, 5)
    assert [float(s.reward[0]) for s in steps] == [0.0, 3.0, 5.0, 1.0, 3.0, 5.0, 1.0]
    assert [float(s.obs[1, 0, 0]) for s in steps] == [0, 1, 2, 3, 4, 5, 6]
    assert bool(steps[-1].terminated.all()) == (ends == "terminated")
    assert bool(steps[-1].truncated.all()) == (ends == "truncated")
    assert steps[-1].outcome["won"].tolist() == [1.0, 1.0]
    assert steps[0].avail is not None
    assert steps[0].avail.dtype == torch.bool
    assert env.record() == {"restarts": 0, "reasons": {}}


def test_a_finished_environment_idles(start: Start) -> None:
    env = start()
    last = episode(env, 5)[-1]
    idle = env.step(torch.ones(2, 2, dtype=torch.int64))
    assert idle.reward.tolist() == [0.0, 0.0]
    assert torch.equal(idle.obs, last.obs)
    assert bool(idle.truncated.all())
    assert bool(last.truncated.all())
    assert idle.avail is not None
    assert bool(idle.avail.any(-1).all())


def test_what_was_returned_does_not_change_later(start: Start) -> None:
    env = start()
    first = env.reset(1)
    kept = first.obs.clone()
    env.step(FIRST + 1)
    assert torch.equal(first.obs, kept)


@pytest.mark.parametrize("kind", ["process", "inline"])
def test_episodes_follow_the_seed_alone(standins: Any, start: Start, kind: str) -> None:
    env: Any = start() if kind == "process" else Inline(standins.Misbehaving, 2, CPU, "standin")
    once = episode(env, 2**63 - 1)
    episode(env, 4)
    random.seed(0)
    np.random.seed(0)  # noqa: NPY002
    torch.manual_seed(0)
    outside = (random.getstate(), np.random.get_state()[1].tolist())  # noqa: NPY002
    again = episode(env, 2**63 - 1)
    assert same(once, again)
    assert not same(once, episode(env, 4))
    assert not torch.equal(once[0].obs[0], once[0].obs[1])  # environments differ from each other
    assert outside == (random.getstate(), np.random.get_state()[1].tolist())  # noqa: NPY002
    env.close()


def test_no_two_trials_share_a_worker_seed() -> None:
    drawn = [s for trial in range(50) for s in seeds(trial, 32)]
    assert len(set(drawn)) == len(drawn)
    assert max(drawn) < 2**63


@pytest.mark.parametrize(
    ("order", "reason"),
    [
        ("crash", "killed by signal 9"),
        ("exit", "exit code 7"),
        ("raise", "ConnectionError: the game does not answer"),
        ("hang", "no answer within 1 s"),
    ],
)
def test_an_environment_that_fails_in_a_step_is_replaced_and_the_round_is_void(
    start: Start, plan: Path, order: str, reason: str
) -> None:
    env = start(step_timeout=1.0)
    reference = episode(env, 9)
    plan.write_text(f"{order} 3")
    env.reset(8)
    env.step(FIRST)
    env.step(FIRST)
    with pytest.raises(EpisodeVoid, match=reason):
        env.step(FIRST)
    assert same(episode(env, 9), reference)
    record = env.record()
    assert record["restarts"] == 1
    assert reason in next(iter(record["reasons"]))


@pytest.mark.parametrize("order", ["crash", "raise", "hang"])
def test_an_environment_that_fails_in_reset_begins_another_episode(start: Start, plan: Path, order: str) -> None:
    env = start(reset_timeout=1.5)
    reference = env.reset(9)
    plan.write_text(f"{order} reset")
    step = env.reset(9)
    assert env.record()["restarts"] == 1
    changed = [not torch.equal(step.obs[i], reference.obs[i]) for i in range(2)]
    assert sorted(changed) == [False, True]  # with the same seed it might fail the same way for ever
    assert not bool(step.terminated.any() | step.truncated.any())


def test_restarts_are_bounded_and_the_reason_is_told(start: Start, plan: Path) -> None:
    plan.write_text("raise reset always")
    env = start(max_restarts=2)
    workers = [w._process.pid for w in env._workers]
    with pytest.raises(EnvironmentFailed, match=r"failed after 2 restarts: ConnectionError: the game does not answer"):
        env.reset(0)
    assert not any(psutil.pid_exists(pid) for pid in workers)


def test_an_environment_that_cannot_start_says_so(start: Start, plan: Path) -> None:
    plan.write_text("exit start always")
    with pytest.raises(EnvironmentFailed, match=r"standin: cannot be started: the worker ended with exit code 7"):
        start()


def test_a_users_mistake_stays_one_line() -> None:
    with pytest.raises(UserError, match="has no nothing"):
        Subprocess(partial(build, "suites.adapters:nothing", {}, reward="sum", episode_limit=1), 1, CPU, "x")


def test_an_all_zero_mask_is_an_error_and_never_repaired(start: Start, plan: Path) -> None:
    env = start(num_envs=1)
    env.reset(0)
    plan.write_text("mask 2")
    env.step(FIRST[:1])
    with pytest.raises(IllegalMoment, match=r"standin: no legal action for agent 1 at step 2"):
        env.step(FIRST[:1])
    assert env.record()["restarts"] == 0
    assert env._workers == []  # there is nothing to go on with


def test_closing_twice_leaves_nothing(start: Start, plan: Path) -> None:
    plan.write_text("hang close always")
    env = start()
    workers = [w._process.pid for w in env._workers]
    for worker in env._workers:
        os.kill(worker._process.pid, signal.SIGSTOP)  # cannot even answer
    env._workers[0]._process.send_signal(signal.SIGCONT)
    begun = time.monotonic()
    env.close()
    env.close()
    assert time.monotonic() - begun < 10
    assert not any(psutil.pid_exists(pid) for pid in workers)


def test_workers_do_not_import_torch(start: Start) -> None:
    env = start(num_envs=1)
    maps = {Path(m.path).name for m in psutil.Process(env._workers[0]._process.pid).memory_maps()}
    assert not any("torch" in name for name in maps)


PARENT = """
import sys, time
sys.path.insert(0, {standins!r})
from functools import partial
import torch
from standin_envs import Misbehaving
from suites.adapters.subprocess import Subprocess
env = Subprocess(partial(Misbehaving, {plan!r}), 2, torch.device("cpu"), "standin", own_children={children})
env.reset(0)
print(*[w._process.pid for w in env._workers], flush=True)
env.step(torch.zeros(2, 2, dtype=torch.int64))
time.sleep(1000)
"""


@pytest.mark.parametrize("children", [False, True])
@pytest.mark.parametrize("stuck", [False, True])
def test_nothing_outlives_a_killed_parent(plan: Path, children: bool, stuck: bool) -> None:
    plan.write_text("child reset\n" * children + "stuck 1\n" * stuck)
    code = PARENT.format(standins=str(STANDINS), plan=str(plan), children=children)
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        left = [int(pid) for pid in parent.stdout.readline().split()]
        assert len(left) == 2
        if children:
            left.append(int(plan.with_suffix(".child").read_text()))
        if stuck:
            deadline = time.monotonic() + 30
            while not plan.with_suffix(".stuck_1").exists() and time.monotonic() < deadline:
                time.sleep(0.05)
        parent.kill()
    deadline = time.monotonic() + 10
    while any(alive(pid) for pid in left) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not [pid for pid in left if alive(pid)]


def alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
