"""Parsing of ``corrupt=`` and what it does to an action."""

import math
from typing import NamedTuple

import pytest
import torch

from harness.cdm.corrupt import Corruption, corrupted, parse
from harness.errors import UserError
from harness.types import Action, Continuous, Discrete, Spec, Step


class Remembers(NamedTuple):
    hidden: torch.Tensor
    last_action: torch.Tensor


def moment(envs, agents, avail=None):
    flag = torch.zeros(envs, dtype=torch.bool)
    return Step(
        torch.zeros(envs, agents, 2), torch.zeros(envs, 2), avail, torch.ones(envs, agents, dtype=torch.bool),
        torch.zeros(envs), flag, flag, {},
    )  # fmt: skip


def test_parses_every_field():
    assert parse("agent:1,from:1e5,to:2e5,policy:uniform") == Corruption(1, 100_000, 200_000, "uniform")
    assert parse(" to: 20, agent:0,from:0") == Corruption(0, 0, 20, "uniform")
    assert parse("") is None
    assert parse("none") is None
    found = parse("agent:1,from:1e5,to:2e5")
    assert parse(str(found)) == found
    assert Corruption(**found.settings()) == found


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("agnet:0,from:0,to:1", "did you mean 'agent'"),
        ("agent:0,from:0", "to missing"),
        ("agent:0,from:5,to:5", "not after"),
        ("agent:-1,from:0,to:5", "whole number"),
        ("agent:x,from:0,to:5", "whole number"),
        ("agent:0,from:0.5,to:5", "whole number"),
        ("agent:0,agent:1,from:0,to:5", "twice"),
        ("agent:0,from:0,to:5,policy:unifrom", "did you mean 'uniform'"),
        ("agent 0", "not key:value"),
        ("agent:0,from:nan,to:inf", "whole number"),
    ],
)
def test_bad_input_gets_one_clear_line(text, says):
    with pytest.raises(UserError, match=says):
        parse(text)


def test_agent_beyond_the_task_is_refused():
    spec = Spec(2, 2, 2, 5, Discrete(3))
    Corruption(1, 0, 1).check(spec)
    with pytest.raises(UserError, match="agents 0 to 1"):
        Corruption(2, 0, 1).check(spec)


def test_only_the_agent_changes_and_only_inside_the_window():
    avail = torch.tensor([[True, True, False], [True, True, True]]).expand(500, 2, 3)
    spec, step = Spec(2, 2, 2, 5, Discrete(3)), moment(500, 2, avail)
    old = torch.full((500, 2), 1)
    action = Action(old, torch.full((500, 2), -9.0), Remembers(torch.ones(1, 1000, 4), old))
    rng, corruption = torch.Generator().manual_seed(0), Corruption(0, 10, 20)
    state = rng.get_state()
    for outside in (9, 20):
        assert corrupted(action, step, outside, corruption, spec, rng) is action
    assert rng.get_state().equal(state)
    new = corrupted(action, step, 10, corruption, spec, rng)
    assert new.action[:, 1].equal(old[:, 1])
    assert new.log_prob[:, 1].eq(-9).all()
    assert new.action[:, 0].unique().tolist() == [0, 1]  # 2 is illegal
    assert new.action[:, 0].float().mean() == pytest.approx(0.5, abs=0.1)
    assert new.log_prob[:, 0].tolist() == pytest.approx([-math.log(2)] * 500)
    assert new.memory.last_action.equal(new.action)
    assert new.memory.hidden is not None
    assert action.action.eq(1).all()  # the original is untouched


def test_continuous_actions_are_uniform_over_the_box():
    spec, step = Spec(3, 2, 2, 5, Continuous(-1.0, 3.0, 2)), moment(4000, 3)
    action = Action(torch.zeros(4000, 3, 2), torch.zeros(4000, 3), None)
    new = corrupted(action, step, 0, Corruption(2, 0, 1), spec, torch.Generator().manual_seed(0))
    drawn = new.action[:, 2]
    assert -1 <= drawn.min() < -0.9
    assert 2.9 < drawn.max() <= 3
    assert drawn.mean() == pytest.approx(1, abs=0.1)
    assert new.log_prob[:, 2].tolist() == pytest.approx([-2 * math.log(4)] * 4000)
    assert new.action[:, :2].eq(0).all()


def test_same_generator_same_draws():
    spec, step = Spec(1, 2, 2, 5, Discrete(3)), moment(50, 1, torch.ones(50, 1, 3, dtype=torch.bool))
    action = Action(torch.zeros(50, 1, dtype=torch.int64), torch.zeros(50, 1), None)
    a, b = (
        corrupted(action, step, 0, Corruption(0, 0, 1), spec, torch.Generator().manual_seed(3)).action for _ in range(2)
    )
    assert a.equal(b)
