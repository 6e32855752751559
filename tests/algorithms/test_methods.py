"""What every registered method must do, the day it is registered: nothing here names one."""

import copy
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.distributions import Categorical

from harness.algorithm import Algorithm
from harness.learner import Learner
from harness.replay import Replay
from harness.types import Discrete, Step
from tests.support.episodes import (
    CPU,
    NoisyEnv,
    batch_of,
    close,
    gradients,
    importable,
    legal_actions,
    method_kinds,
    networks,
    padded,
    played,
    small,
    spec_of,
    spoiled,
)  # fmt: skip

EACH = pytest.mark.parametrize(("name", "kind"), method_kinds())


def learning(name: str, kind: str, seed: int = 0) -> tuple[Algorithm, Learner]:
    """A method with networks and targets that differ, as in the middle of training."""
    algorithm = small(name, kind)
    learner = Learner(algorithm, networks(algorithm, spec_of(kind), seed))
    other = networks(algorithm, spec_of(kind), seed + 1)
    for child in learner.rule.networks:
        learner.target[child].load_state_dict(other[child].state_dict())
    return algorithm, learner


@pytest.fixture
def placed_noise(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Call it, and random numbers depend on the place among candidates, agents and actions, not on the padding."""

    def fixed(shape: Any) -> Tensor:
        flat = torch.arange(math.prod(shape[2:]), dtype=torch.float64) * 0.618033988749895 % 1
        return (flat * 0.98 + 0.01).reshape(tuple(shape[2:])).expand(tuple(shape)).float()

    def shape_of(size: Any) -> Any:
        return tuple(size[0]) if len(size) == 1 and not isinstance(size[0], int) else tuple(size)

    def multinomial(probs: Tensor, count: int, *_: Any, **__: Any) -> Tensor:
        u = torch.arange(1, count + 1, dtype=torch.float64) * 0.618033988749895 % 1
        return (probs.double().cumsum(-1).unsqueeze(-1) < u * probs.double().sum(-1)[..., None, None]).sum(-2)

    def inplace(of: Any) -> Any:
        def fill(self: Tensor, *_: Any, **__: Any) -> Tensor:
            assert self.dim() > 2
            return self.copy_(of(fixed(self.shape)))

        return fill

    def begin() -> None:
        monkeypatch.setattr(torch, "multinomial", multinomial)
        monkeypatch.setattr(torch, "rand", lambda *size, **_: fixed(shape_of(size)))
        monkeypatch.setattr(torch, "randn", lambda *size, **_: torch.special.ndtri(fixed(shape_of(size))))
        monkeypatch.setattr(torch, "rand_like", lambda x, **_: fixed(x.shape))
        monkeypatch.setattr(torch, "randn_like", lambda x, **_: torch.special.ndtri(fixed(x.shape)))
        monkeypatch.setattr(Tensor, "exponential_", inplace(lambda u: -(1 - u).log()))
        monkeypatch.setattr(Tensor, "uniform_", inplace(lambda u: u))
        monkeypatch.setattr(Tensor, "normal_", inplace(torch.special.ndtri))

    return begin


# -- what did not happen counts for nothing ---------------------------------------------------------------------------


@EACH
@pytest.mark.parametrize("garbage", [math.nan, 1e6])
def test_garbage_in_padding_and_in_what_the_dead_see_changes_no_loss_and_no_gradient(
    name: str, kind: str, garbage: float
) -> None:
    algorithm, learner = learning(name, kind)
    batch = batch_of(spec_of(kind), [4, 7, 1, 2, 6], [True, False, True, False, True])
    clean = gradients(algorithm, copy.deepcopy(learner.net), learner.target, batch)
    spoilt = gradients(algorithm, copy.deepcopy(learner.net), learner.target, spoiled(batch, garbage).clean())
    close(clean, spoilt, atol=0.0)
    assert any(g.abs().max() > 0 for g in clean.values())


@EACH
@pytest.mark.parametrize("garbage", [math.nan, 1e6])
def test_garbage_from_an_environment_reaches_no_parameter(name: str, kind: str, garbage: float) -> None:
    """The whole way: collection, replay where there is one, every loss, optimisers and targets."""
    ends = []
    for junk in (None, garbage):
        algorithm, learner = learning(name, kind)
        env = NoisyEnv(kind, 4, junk)
        replay = Replay(env.spec, 8, CPU) if algorithm.data == "replay" else None
        rngs = [torch.Generator().manual_seed(k) for k in range(3)]
        for k in range(3):
            batch = played(algorithm, learner.net, env, seed=k)
            if replay is not None:
                replay.add(batch)
                batch = replay.sample(4, rngs[0])
            learner.update(batch, 0.1, rngs[1], rngs[2])
            learner.count(4)
        ends.append(learner.state_dict())
    for part in ("net", "target"):
        for key, value in ends[0][part].items():
            assert torch.isfinite(value).all(), key
            assert torch.equal(value, ends[1][part][key]), key


@EACH
def test_more_padding_changes_nothing(name: str, kind: str, placed_noise: Callable[[], None]) -> None:
    algorithm, learner = learning(name, kind)
    batch = batch_of(spec_of(kind), [4, 6, 1, 3], [True, False, True, False])
    placed_noise()
    short = gradients(algorithm, copy.deepcopy(learner.net), learner.target, batch)
    long = gradients(algorithm, copy.deepcopy(learner.net), learner.target, padded(batch, 9))
    close(short, long, atol=2e-6)


@EACH
def test_no_gradient_reaches_a_network_that_no_loss_trains_and_every_trained_one_moves(name: str, kind: str) -> None:
    algorithm, learner = learning(name, kind)
    before = copy.deepcopy(learner.net.state_dict())
    trained = {child for loss in learner.losses for child in loss.trains}
    assert trained <= set(learner.net)
    batch = played(algorithm, learner.net, NoisyEnv(kind, 8))
    learner.update(batch, 0.0, torch.Generator().manual_seed(0), torch.Generator().manual_seed(0))
    for child, net in learner.net.items():
        if child in trained and any(True for _ in net.parameters()):
            assert any(not torch.equal(p, before[f"{child}.{k}"]) for k, p in net.named_parameters()), child
        elif child not in trained:
            assert all(torch.equal(p, before[f"{child}.{k}"]) for k, p in net.named_parameters()), child


@EACH
def test_targets_are_networks_of_the_method_and_follow_by_one_rule(name: str, kind: str) -> None:
    algorithm, learner = learning(name, kind)
    rule = algorithm.targets()
    assert set(rule.networks) <= set(learner.net)
    if rule.networks:
        assert (rule.every_episodes is None) != (rule.tau is None)


@EACH
def test_metrics_are_finite_scalars(name: str, kind: str) -> None:
    algorithm, learner = learning(name, kind)
    batch = played(algorithm, learner.net, NoisyEnv(kind, 8))
    found = learner.update(batch, 0.0, torch.Generator().manual_seed(0), torch.Generator().manual_seed(0))
    for metric, value in found.items():
        assert value.shape == (), metric
        assert torch.isfinite(value), metric
        assert not value.requires_grad, metric


# -- acting alone -----------------------------------------------------------------------------------------------------


def steps(kind: str, envs: int, count: int, seed: int = 0) -> list[Step]:
    spec, rng = spec_of(kind), torch.Generator().manual_seed(seed)
    zeros, flags = torch.zeros(envs), torch.zeros(envs, dtype=torch.bool)
    return [
        Step(
            torch.randn(envs, spec.n_agents, spec.obs_dim, generator=rng),
            torch.randn(envs, spec.state_dim, generator=rng),
            legal_actions(spec, (envs,), rng), torch.ones(envs, spec.n_agents, dtype=torch.bool),
            zeros, flags, flags, {},
        )
        for _ in range(count)
    ]  # fmt: skip


@EACH
@pytest.mark.parametrize("greedy", [True, False])
def test_an_agent_acts_on_its_own_observations_alone(name: str, kind: str, greedy: bool) -> None:
    """Decentralised execution: others' observations and the state may change, agent 1's actions may not."""
    algorithm = small(name, kind)
    net = networks(algorithm, spec_of(kind))
    runs = []
    for seed in (None, 1, 2):
        rng, memory, found = None if greedy else torch.Generator().manual_seed(9), None, []
        others = steps(kind, 40, 4, seed=77 + (seed or 0))
        for step, other in zip(steps(kind, 40, 4), others, strict=True):
            if seed is not None:
                obs = other.obs.clone()
                obs[:, 1] = step.obs[:, 1]
                step = step._replace(obs=obs, state=other.state)
            with torch.no_grad():
                action = algorithm.act(net, step, memory, 30, rng)
            memory = action.memory
            found.append((action.action, action.log_prob))
        runs.append(found)
    for run in runs[1:]:
        for (action, log_prob), (same, same_log_prob) in zip(runs[0], run, strict=True):
            torch.testing.assert_close(action[:, 1], same[:, 1], rtol=1e-5, atol=1e-6)
            torch.testing.assert_close(log_prob[:, 1], same_log_prob[:, 1], rtol=1e-4, atol=1e-5)
    if greedy:
        moved = [
            (a[0] != b[0]).reshape(40, spec_of(kind).n_agents, -1).any(-1)[:, [0, 2]]
            for a, b in zip(runs[0], runs[1], strict=True)
        ]
        assert torch.stack(moved).any(), "nobody reads observations at all"


@EACH
def test_actions_are_legal_and_of_the_right_shape_and_type(name: str, kind: str) -> None:
    algorithm, spec = small(name, kind), spec_of(kind)
    net = networks(algorithm, spec)
    for greedy in (True, False):
        memory, rng = None, None if greedy else torch.Generator().manual_seed(0)
        for step in steps(kind, 200, 3):
            with torch.no_grad():
                action = algorithm.act(net, step, memory, 0, rng)
            memory = action.memory
            assert action.log_prob.shape == (200, 3)
            assert torch.isfinite(action.log_prob).all()
            if isinstance(spec.action, Discrete):
                assert action.action.dtype == torch.int64
                assert step.avail is not None
                assert step.avail.gather(-1, action.action[..., None]).all()
            else:
                assert action.action.dtype == torch.float32
                assert action.action.shape == (200, 3, spec.action.size)
                assert action.action.min() >= spec.action.low
                assert action.action.max() <= spec.action.high


@EACH
def test_acting_reads_its_own_generator_alone(name: str, kind: str) -> None:
    algorithm = small(name, kind)
    net, found = networks(algorithm, spec_of(kind)), []
    for seed in (0, 1):
        torch.manual_seed(seed)
        before = torch.get_rng_state()
        found.append(played(algorithm, net, NoisyEnv(kind, 6), seed=3).action)
        assert torch.equal(before, torch.get_rng_state())
    assert torch.equal(found[0], found[1])


@EACH
def test_learning_reads_its_own_generators_alone(name: str, kind: str) -> None:
    found = []
    for seed in (0, 1):
        algorithm, learner = learning(name, kind)
        batch = played(algorithm, learner.net, NoisyEnv(kind, 6), seed=3)
        torch.manual_seed(seed)
        before = torch.get_rng_state()
        learner.update(batch, 0.0, torch.Generator().manual_seed(5), torch.Generator().manual_seed(6))
        assert torch.equal(before, torch.get_rng_state())
        found.append(learner.net.state_dict())
    assert all(torch.equal(found[0][k], found[1][k]) for k in found[0])


# -- acting and learning agree ----------------------------------------------------------------------------------------


@EACH
def test_the_learner_sees_the_policy_that_played(name: str, kind: str) -> None:
    """Greedy actions, one step at a time with memory, are the modes of the whole sequence's policies in one call."""
    algorithm = small(name, kind)
    if not hasattr(algorithm, "policy"):
        pytest.skip("the method has no policy to read")
    net = networks(algorithm, spec_of(kind))
    batch = played(algorithm, net, NoisyEnv(kind, 12), greedy=True)
    with torch.no_grad():
        pi = algorithm.policy(net, batch)
    acts = batch.alive[:, :-1] & (batch.mask > 0)[..., None]
    if isinstance(pi, Categorical):
        assert torch.equal(pi.probs.argmax(-1)[acts], batch.action[acts])
    else:
        torch.testing.assert_close(pi.mean[acts], batch.action[acts], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("name", "kind"), list(method_kinds()))
def test_on_policy_the_stored_log_probabilities_are_those_that_the_update_computes(name: str, kind: str) -> None:
    """Found elsewhere: the mask in the rollout, not in the update. Masked actions, recurrent memory, dead agents."""
    algorithm = small(name, kind)
    if algorithm.data != "on_policy":
        pytest.skip("learns from replay")
    net = networks(algorithm, spec_of(kind))
    batch = played(algorithm, net, NoisyEnv(kind, 16))
    with torch.no_grad():
        ratio = (algorithm.policy(net, batch).log_prob(batch.action) - batch.log_prob).exp()  # type: ignore[attr-defined]
    acts = batch.alive[:, :-1] & (batch.mask > 0)[..., None]
    assert (~batch.alive[:, 1:-1] & (batch.mask[:, 1:] > 0)[..., None]).any()  # somebody is dead in it
    torch.testing.assert_close(ratio[acts], torch.ones_like(ratio[acts]), rtol=0, atol=1e-5)


@EACH
def test_illegal_actions_have_no_probability_in_the_update(name: str, kind: str) -> None:
    algorithm = small(name, kind)
    if kind != "discrete" or not hasattr(algorithm, "policy"):
        pytest.skip("nothing is illegal, or no policy")
    net = networks(algorithm, spec_of(kind))
    batch = batch_of(spec_of(kind), [7, 4], [True, False])
    pi = algorithm.policy(net, batch)
    assert batch.avail is not None
    assert float(pi.probs[~batch.avail[:, :-1]].max()) == 0.0


# -- what the diagnostics read ----------------------------------------------------------------------------------------


@EACH
@pytest.mark.parametrize("function", ["utilities", "joint_value"])
def test_candidates_together_are_each_by_itself(name: str, kind: str, function: str) -> None:
    algorithm, spec = small(name, kind), spec_of(kind)
    if not hasattr(algorithm, function):
        pytest.skip(f"no {function}")
    net, batch = networks(algorithm, spec), batch_of(spec, [5, 3], [True, False])
    rng = torch.Generator().manual_seed(0)
    shape = (2, 5, 6, 3)
    if isinstance(spec.action, Discrete):
        many = torch.randint(spec.action.n, shape, generator=rng)
    else:
        many = torch.rand(*shape, spec.action.size, generator=rng) - 0.5
    with torch.no_grad():
        together = getattr(algorithm, function)(net, batch, many)
        alone = torch.stack([getattr(algorithm, function)(net, batch, many[:, :, m]) for m in range(6)], 2)
    assert together.shape == (shape if function == "utilities" else shape[:3])
    torch.testing.assert_close(together, alone, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", importable())
def test_every_field_has_its_documentation_and_every_preset_its_fields(name: str) -> None:
    import dataclasses

    from harness import registry
    from harness.fields import fields_of

    cls = registry.algorithm(name)
    assert cls.__dataclass_params__.frozen
    assert cls.__mro__[1:] == (object,)  # no inheritance between methods
    for field_name, field in fields_of(cls).items():
        assert field.doc, field_name
    names = {f.name for f in dataclasses.fields(cls)}
    assert {"gamma", "num_envs"} <= names
    if cls.data == "replay":
        assert {"buffer_episodes", "batch_episodes", "updates_per_collect"} <= names
    for preset, values in cls.presets.items():
        assert set(values) <= names, preset
        cls(**values)
    assert cls.actions <= {"discrete", "continuous"}
