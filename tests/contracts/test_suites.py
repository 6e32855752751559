"""What every registered suite must do, where its packages are installed; nothing here names one."""

import itertools
from collections.abc import Iterator
from contextlib import ExitStack
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor

from harness import registry
from harness.errors import UserError
from harness.profile import Clock, replace
from harness.suite import EpisodeVoid, Suite, VecEnv
from harness.types import Discrete, Step

CPU = torch.device("cpu")
ENVS = 3
MADE: list[VecEnv] = []


def suites() -> list[Any]:
    found = []
    for name in registry.suites():
        try:
            registry.suite(name)().engine_version()
        except UserError as error:  # its one line names the extra to install
            found.append(pytest.param(name, marks=pytest.mark.skip(reason=str(error))))
        else:
            found.append(pytest.param(name))
    return found


EACH = pytest.mark.parametrize("name", suites())


def one_task(suite: Any) -> str:
    return str(suite.default_tasks[0])


@cache
def made(name: str) -> VecEnv:
    """The environments of a suite's first task, made once: some take long to start."""
    suite = registry.suite(name)()
    env: VecEnv = suite.make(one_task(suite), ENVS, CPU)
    MADE.append(env)
    return env


@pytest.fixture(scope="module", autouse=True)
def closed() -> Iterator[None]:
    yield
    for env in MADE:
        env.close()
    made.cache_clear()


def chosen(step: Step, env: VecEnv, rng: torch.Generator) -> Tensor:
    action = env.spec.action
    if isinstance(action, Discrete):
        assert step.avail is not None
        return torch.multinomial(step.avail.flatten(0, 1).float(), 1, generator=rng).reshape(ENVS, -1)
    shape = (ENVS, env.spec.n_agents, action.size)
    return action.low + (action.high - action.low) * torch.rand(shape, generator=rng)


def play(env: VecEnv, seed: int, most: int = 10**9) -> list[Step]:
    """Random legal play until everything is over, or for so many steps; copies, lest memory be reused."""

    def copied(step: Step) -> Step:
        outcome = {k: v.clone() for k, v in step.outcome.items()}
        return Step(*(None if x is None else x.clone() for x in step[:-1]), outcome)  # type: ignore[arg-type]

    rng = torch.Generator().manual_seed(seed)
    steps = [copied(env.reset(seed))]
    while len(steps) <= min(most, env.spec.episode_limit) and not (steps[-1].terminated | steps[-1].truncated).all():
        steps.append(copied(env.step(chosen(steps[-1], env, rng))))
    return steps


@EACH
def test_it_is_data_and_a_constructor(name: str) -> None:
    suite = registry.suite(name)()
    assert isinstance(suite, Suite)
    assert suite.name == name
    assert suite.__doc__
    assert {"smoke", "quick", "paper"} <= set(suite.budgets)
    assert suite.budgets["smoke"].env_steps <= suite.budgets["quick"].env_steps <= suite.budgets["paper"].env_steps
    tasks = suite.tasks()
    assert set(suite.default_tasks) <= set(tasks)
    for key, task in tasks.items():
        assert task.name == key
        assert task.action in ("discrete", "continuous")
        low, high = task.bounds
        assert low < high, key
        assert task.score(low) == 0.0
        assert task.score(high) == 1.0
    assert suite.engine_version().strip()


@EACH
def test_an_unknown_task_is_refused_by_name(name: str) -> None:
    with pytest.raises(UserError, match="no_such_task"):
        registry.suite(name)().make("no_such_task", ENVS, CPU)


@EACH
def test_the_task_is_what_it_says(name: str) -> None:
    suite, env = registry.suite(name)(), made(name)
    task = suite.tasks()[one_task(suite)]
    assert isinstance(env, VecEnv)
    assert env.num_envs == ENVS
    assert env.spec.action.kind == task.action
    assert task.metric in ("return", *env.spec.outcomes)


