"""Proof of learning: every registered method, on a game that takes seconds."""

import pytest

from tests.support.episodes import method_kinds, small
from tests.support.learning import FAST, Aim, greedy_return, train


@pytest.mark.learns
@pytest.mark.parametrize(("name", "kind"), method_kinds())
def test_it_learns_to_do_what_it_is_shown(name: str, kind: str) -> None:
    algorithm = small(name, kind, **FAST)
    env = Aim(kind, 16)
    learner = train(algorithm, env, 150)
    score = greedy_return(algorithm, learner.net, env)
    assert score > (1.9 if kind == "discrete" else 1.6), score


@pytest.mark.parametrize("kind", ["discrete", "continuous"])
def test_what_random_play_is_worth_there(kind: str) -> None:
    """Far from what is asked above: 1/3 to 1/4 of it when discrete, nothing when continuous."""
    algorithm = small("ippo" if kind == "continuous" else "vdn", kind, **FAST)
    env = Aim(kind, 16)
    found = [greedy_return(algorithm, train(algorithm, env, 0, seed).net, env) for seed in range(5)]
    assert max(found) < 1.5, found
