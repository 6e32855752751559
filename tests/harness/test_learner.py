import copy
import dataclasses
import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from harness.algorithm import Loss, Targets
from harness.learner import Learner
from harness.types import Batch
from tests.support.episodes import DISCRETE, batch_of

BATCH = batch_of(DISCRETE, [2, 3, 4, 5, 1, 2, 7, 3], [True] * 8)


class Quadratic:
    """Two numbers, each pulled to where its loss says; records what every step was given."""

    def __init__(self, *losses: dict[str, Any], targets: Targets = Targets()) -> None:  # noqa: B008
        self.settings, self.rule = losses, targets
        self.seen: list[tuple[str, int, float]] = []

    def losses(self) -> tuple[Loss, ...]:
        return tuple(Loss(**({"of": self.loss(s["name"]), "lr": 0.1} | s)) for s in self.settings)

    def loss(self, name: str) -> Any:
        def of(net: nn.ModuleDict, target: nn.ModuleDict, batch: Batch, rng: torch.Generator) -> tuple[Tensor, Any]:
            self.seen.append((name, len(batch.mask), float(net["a"].weight.detach())))
            value = (net["a"].weight + net["b"].weight - 3).square().sum()
            return value, {"value": value}

        return of

    def targets(self) -> Targets:
        return self.rule


def nets(a: float = 0.0, b: float = 0.0) -> nn.ModuleDict:
    made = nn.ModuleDict({name: nn.Linear(1, 1, bias=False) for name in "ab"})
    for name, value in (("a", a), ("b", b)):
        nn.init.constant_(made[name].weight, value)
    return made


def at(net: nn.ModuleDict, name: str) -> float:
    return float(net[name].weight.detach())


def update(learner: Learner, times: int = 1, progress: float = 0.0) -> dict[str, Tensor]:
    rng, order = torch.Generator().manual_seed(0), torch.Generator().manual_seed(0)
    for _ in range(times):
        found = learner.update(BATCH, progress, rng, order)
    return found


def learner_of(*losses: dict[str, Any], targets: Targets = Targets(), **start: float) -> tuple[Learner, Quadratic]:  # noqa: B008
    algorithm = Quadratic(*losses, targets=targets)
    return Learner(algorithm, nets(**start)), algorithm  # type: ignore[arg-type]


def test_a_gradient_never_reaches_a_network_that_the_loss_may_not_move() -> None:
    learner, _ = learner_of({"name": "l", "trains": ("a",)})
    update(learner, 3)
    assert at(learner.net, "a") != 0
    assert at(learner.net, "b") == 0
    assert learner.net["b"].weight.grad is None


def test_losses_run_in_order_and_see_what_the_one_before_has_moved() -> None:
    learner, algorithm = learner_of({"name": "first", "trains": ("a",)}, {"name": "second", "trains": ("b",)})
    update(learner)
    assert [name for name, _, _ in algorithm.seen] == ["first", "second"]
    assert algorithm.seen[0][2] == 0.0
    assert algorithm.seen[1][2] == pytest.approx(0.1)  # Adam's first step is its learning rate


def test_epochs_and_minibatches() -> None:
    learner, algorithm = learner_of({"name": "l", "trains": ("a",), "epochs": 3, "minibatches": 4})
    found = update(learner)
    assert [size for _, size, _ in algorithm.seen] == [2] * 12
    assert learner.updates == 12
    assert float(found["l/value"]) == pytest.approx(sum((x - 3) ** 2 for _, _, x in algorithm.seen) / 12, rel=1e-6)


def test_what_is_prepared_is_prepared_once_before_the_epochs() -> None:
    calls = []

    def prepare(net: Any, target: Any, batch: Batch, rng: Any) -> Batch:
        calls.append(torch.is_grad_enabled())
        return batch

    learner, _ = learner_of({"name": "l", "trains": ("a",), "epochs": 3, "minibatches": 2, "prepare": prepare})
    update(learner)
    assert calls == [False]


