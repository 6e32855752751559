"""Slips of plug-ins: each is one line that names the place and what is right."""

from dataclasses import dataclass
from types import ModuleType
from typing import Any, ClassVar

import pytest
import torch
from torch import nn

from harness import contract
from harness.algorithm import Loss, Targets
from harness.errors import UserError
from harness.suite import Task
from harness.types import Action, Continuous, Discrete, Spec, Step

SPEC = Spec(2, 3, 4, 5, Discrete(6), ("won",))
SMOOTH = Spec(2, 3, 4, 5, Continuous(-1.0, 1.0, 2))


@dataclass(frozen=True)
class Right:
    """As it should be."""

    gamma: float = 0.9
    num_envs: int = 1

    data: ClassVar[Any] = "on_policy"
    actions: ClassVar[Any] = frozenset({"discrete"})
    presets: ClassVar[Any] = {}

    def networks(self) -> None: ...
    def act(self) -> None: ...
    def losses(self) -> None: ...
    def targets(self) -> None: ...


def like(**changed: Any) -> Any:
    return type("Changed", (Right,), {"__module__": "mine"} | changed)


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"data": "onpolicy"}, r"unknown data of algorithm 'm' \(mine:.*\): 'onpolicy'; did you mean 'on_policy'"),
        ({"data": "replay"}, "no field 'buffer_episodes', which every method with data = \"replay\" has"),
        ({"actions": "discrete"}, r"actions is the text 'discrete', not several names: \('discrete',\)"),
        ({"actions": frozenset()}, "actions: empty"),
        ({"actions": {"discreet"}}, "unknown action kind of .*'discreet'; did you mean 'discrete'"),
        ({"losses": None}, r"no method losses\(\)"),
        ({"presets": {"fast": 3}}, "preset 'fast' is no mapping"),
    ],
)
def test_a_class_that_is_no_method(changed: dict[str, Any], says: str) -> None:
    with pytest.raises(UserError, match=says):
        contract.algorithm(like(**changed), "m")


def test_a_class_that_is_no_dataclass() -> None:
    with pytest.raises(UserError, match=r"algorithm 'm' \(collections:OrderedDict\): not a dataclass"):
        contract.algorithm(__import__("collections").OrderedDict, "m")


def test_what_is_right_is_let_through(fake_marl: ModuleType) -> None:
    contract.algorithm(Right, "m")
    contract.suite(fake_marl.Toy, "toy")


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"name": "toys"}, "its name is 'toys', it is registered as 'toy'"),
        ({"budgets": {"smoke": None, "quick": None}}, "no budget 'paper'; every suite has smoke, quick, paper"),
        ({"default_tasks": "one"}, "default_tasks is the text 'one'"),
        ({"make": None}, r"no method make\(\)"),
    ],
)
def test_a_class_that_is_no_suite(fake_marl: ModuleType, changed: dict[str, Any], says: str) -> None:
    with pytest.raises(UserError, match=says):
        contract.suite(type("Changed", (fake_marl.Toy,), changed), "toy")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("t", "discrete", "return", (1.0, 1.0)), r"task t: bounds \(1\.0, 1\.0\): the first must be below the second"),
        (("t", "discret"), "unknown action kind of task t: 'discret'; did you mean 'discrete'"),
    ],
)
def test_a_task_that_cannot_be_scored_or_played(arguments: Any, says: str) -> None:
    with pytest.raises(UserError, match=says):
        Task(*arguments)


def loss(name: str = "td", trains: Any = ("agent",)) -> Loss:
    return Loss(name, trains, lambda *_: None, lr=1e-3)  # type: ignore[arg-type, return-value]