@EACH
def test_every_step_has_the_shapes_and_types_of_the_glossary(name: str) -> None:
    env = made(name)
    spec, e, n = env.spec, ENVS, env.spec.n_agents
    for step in play(env, 1, most=4):
        wanted: dict[str, tuple[tuple[int, ...], torch.dtype]] = {
            "obs": ((e, n, spec.obs_dim), torch.float32),
            "state": ((e, spec.state_dim), torch.float32),
            "alive": ((e, n), torch.bool),
            "reward": ((e,), torch.float32),
            "terminated": ((e,), torch.bool),
            "truncated": ((e,), torch.bool),
        }
        if isinstance(spec.action, Discrete):
            wanted["avail"] = ((e, n, spec.action.n), torch.bool)
        else:
            assert step.avail is None
        for key, (shape, kind) in wanted.items():
            value = getattr(step, key)
            assert tuple(value.shape) == shape, key
            assert value.dtype == kind, key
            assert torch.isfinite(value.float()).all(), key
        assert set(step.outcome) == set(spec.outcomes)
        assert all(tuple(v.shape) == (e,) for v in step.outcome.values())


@EACH
def test_after_reset_nothing_has_happened(name: str) -> None:
    step = made(name).reset(3)
    assert not step.reward.any()
    assert not (step.terminated | step.truncated).any()
    assert step.alive.any(-1).all()


@EACH
def test_whole_episodes_end_within_the_limit_once_and_idle_afterwards(name: str) -> None:
    env = made(name)
    steps = play(env, 5)
    over = torch.stack([s.terminated | s.truncated for s in steps])
    assert over[-1].all()
    assert len(steps) - 1 <= env.spec.episode_limit
    assert not torch.stack([s.terminated & s.truncated for s in steps]).any()
    for before, after in itertools.pairwise(steps):
        was = before.terminated | before.truncated
        assert torch.equal(after.terminated[was], before.terminated[was])
        assert torch.equal(after.truncated[was], before.truncated[was])
        assert not after.reward[was].any()
        assert torch.equal(after.obs[was], before.obs[was])
    for step in steps:
        if step.avail is not None:
            assert step.avail.any(-1).all()  # the dead and the idle too
        assert torch.isfinite(step.obs).all()
        assert torch.isfinite(step.state).all()
        assert torch.isfinite(step.reward).all()
    for values in steps[-1].outcome.values():
        assert ((values == 0) | (values == 1)).all()


@EACH
def test_an_episode_depends_on_seed_and_actions_alone(name: str) -> None:
    env = made(name)
    first = play(env, 7, most=6)
    play(env, 8, most=3)  # another round, left in the middle
    torch.manual_seed(1)
    second = play(env, 7, most=6)
    assert len(first) == len(second)
    for a, b in zip(first, second, strict=True):
        for x, y in zip(a[:-1], b[:-1], strict=True):
            assert (x is None and y is None) or torch.equal(x, y)  # type: ignore[arg-type]


@EACH
def test_environments_side_by_side_are_not_copies(name: str) -> None:
    """Found elsewhere: workers that share a seed."""
    env = made(name)
    seeds = [play(env, seed, most=8) for seed in range(4)]
    states = torch.stack([torch.cat([s.state, s.reward[:, None]], -1) for s in (x[min(3, len(x) - 1)] for x in seeds)])
    flat = states.flatten(0, 1)
    assert len({tuple(row) for row in flat.tolist()}) > 1


@EACH
def test_seeds_of_63_bits_are_taken(name: str) -> None:
    env = made(name)
    assert torch.isfinite(env.reset(2**63 - 1).obs).all()
    assert torch.isfinite(env.reset(0).obs).all()


def test_a_void_round_is_an_exception_of_its_own() -> None:
    assert issubclass(EpisodeVoid, Exception)
    assert not issubclass(EpisodeVoid, UserError)


@EACH
def test_its_time_can_be_measured_from_outside(name: str) -> None:
    """As ``profile=on`` does."""
    env, clock, rng = made(name), Clock(), torch.Generator().manual_seed(0)
    with ExitStack() as stack:
        for method in ("reset", "step"):
            replace(stack, env, method, lambda function: clock.wrap("environment", function))
        env.step(chosen(env.reset(0), env, rng))
    assert clock.calls["training", "environment"] == 2
    assert clock.total() > 0
    env.step(chosen(env.reset(0), env, rng))
    assert clock.calls["training", "environment"] == 2


@EACH
def test_closing_twice_is_safe(name: str) -> None:
    suite = registry.suite(name)()
    env = suite.make(one_task(suite), 1, CPU)
    env.close()
    env.close()
