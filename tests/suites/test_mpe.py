"""Suite mpe against the package itself, and the two ways of stepping it against each other."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("mpe2")

from harness.errors import UserError
from harness.types import Continuous, Discrete
from suites.adapters import packages
from suites.adapters.single import seeds
from suites.mpe import GAMES, LIMIT, MPE

CPU = torch.device("cpu")


def raw_returns(task: str, seed: int, actions: np.ndarray) -> list[float]:
    """Team rewards by hand: every agent's reward of every step, the last one included."""
    game = task.removesuffix("_continuous")
    module = importlib.import_module(GAMES[game].module)
    env = module.parallel_env(max_cycles=LIMIT, continuous_actions=task != game)
    env.reset(seed=seed)
    found = []
    for action in actions:
        native: dict[str, Any] = {}
        for i, agent in enumerate(env.possible_agents):
            space = env.action_space(agent)
            native[agent] = action[i][: space.shape[0]] if space.shape else int(action[i])
        found.append(sum(env.step(native)[1].values()))
    assert env.agents == []
    return found


def scripted(env: Any, generator: np.random.Generator) -> np.ndarray:
    n, action = env.spec.n_agents, env.spec.action
    if isinstance(action, Continuous):
        return generator.random((LIMIT, 1, n, action.size)).astype(np.float32)
    legal = env.reset(0).avail[0].sum(-1).numpy()
    return generator.integers(0, legal, (LIMIT, 1, n))


@pytest.mark.parametrize("task", list(MPE().tasks()))
def test_rewards_are_the_packages_to_the_last_step(task: str) -> None:
    env = MPE().make(task, 1, CPU)
    actions = scripted(env, np.random.default_rng(3))
    env.reset(11)
    steps = [env.step(torch.from_numpy(a)) for a in actions]
    expected = raw_returns(task, seeds(11, 1)[0], actions[:, 0])
    assert [float(s.reward) for s in steps] == pytest.approx(expected, rel=1e-6)
    assert abs(expected[-1]) > 0
    # A time limit: there was more to come, and what comes after can still be seen.
    assert [bool(s.truncated) for s in steps] == [False] * (LIMIT - 1) + [True]
    assert not any(bool(s.terminated) for s in steps)
    assert bool(steps[-1].alive.all())
    assert bool(steps[-1].obs.any())


def test_agents_that_differ_are_padded_and_masked() -> None:
    env = MPE().make("simple_speaker_listener", 2, CPU)
    assert (env.spec.obs_dim, env.spec.state_dim, env.spec.action) == (11, 14, Discrete(5))
    step = env.reset(0)
    assert step.avail is not None
    assert step.avail[0].tolist() == [[True] * 3 + [False] * 2, [True] * 5]
    assert not bool(step.obs[:, 0, 3:].any())
    assert MPE().spec("simple_speaker_listener") == env.spec


def test_a_process_each_plays_the_same_games_as_a_loop() -> None:
    found = []
    for stepping in ("inline", "process"):
        env = MPE(stepping=stepping).make("simple_spread", 3, CPU)  # type: ignore[arg-type]
        generator, steps = torch.Generator().manual_seed(0), [env.reset(5)]
        steps += [env.step(torch.randint(5, (3, 3), generator=generator)) for _ in range(LIMIT)]
        found.append(steps)
        env.close()
    assert all(torch.equal(a.obs, b.obs) and torch.equal(a.reward, b.reward) for a, b in zip(*found))


def test_bounds_are_random_and_scripted_play() -> None:
    for task in MPE().tasks().values():
        assert task.score(task.references["random"]) == 0.0
        assert task.score(task.references["scripted"]) == 1.0


def test_a_missing_package_names_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise packages.PackageNotFoundError(name)

    monkeypatch.setattr(packages, "version", missing)
    with pytest.raises(UserError, match=r"needs the package mpe2, .* pip install -e '\.\[mpe\]'"):
        MPE().make("simple_spread", 1, CPU)