@pytest.mark.parametrize(
    ("losses", "targets", "says"),
    [
        ((loss(trains=("agnet",)),), Targets(), "trains of loss 'td': 'agnet'; did you mean 'agent'"),
        ((loss(trains="agent"),), Targets(), r"loss 'td': trains is the text 'agent', not several names: \('agent',\)"),
        ((loss(trains=("sum",)),), Targets(), "loss 'td': sum has no parameters to train"),
        ((loss(), loss()), Targets(), "two losses are named 'td'"),
        ((), Targets(), "nothing would be learned"),
        ((loss(),), Targets(("critic",), tau=0.1), "network in Targets: 'critic'"),
        ((loss(),), Targets("agent", tau=0.1), "networks is the text 'agent'"),  # type: ignore[arg-type]
        ((loss(),), Targets(("agent",)), "else they never move"),
        ((loss(),), Targets(("agent",), every_episodes=1, tau=0.1), "say one of every_episodes= "),
        ((loss(),), Targets(("agent",), every_episodes=0), "every_episodes=0 must be at least 1"),
        ((loss(),), Targets(("agent",), tau=1.5), "tau=1.5 lies above 0 and up to 1"),
    ],
)
def test_losses_and_targets_that_do_not_fit_the_networks(losses: Any, targets: Targets, says: str) -> None:
    net = nn.ModuleDict({"agent": nn.Linear(1, 1), "sum": nn.Identity()})
    with pytest.raises(UserError, match=says):
        contract.learning(net, losses, targets)


def test_losses_that_fit() -> None:
    net = nn.ModuleDict({"agent": nn.Linear(1, 1), "sum": nn.Identity()})
    contract.learning(net, (loss(trains=("agent", "sum")), loss("other")), Targets(("agent", "sum"), tau=1.0))


def moment(spec: Spec, envs: int = 2) -> Step:
    flags = torch.zeros(envs, dtype=torch.bool)
    avail = torch.ones(envs, spec.n_agents, 6, dtype=torch.bool) if isinstance(spec.action, Discrete) else None
    agents = torch.ones(envs, spec.n_agents, dtype=torch.bool)
    obs, state = torch.zeros(envs, spec.n_agents, spec.obs_dim), torch.zeros(envs, spec.state_dim)
    return Step(
        obs, state, avail, agents, torch.zeros(envs), flags, flags, dict.fromkeys(spec.outcomes, torch.zeros(2))
    )


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"obs": torch.zeros(2, 3)}, r"Step: obs is float32 \[2, 3\], it must be float32 \[2, 2, 3\]"),
        ({"reward": torch.zeros(2).double()}, r"Step: reward is float64 \[2\], it must be float32 \[2\]"),
        ({"reward": [0.0, 0.0]}, r"Step: reward is list \[\], it must be float32 \[2\]"),
        ({"avail": None}, r"Step: avail is NoneType \[\], it must be bool \[2, 2, 6\]"),
        ({"outcome": {}}, "Step has no outcome 'won', which its spec names"),
    ],
)
def test_a_step_of_other_shapes(changed: dict[str, Any], says: str) -> None:
    contract.step(moment(SPEC), SPEC, 2)
    with pytest.raises(UserError, match=says):
        contract.step(moment(SPEC)._replace(**changed), SPEC, 2)


def test_a_step_of_a_continuous_task_has_no_legal_actions() -> None:
    contract.step(moment(SMOOTH), SMOOTH, 2)
    with pytest.raises(UserError, match="avail must be None where actions are continuous"):
        contract.step(moment(SMOOTH)._replace(avail=torch.ones(2, 2, 2, dtype=torch.bool)), SMOOTH, 2)


@pytest.mark.parametrize(
    ("spec", "action", "log_prob", "says"),
    [
        (SPEC, torch.zeros(2, 2), torch.zeros(2, 2), r"act: action is float32 \[2, 2\], it must be int64 \[2, 2\]"),
        (SMOOTH, torch.zeros(2, 2), torch.zeros(2, 2), r"act: action .* it must be float32 \[2, 2, 2\]"),
        (SMOOTH, torch.zeros(2, 2, 2), torch.zeros(2), r"act: log_prob is float32 \[2\], it must be float32 \[2, 2\]"),
    ],
)
def test_an_action_of_other_shapes(spec: Spec, action: torch.Tensor, log_prob: torch.Tensor, says: str) -> None:
    with pytest.raises(UserError, match=says):
        contract.action(Action(action, log_prob, None), spec, 2)
