"""The README's third-party suite: its rules, and that it is a suite like any other once it is installed."""

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pandas as pd
import pytest
import torch

from harness import contract
from harness.errors import UserError

EXAMPLE = Path(__file__).parents[2] / "examples" / "rendezvous"
CPU = torch.device("cpu")
LEFT, STAY, RIGHT = 0, 1, 2


@pytest.fixture(scope="module")
def module() -> ModuleType:
    spec = importlib.util.spec_from_file_location("rendezvous", EXAMPLE / "rendezvous.py")
    assert spec is not None
    assert spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    sys.modules["rendezvous"] = found
    spec.loader.exec_module(found)
    return found


def made(module: ModuleType, task: str = "two", envs: int = 64) -> Any:
    return module.Rendezvous().make(task, envs, CPU)


@pytest.mark.parametrize("task", ["two", "three", "five"])
def test_it_holds_to_the_contract(module: ModuleType, task: str) -> None:
    contract.suite(module.Rendezvous, "rendezvous")
    env = made(module, task)
    contract.step(env.reset(3), env.spec, 64)
    contract.step(env.step(torch.ones(64, env.spec.n_agents, dtype=torch.int64)), env.spec, 64)
    with pytest.raises(UserError, match="unknown task of rendezvous 'tow'; did you mean 'two'"):
        made(module, "tow")


def test_an_episode_begins_apart_and_depends_on_the_seed_alone(module: ModuleType) -> None:
    a, b = made(module, "two", 2_000), made(module, "two", 2_000)
    first = a.reset(7)
    a.reset(8)
    assert torch.equal(first.state, b.reset(7).state)
    assert torch.equal(first.state, a.reset(7).state)
    assert (first.state[:, 0] != first.state[:, 1]).all()
    assert ((first.state >= 0) & (first.state <= 1)).all()


def test_walking_towards_the_others_meets_is_paid_once_and_stays(module: ModuleType) -> None:
    env = made(module, "two")
    step, paid = env.reset(1), torch.zeros(64)
    for _ in range(env.spec.episode_limit):
        action = torch.full((64, 2), STAY)
        action[:, 0] = step.obs[:, 0, 1].long() + 1  # the first walks, the second waits
        step = env.step(action)
        paid += step.reward
    assert step.terminated.all()
    assert not step.truncated.any()
    assert torch.equal(paid, torch.ones(64))
    assert torch.equal(step.outcome["met"], torch.ones(64))
    after = env.step(torch.full((64, 2), LEFT))
    assert torch.equal(after.state, step.state)
    assert not after.reward.any()


def test_time_runs_out(module: ModuleType) -> None:
    env = made(module, "two")
    env.reset(1)
    for _ in range(env.spec.episode_limit):
        step = env.step(torch.full((64, 2), STAY))
    assert step.truncated.all()
    assert not step.terminated.any()


def test_the_line_ends(module: ModuleType) -> None:
    env = made(module, "two")
    env.reset(1)
    for _ in range(9):
        step = env.step(torch.tensor([LEFT, RIGHT]).expand(64, 2))
    assert torch.equal(step.state[~step.terminated], torch.tensor([0.0, 1.0]).expand_as(step.state[~step.terminated]))


def test_installed_it_is_a_suite_like_any_other(tmp_path: Path) -> None:
    source, site = tmp_path / "source", tmp_path / "site"
    shutil.copytree(EXAMPLE, source)
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-index", "--no-build-isolation"]
    subprocess.run([*pip, "--target", str(site), str(source)], check=True, capture_output=True)
    env = os.environ | {"PYTHONPATH": str(site), "NO_COLOR": "1"}
    command = [
        sys.executable, "-m", "harness", "run", "suite=rendezvous", "tasks=two", "algorithms=vdn", "seeds=1",
        "env_steps=200", "eval_every=100", "eval_episodes=4", "final_episodes=4", "name=ours", "device=cpu", "cells=5",
    ]  # fmt: skip
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    final = pd.read_csv(tmp_path / "results/ours/rendezvous/two/vdn/seed_0/final.csv")
    assert set(final["met"]) <= {0.0, 1.0}
    assert len(final) == 4
