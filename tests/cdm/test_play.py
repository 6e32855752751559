"""Degradation and error amplification on numbers made by hand."""

import math

import pytest
import torch

from harness import registry
from harness.cdm import play
from harness.types import Action


class Fixed:
    """Agent i always plays ``actions[i]``; counts its steps in its memory."""

    def __init__(self, *actions):
        self.played = torch.tensor(actions)

    def act(self, net, step, memory, env_steps, rng):
        action = self.played.expand(step.obs.shape[:2]).clone()
        return Action(action, torch.zeros(action.shape), 1 if memory is None else memory + 1)


def env(task="penalty_0"):
    return registry.suite("matrix")().make(task, 2000, torch.device("cpu"))


def generator():
    return torch.Generator().manual_seed(0)


def test_degradation_by_a_uniform_agent():
    """Climbing at (0,0): 11. Agent 0 uniform against 0: (11 - 30 + 0)/3; by symmetry the same for agent 1."""
    found = play.degradation(env("climbing"), play.Player(Fixed(0, 0), None), [1], generator())
    assert found["degradation/return"] == 11
    assert found["degradation/uniform"] == pytest.approx(11 + 19 / 3, abs=0.5)
    assert found["degradation/uniform_worst"] >= found["degradation/uniform"]


def test_degradation_by_an_earlier_self():
    """Climbing: (0,0) gives 11; with one agent at its earlier 2 the team gets 0."""
    now, before = play.Player(Fixed(0, 0), None), play.Player(Fixed(2, 2), None)
    found = play.degradation(env("climbing"), now, [1], generator(), before)
    assert found["degradation/earlier"] == found["degradation/earlier_worst"] == 11


def test_error_amplification_by_hand():
    """Climbing. Control plays (0,0): 11. One: 11 - (11-30+0)/3 = 17.33. Corrupted team plays (2,2): with the
    control's agent 0 back, (0,2) gives 0, so the others' drop is 11, the factor 11/17.33, the team's drop 11 - 5."""
    control, corrupted = play.Player(Fixed(0, 0), None), play.Player(Fixed(2, 2), None)
    found = play.amplification(env("climbing"), control, corrupted, 0, [1, 2], generator())
    assert found["amplification/one"] == pytest.approx(52 / 3, abs=0.4)
    assert found["amplification/others"] == 11
    assert found["amplification/factor"] == pytest.approx(33 / 52, abs=0.02)
    assert found["amplification/team"] == 6


def test_teammates_that_learned_on_unharmed_have_factor_0():
    team = play.Player(Fixed(0, 0), None)
    found = play.amplification(env("climbing"), team, play.Player(Fixed(1, 0), None), 0, [1], generator())
    assert found["amplification/factor"] == 0


def test_factor_of_hand_made_drops():
    assert play.amplification_factor(3.0, 6.0) == 0.5
    assert play.amplification_factor(-1.0, 2.0) == -0.5  # the others got better
    assert math.isnan(play.amplification_factor(1.0, 0.0))


def test_each_partner_keeps_its_own_memory():
    seen = []

    class Spy(Fixed):
        def act(self, net, step, memory, env_steps, rng):
            seen.append(memory)
            return super().act(net, step, memory, env_steps, rng)

    act = play.paired(play.Player(Spy(1, 1), None), 0, play.Player(Spy(0, 0), None))
    play.mean_return(env("two_step"), act, [1])
    assert seen == [None, None, 1, 1]
