import math
from typing import Any

import pytest
import torch

from harness import evaluate
from harness.types import Action, Step
from tests.support.episodes import CountingEnv, NoisyEnv, importable, networks, small


class Still:
    """Plays the lowest legal action and asserts that it is asked to be greedy."""

    def act(self, net: Any, step: Step, memory: Any, env_steps: int, rng: torch.Generator | None) -> Action:
        assert rng is None
        assert env_steps == 77
        assert step.avail is not None
        action = step.avail.int().argmax(-1)
        return Action(action, torch.zeros(action.shape), None)


def run(env: Any, count: int, seeds: Any = lambda k: k) -> dict[str, list[float]]:
    return evaluate.run(env, Still(), torch.nn.ModuleDict(), 77, count, seeds)  # type: ignore[arg-type]


def test_every_environment_has_the_same_quota_however_short_its_episodes() -> None:
    """Found elsewhere: the first K episodes to finish were counted, and the short ones finish first."""
    env = CountingEnv([1, 9, 2])
    found = run(env, 9)
    assert found["length"] == [1, 9, 2] * 3
    assert env.seeds == [0, 1, 2]


def test_a_last_round_not_needed_whole_is_cut_by_place_not_by_length() -> None:
    assert run(CountingEnv([9, 1, 2]), 4)["length"] == [9, 1, 2, 9]


def test_returns_and_outcomes_are_those_of_the_episodes_in_order() -> None:
    found = run(CountingEnv([2, 3]), 4)
    assert found == {"return": [3.0, 306.0] * 2, "length": [2, 3] * 2, "won": [0.0, 1.0] * 2}


def test_each_round_has_a_seed_of_its_own() -> None:
    env = CountingEnv([1, 1])
    run(env, 6, lambda k: 1_000 + k)
    assert env.seeds == [1_000, 1_001, 1_002]


@pytest.mark.parametrize("name", importable())
def test_greedy_evaluation_uses_no_randomness_and_repeats_itself(name: str) -> None:
    for kind in sorted(small(name).actions):
        algorithm, env = small(name, kind), NoisyEnv(kind, 4)
        net = networks(algorithm, env.spec)
        before = torch.get_rng_state()
        first = evaluate.run(env, algorithm, net, 0, 8, lambda k: k)
        assert torch.equal(before, torch.get_rng_state())
        torch.manual_seed(3)
        second = evaluate.run(env, algorithm, net, 0, 8, lambda k: k)
        torch.set_rng_state(before)
        assert first == second
        assert all(math.isfinite(x) for x in first["return"])


@pytest.mark.parametrize("name", importable())
def test_greedy_play_does_not_depend_on_how_far_training_is(name: str) -> None:
    """Exploration's schedule has no part in it."""
    algorithm, env = small(name), NoisyEnv("discrete", 4)
    if "discrete" not in algorithm.actions:
        pytest.skip("no discrete actions")
    net = networks(algorithm, env.spec)
    assert evaluate.run(env, algorithm, net, 0, 4, lambda k: k) == evaluate.run(
        env, algorithm, net, 10**9, 4, lambda k: k
    )