def test_gradients_are_clipped_to_their_norm() -> None:
    learner, _ = learner_of({"name": "l", "trains": ("a", "b"), "clip": 0.5, "optimiser": "rmsprop", "eps": 0.0})
    found = update(learner)
    assert float(found["l/grad_norm"]) == pytest.approx(6 * math.sqrt(2), rel=1e-5)  # before clipping
    norm = math.hypot(*(float(learner.net[n].weight.grad) for n in "ab"))  # type: ignore[arg-type]
    assert norm == pytest.approx(0.5, rel=1e-5)


def test_the_learning_rate_falls_to_zero_over_the_budget_where_it_is_annealed() -> None:
    for progress, moved in ((0.0, 0.1), (0.75, 0.025), (1.0, 0.0)):
        learner, _ = learner_of({"name": "l", "trains": ("a",), "anneal": True})
        update(learner, progress=progress)
        assert at(learner.net, "a") == pytest.approx(moved, abs=1e-7)
    learner, _ = learner_of({"name": "l", "trains": ("a",)})
    update(learner, progress=1.0)
    assert at(learner.net, "a") == pytest.approx(0.1)


def test_adam_and_rmsprop_are_as_published() -> None:
    steps: dict[str, list[float]] = {"adam": [], "rmsprop": []}
    for kind, path in steps.items():
        learner, _ = learner_of({"name": "l", "trains": ("a",), "optimiser": kind, "eps": 1e-2, "clip": 1e9})
        for _ in range(4):
            update(learner)
            path.append(at(learner.net, "a"))
    a, m, v = 0.0, 0.0, 0.0
    for t, found in enumerate(steps["adam"], 1):
        g = 2 * (a - 3)
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
        a -= 0.1 * (m / (1 - 0.9**t)) / (math.sqrt(v / (1 - 0.999**t)) + 1e-2)
        assert found == pytest.approx(a, rel=1e-4)
    a, v = 0.0, 0.0
    for found in steps["rmsprop"]:
        g = 2 * (a - 3)
        v = 0.99 * v + 0.01 * g * g
        a -= 0.1 * g / (math.sqrt(v) + 1e-2)
        assert found == pytest.approx(a, rel=1e-4)


# -- divergence -----------------------------------------------------------------------------------------------------


def spoilt(learner: Learner, at_step: int, how: Any) -> None:
    """Have the loss of step ``at_step`` (from 0) spoilt by ``how``."""
    (loss,), count = learner.losses, [0]

    def of(*arguments: Any) -> Any:
        value, metrics = loss.of(*arguments)
        count[0] += 1
        return (how(value) if count[0] == at_step + 1 else value), metrics

    learner.losses = (dataclasses.replace(loss, of=of),)


@pytest.mark.parametrize(
    ("how", "words"),
    [
        (lambda x: x + float("nan"), "loss l is NaN"),
        (lambda x: x + float("inf"), "loss l is infinite"),
        (lambda x: x - float("inf"), "loss l is infinite"),
        (lambda x: (x - x.detach()).sqrt(), "the gradient of loss l is infinite"),
        (lambda x: (x - x.detach()).abs().sqrt(), "the gradient of loss l is NaN"),
        (lambda x: x, None),
    ],
)
@pytest.mark.parametrize("at_step", [0, 3, 5])
def test_a_loss_or_gradient_that_was_not_finite_once_is_told_when_asked(at_step: int, how: Any, words: Any) -> None:
    """Whichever of six steps it was, and although the numbers after it may be finite again."""
    learner, _ = learner_of({"name": "l", "trains": ("a",), "epochs": 3, "minibatches": 1})
    spoilt(learner, at_step, how)
    update(learner, 2)
    if words and "gradient" in words and at_step < 5:
        words = "loss l is NaN"  # it has broken the parameters, and the loss of the steps that followed
    assert learner.trouble() == words
    for name in "ab":
        nn.init.constant_(learner.net[name].weight, 0.5)
    assert learner.trouble() is None  # told once


def test_a_parameter_that_is_not_finite_is_told_with_its_network() -> None:
    learner, _ = learner_of({"name": "l", "trains": ("a",)})
    assert learner.trouble() is None
    nn.init.constant_(learner.net["b"].weight, float("nan"))
    assert learner.trouble() == "a parameter of network b is NaN"
    nn.init.constant_(learner.net["b"].weight, float("inf"))
    assert learner.trouble() == "a parameter of network b is infinite"


