"""The PettingZoo adapter against environments that the test knows everything about, and against mpe2 itself."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("pettingzoo")

from harness.errors import UserError
from suites.adapters.pettingzoo import PettingZooEnv, load
from suites.adapters.single import IllegalMoment, check

ANY = np.zeros(3, np.int64)


@pytest.fixture
def standins(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(Path(__file__).parent / "standins"))
    return importlib.import_module("standin_envs")


def wrap(factory: Any, *, reward: Any = "sum", limit: int = 50, state: Any = "auto", **arguments: Any) -> PettingZooEnv:
    return PettingZooEnv(factory, arguments, reward=reward, episode_limit=limit, state=state)


def test_order_is_that_of_possible_agents_and_sizes_are_padded(standins: Any) -> None:
    env = wrap(standins.Leaving)
    assert env.layout[:5] == (3, 4, 12, 50, 4)
    env.reset(0)
    moment = env.step(ANY)
    np.testing.assert_array_equal(moment.obs[1:], [[2, 2, 2, 0], [3, 3, 3, 3]])
    np.testing.assert_array_equal(moment.state, moment.obs.ravel())


def test_an_agent_that_left_sees_nothing_may_do_nothing_and_is_not_alive(standins: Any) -> None:
    env = wrap(standins.Leaving)
    assert env.reset(0).alive.all()
    seen = [env.step(ANY) for _ in range(3)]
    assert [m.alive.tolist() for m in seen] == [[False, True, True], [False, False, True], [False, False, True]]
    assert not seen[2].obs[:2].any()
    assert seen[2].avail is not None
    np.testing.assert_array_equal(seen[2].avail, [[1, 0, 0, 0], [1, 0, 0, 0], [1, 1, 1, 1]])


def test_actions_reach_only_the_living_and_count_from_the_spaces_start(standins: Any) -> None:
    env = wrap(standins.Leaving)
    env.reset(0)
    env.step(np.array([1, 2, 3]))
    env.step(np.array([0, 1, 2]))
    assert env._env.acted == [{"a": 1, "b": 3, "c": 3}, {"b": 2, "c": 2}]


@pytest.mark.parametrize(("how", "total"), [("sum", [3, 2, 1, 1, 1]), ("mean", [1, 2 / 3, 1 / 3, 1 / 3, 1 / 3])])
def test_rewards_of_the_step_an_agent_leaves_in_count(standins: Any, how: str, total: list[float]) -> None:
    env = wrap(standins.Leaving, reward=how)
    env.reset(0)
    assert [env.step(ANY).reward for _ in range(5)] == pytest.approx(total)


@pytest.mark.parametrize("last", ["truncated", "terminated"])
def test_termination_and_truncation_are_apart(standins: Any, last: str) -> None:
    env = wrap(standins.Leaving, last=last)
    env.reset(0)
    moments = [env.step(ANY) for _ in range(5)]
    assert not any(m.terminated or m.truncated for m in moments[:-1])
    assert (moments[-1].terminated, moments[-1].truncated) == (last == "terminated", last == "truncated")
    # Whoever was cut has a next observation to bootstrap from; whoever died has none.
    assert moments[-1].alive.tolist() == [False, False, last == "truncated"]
    assert moments[-1].obs[2].any() == (last == "truncated")


def test_the_suites_limit_cuts_an_episode(standins: Any) -> None:
    env = wrap(standins.Leaving, limit=2)
    env.reset(0)
    moments = [env.step(ANY) for _ in range(2)]
    assert [m.truncated for m in moments] == [False, True]
    assert not moments[1].terminated
    assert not env.reset(1).truncated


def test_masks_come_from_the_info(standins: Any) -> None:
    moment = wrap(standins.Leaving, masks="b").reset(0)
    assert moment.avail is not None
    np.testing.assert_array_equal(moment.avail, [[0, 1, 0, 0], [1, 0, 0, 0], [0, 0, 0, 1]])


def test_an_all_zero_mask_names_environment_agent_and_step(standins: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    env = wrap(standins.Leaving)
    env.reset(0)
    monkeypatch.setattr(env._env, "_infos", lambda agents: {a: {"action_mask": np.zeros(4, bool)} for a in ["c"]})
    with pytest.raises(IllegalMoment, match=r"leaving: no legal action for agent 2 at step 1"):
        check(env.step(ANY), "leaving", 1)


def test_numbers_are_padded_scaled_and_clipped(standins: Any) -> None:
    env = wrap(standins.Boxes)
    assert (env.layout.n_actions, env.layout.low, env.layout.high, env.layout.size) == (0, -1.0, 1.0, 2)
    assert env.reset(0).avail is None
    assert env.step(np.array([[-1.0, 77.0], [-1.0, -1.0]], np.float32)).reward == pytest.approx(0 - 1 - 4)
    assert env.step(np.array([[0.0, 77.0], [1.0, 0.0]], np.float32)).reward == pytest.approx(5 + 1 - 2)
    assert env.step(np.array([[9.0, 77.0], [9.0, 9.0]], np.float32)).reward == pytest.approx(10 + 1 + 0)


def test_composed_observations_are_flattened(standins: Any) -> None:
    moment = wrap(standins.Boxes).reset(0)
    np.testing.assert_array_equal(moment.obs, [[0, 0, 1, 0.5, 0.5, 0.5, 0.5]] * 2)


def test_in_a_turn_based_game_only_who_is_to_move_chooses(standins: Any) -> None:
    env = wrap(standins.Turns)
    moment = env.reset(0)
    for turn in range(4):
        check(moment, "turns", turn)
        assert moment.avail is not None
        np.testing.assert_array_equal(moment.avail, [[0, 1], [1, 0]] if turn % 2 == 0 else [[1, 0], [0, 1]])
        assert moment.alive.all()
        moment = env.step(moment.avail.argmax(-1))
        assert moment.reward == 1.0
    assert moment.terminated
    assert not moment.truncated
    assert env._game.moves == [("a", 1), ("b", 1), ("a", 1), ("b", 1)]


@pytest.mark.parametrize(("which", "message"), [("Unbounded", "no bounds"), ("Mixed", "a: Discrete, b: Box")])
def test_what_cannot_be_played_is_refused_by_name(standins: Any, which: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        wrap(getattr(standins, which))


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("mpe2", "not of the form module:factory"),
        ("no_such_thing:env", "cannot be imported: No module named 'no_such_thing'"),
        ("suites.adapters:nothing", "has no nothing"),
    ],
)
def test_a_path_that_names_nothing_is_one_clear_line(path: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        load(path)


def test_aec_and_parallel_are_the_same_game() -> None:
    module = pytest.importorskip("mpe2.simple_spread_v3")
    rng, totals = np.random.default_rng(0), []
    actions = rng.integers(0, 5, (25, 3))
    for factory in (module.env, module.parallel_env):
        env = wrap(factory, max_cycles=25)
        env.reset(7)
        totals.append([env.step(a).reward for a in actions])
    assert totals[0] == totals[1]
    raw = module.parallel_env(max_cycles=25)
    raw.reset(seed=7)
    by_hand = [sum(raw.step(dict(zip(raw.possible_agents, map(int, a))))[1].values()) for a in actions]
    assert totals[0] == pytest.approx(by_hand, abs=1e-12)
