"""What every registered suite promises: shapes, masks, whole episodes, and episodes that follow the seed alone."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from harness import registry
from harness.errors import UserError
from harness.suite import Suite, VecEnv
from harness.types import Discrete, Step

CPU = torch.device("cpu")
SETTINGS: dict[str, dict[str, Any]] = {
    "pettingzoo": {"env": "mpe2.simple_spread_v3:parallel_env", "args": '{"max_cycles": 6}', "stepping": "inline"},
}
"""Fields without which a suite has nothing to play."""
SKIPPED = {"smac": "its engine takes half a minute to compile; tests/suites/smac asks the same of it"}


def suites() -> list[Any]:
    """(suite, task of each action kind) for every registered suite, as pytest parameters."""
    found = []
    for name in registry.suites():
        if name in SKIPPED:
            found.append(pytest.param(name, "", marks=pytest.mark.skip(reason=SKIPPED[name])))
            continue
        suite = registry.suite(name)(**SETTINGS.get(name, {}))
        first: dict[str, str] = {}
        for task in [*suite.default_tasks, *suite.tasks()]:
            first.setdefault(suite.tasks()[task].action, task)
        found += [pytest.param(name, task) for task in first.values()]
    return found


CASES = suites()


@pytest.fixture
def env(suite: Suite, task: str) -> Iterator[VecEnv]:
    made = suite.make(task, 3, CPU)
    yield made
    made.close()
    made.close()


@pytest.fixture
def suite(name: str) -> Suite:
    made: Suite = registry.suite(name)(**SETTINGS.get(name, {}))
    try:
        made.engine_version()
    except UserError as error:
        pytest.skip(str(error))
    return made


def act(env: VecEnv, step: Step, generator: torch.Generator) -> Tensor:
    """Uniform legal play."""
    e, n = step.alive.shape
    if step.avail is not None:
        return torch.multinomial(step.avail.reshape(e * n, -1).float(), 1, generator=generator).reshape(e, n)
    box = env.spec.action
    assert not isinstance(box, Discrete)
    return torch.rand(e, n, box.size, generator=generator) * (box.high - box.low) + box.low


def play(env: VecEnv, seed: int, most: int = 40) -> list[Step]:
    """At most ``most`` steps of random play from ``seed``."""
    generator = torch.Generator().manual_seed(seed)
    steps = [env.reset(seed)]
    while len(steps) <= most and not bool((steps[-1].terminated | steps[-1].truncated).all()):
        steps.append(env.step(act(env, steps[-1], generator)))
    return steps


def same(a: list[Step], b: list[Step]) -> bool:
    return len(a) == len(b) and all(
        torch.equal(x.obs, y.obs) and torch.equal(x.state, y.state) and torch.equal(x.reward, y.reward)
        for x, y in zip(a, b)
    )


@pytest.mark.parametrize(("name", "task"), CASES)
def test_a_suite_is_data_and_a_constructor(suite: Suite, name: str, task: str) -> None:
    assert isinstance(suite, Suite)
    assert dataclasses.is_dataclass(suite)
    assert suite.name == name
    assert {"smoke", "quick", "paper"} <= set(suite.budgets)
    assert set(suite.default_tasks) <= set(suite.tasks())
    assert suite.__class__.__doc__
    described = suite.tasks()[task]
    low, high = described.bounds
    assert low < high
    assert described.doc
    assert described.score(low) == 0.0
    assert any(part.isdigit() for part in suite.engine_version().replace(".", " ").split()) or suite.engine_version()


@pytest.mark.parametrize(("name", "task"), CASES)
def test_shapes_types_and_masks(env: VecEnv, suite: Suite, task: str) -> None:
    assert isinstance(env, VecEnv)
    spec = env.spec
    assert spec.action.kind == suite.tasks()[task].action
    for step in play(env, 3, most=8):
        assert step.obs.shape == (3, spec.n_agents, spec.obs_dim)
        assert step.state.shape == (3, spec.state_dim)
        assert step.alive.shape == (3, spec.n_agents)
        assert (step.obs.dtype, step.state.dtype, step.reward.dtype) == (torch.float32,) * 3
        assert (step.alive.dtype, step.terminated.dtype, step.truncated.dtype) == (torch.bool,) * 3
        assert step.reward.shape == step.terminated.shape == step.truncated.shape == (3,)
        assert set(step.outcome) == set(spec.outcomes)
        assert bool(torch.isfinite(step.obs).all())
        assert bool(torch.isfinite(step.state).all())
        assert not bool((step.terminated & step.truncated).any())
        if isinstance(spec.action, Discrete):
            assert step.avail is not None
            assert step.avail.shape == (3, spec.n_agents, spec.action.n)
            assert bool(step.avail.any(-1).all())
        else:
            assert step.avail is None
            assert spec.action.low < spec.action.high


@pytest.mark.parametrize(("name", "task"), CASES)
def test_episodes_follow_seed_and_actions_alone(env: VecEnv) -> None:
    once = play(env, 2**62 + 3)
    other = play(env, 5)
    random.seed(1)
    np.random.seed(1)  # noqa: NPY002
    torch.manual_seed(1)
    again = play(env, 2**62 + 3)
    assert same(once, again)
    if not same(once[:1], other[:1]):  # a game without chance begins the same way
        assert not torch.equal(once[0].obs[0], once[0].obs[1])


@pytest.mark.parametrize(("name", "task"), CASES)
def test_no_global_generator_is_read_or_moved(env: VecEnv) -> None:
    before = (random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state())  # noqa: NPY002
    generator = torch.Generator().manual_seed(0)
    step = env.reset(1)
    for _ in range(3):
        step = env.step(act(env, step, generator))
    assert random.getstate() == before[0]
    assert np.random.get_state()[1].tolist() == before[1]  # noqa: NPY002
    assert torch.equal(torch.get_rng_state(), before[2])


@pytest.mark.parametrize(("name", "task"), CASES)
def test_two_at_a_time_do_not_disturb_each_other(suite: Suite, task: str, env: VecEnv) -> None:
    reference = play(env, 7, most=6)
    other, generator = suite.make(task, 2, CPU), torch.Generator().manual_seed(7)
    steps, beside = [env.reset(7)], other.reset(1)
    while len(steps) < len(reference):
        beside = other.step(act(other, beside, torch.Generator().manual_seed(2)))
        steps.append(env.step(act(env, steps[-1], generator)))
    other.close()
    assert same(steps, reference)


@pytest.mark.parametrize(("name", "task"), CASES)
def test_episodes_end_within_the_limit_and_then_idle(env: VecEnv) -> None:
    if env.spec.episode_limit > 100:
        pytest.skip("an episode is long; the suite's own tests end one")
    steps = play(env, 1, most=env.spec.episode_limit)
    last = steps[-1]
    assert bool((last.terminated | last.truncated).all())
    idle = env.step(act(env, last, torch.Generator().manual_seed(0)))
    assert idle.reward.tolist() == [0.0] * 3
    assert torch.equal(idle.terminated, last.terminated)
    assert torch.equal(idle.truncated, last.truncated)
    assert torch.equal(idle.obs, last.obs)
    fresh = env.reset(2)
    assert not bool((fresh.terminated | fresh.truncated).any())
    assert fresh.reward.tolist() == [0.0] * 3


@pytest.mark.parametrize(("name", "task"), CASES)
def test_what_was_returned_does_not_change_later(env: VecEnv) -> None:
    generator = torch.Generator().manual_seed(0)
    step = env.reset(1)
    kept = [t.clone() for t in (step.obs, step.state, step.reward, step.alive)]
    env.step(act(env, step, generator))
    assert all(torch.equal(a, b) for a, b in zip(kept, (step.obs, step.state, step.reward, step.alive)))


@pytest.mark.parametrize(("name", "task"), CASES)
def test_an_unknown_task_is_refused_with_the_nearest(suite: Suite, name: str, task: str) -> None:
    with pytest.raises(UserError, match="unknown "):
        suite.make(task[:-1] + "?", 1, CPU)