# -- target networks ------------------------------------------------------------------------------------------------


def test_hard_targets_are_copied_every_so_many_episodes() -> None:
    learner, _ = learner_of({"name": "l", "trains": ("a",)}, targets=Targets(("a",), every_episodes=10))
    copies = []
    for _ in range(8):
        update(learner)
        learner.count(4)
        copies.append(at(learner.target, "a") == at(learner.net, "a"))
    assert copies == [False, False, True, False, False, True, False, False]  # at 12 and 24 episodes
    assert not any(p.requires_grad for p in learner.target.parameters())


def test_soft_targets_take_one_step_after_every_update() -> None:
    learner, _ = learner_of({"name": "l", "trains": ("a",)}, targets=Targets(("a",), tau=0.25))
    expected = 0.0
    for _ in range(5):
        update(learner)
        expected += 0.25 * (at(learner.net, "a") - expected)
        assert at(learner.target, "a") == pytest.approx(expected, rel=1e-5)
    learner.count(1000)
    assert at(learner.target, "a") == pytest.approx(expected, rel=1e-5)


class Scaled(nn.Module):
    """A network with the kinds of buffers there are: moments, an integer count, one that no state dict holds."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(1)
        self.register_buffer("scale", torch.ones(()))
        self.register_buffer("passing", torch.ones(()), persistent=False)


@pytest.mark.parametrize("rule", [{"tau": 0.25}, {"every_episodes": 1}], ids=["soft", "hard"])
def test_targets_follow_buffers_as_well_as_parameters(rule: dict[str, Any]) -> None:
    """Found elsewhere (stable-baselines3#996): soft targets kept the statistics that they began with."""
    algorithm = Quadratic({"name": "l", "trains": ("a",)}, targets=Targets(("c",), **rule))
    net = nets()
    net["c"] = Scaled()
    learner = Learner(algorithm, net)  # type: ignore[arg-type]
    with torch.no_grad():
        net["c"].norm(torch.tensor([[1.0], [3.0], [8.0]]))
        net["c"].scale.fill_(5.0)
        net["c"].passing.fill_(7.0)
        net["c"].norm.weight.fill_(9.0)
    update(learner)
    learner.count(1)
    found = dict(learner.target["c"].named_buffers())
    assert found.keys() == {"scale", "passing", "norm.running_mean", "norm.running_var", "norm.num_batches_tracked"}
    for name, buffer in net["c"].named_buffers():
        assert torch.equal(found[name], buffer), name
        assert found[name] is not buffer
    assert int(found["norm.num_batches_tracked"]) == 1
    assert float(found["norm.running_mean"]) == pytest.approx(0.1 * 4.0)
    assert float(learner.target["c"].norm.weight) == pytest.approx(1 + 0.25 * 8 if "tau" in rule else 9.0)


def test_only_the_networks_named_have_targets() -> None:
    learner, _ = learner_of({"name": "l", "trains": ("a",)}, targets=Targets(("b",), tau=0.5))
    assert list(learner.target) == ["b"]
    assert list(learner_of({"name": "l", "trains": ("a",)})[0].target) == []


# -- state ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["adam", "rmsprop"])
def test_a_learner_put_back_goes_on_as_if_nothing_had_happened(kind: str) -> None:
    loss = {"name": "l", "trains": ("a", "b"), "optimiser": kind, "anneal": True}
    rule = Targets(("a",), every_episodes=10)
    learner, _ = learner_of(loss, targets=rule)
    update(learner, 3)
    learner.count(7)
    state = copy.deepcopy(learner.state_dict())
    again, _ = learner_of(loss, targets=rule, a=5.0)
    again.load_state_dict(state)
    for one in (learner, again):
        update(one, 2, progress=0.5)
        one.count(4)  # 11 in all: a copy is due
        update(one, 1, progress=0.6)
    assert (again.updates, again.episodes) == (learner.updates, learner.episodes) == (6, 11)
    assert torch.equal(again.target["a"].weight, learner.target["a"].weight)
    for name in "ab":
        assert torch.equal(again.net[name].weight, learner.net[name].weight)
    assert at(learner.target, "a") != at(learner.net, "a")
