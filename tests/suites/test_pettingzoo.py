"""Suite pettingzoo: any environment by name, with its arguments, and one clear line for what cannot be played."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

pytest.importorskip("pettingzoo")

from harness.errors import UserError
from harness.types import Continuous
from suites.pettingzoo import TASK, PettingZoo

CPU = torch.device("cpu")
SPREAD = "mpe2.simple_spread_v3:parallel_env"


@pytest.fixture(autouse=True)
def standins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parent / "adapters" / "standins"))


def test_an_environment_with_its_arguments() -> None:
    pytest.importorskip("mpe2")
    suite = PettingZoo(env=SPREAD, args='{"N": 4, "max_cycles": 7}', stepping="inline")
    env = suite.make(TASK, 2, CPU)
    assert env.spec.n_agents == 4
    env.reset(0)
    steps = [env.step(torch.zeros(2, 4, dtype=torch.int64)) for _ in range(7)]
    assert bool(steps[-1].truncated.all())
    assert not bool(steps[-2].truncated.any())
    assert suite.spec(TASK) == env.spec


def test_results_of_other_environments_or_arguments_are_of_another_engine() -> None:
    pytest.importorskip("mpe2")
    engines = {PettingZoo(env=SPREAD, args=args).engine_version() for args in ('{"N": 4}', '{"N": 5}', '{"N":5}', "{}")}
    assert len(engines) == 3
    assert all(engine.startswith(SPREAD) and "mpe2 1." in engine and "pettingzoo 1." in engine for engine in engines)


def test_processes_are_the_default_and_play_a_users_own_environment() -> None:
    suite = PettingZoo(env="standin_envs:Leaving", reward="mean")
    assert suite.stepping == "process"
    env = suite.make(TASK, 2, CPU)
    env.reset(0)
    steps = [env.step(torch.zeros(2, 3, dtype=torch.int64)) for _ in range(5)]
    assert sum(float(s.reward[0]) for s in steps) == pytest.approx(8 / 3)
    env.close()


def test_continuous_actions() -> None:
    suite = PettingZoo(env="standin_envs:Boxes", action="continuous", stepping="inline", limit=3)
    env = suite.make(TASK, 1, CPU)
    assert env.spec.action == Continuous(-1.0, 1.0, 2)
    assert suite.tasks()[TASK].action == "continuous"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, r"needs env=module:factory, e\.g\. env=mpe2"),
        ({"env": "standin_envs:Boxes"}, r"has continuous actions; set action=continuous"),
        ({"env": "standin_envs:Mixed"}, r"a: Discrete, b: Box"),
        ({"env": "standin_envs:Leavin"}, r"has no Leavin"),
        ({"env": "standin_envs:Leaving", "args": "{N: 5}"}, r"is not JSON"),
        ({"env": "standin_envs:Leaving", "args": "[5]"}, r"is not a JSON object"),
        ({"env": "standin_envs:Leaving", "limit": 0}, r"limit=0"),
    ],
)
def test_what_cannot_be_played_is_one_clear_line(settings: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        PettingZoo(stepping="inline", **settings).make(TASK, 1, CPU)  # type: ignore[arg-type]


def test_it_can_be_listed_without_an_environment() -> None:
    assert list(PettingZoo().tasks()) == [TASK] == list(PettingZoo.default_tasks)
