"""Environments and batches that tests know everything about, and registered methods made small.

``CountingEnv`` counts, so that every recorded number says when, where and for whom it was seen. ``NoisyEnv`` plays
random episodes with masks, deaths and both kinds of end. ``batch_of`` makes a random batch out of nothing.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from harness import registry
from harness.algorithm import Algorithm
from harness.collect import episodes
from harness.errors import UserError
from harness.types import Batch, Continuous, Discrete, Spec, Step

CPU = torch.device("cpu")
DISCRETE = Spec(3, 5, 4, 7, Discrete(4), ("won",))
CONTINUOUS = Spec(3, 5, 4, 7, Continuous(-2.0, 1.0, 2), ("won",))
SMALL = {
    "hidden": 8, "critic_hidden": 8, "embed": 4, "hyper": 8, "num_envs": 4, "buffer_episodes": 16, "batch_episodes": 4,
    "updates_per_collect": 2, "minibatches": 2, "epochs": 2, "epsilon_steps": 60, "target_episodes": 8,
}  # fmt: skip
"""Settings for quick tests, of those a method has."""


def spec_of(kind: str) -> Spec:
    """N=3, O=5, G=4, T<=7, with A=4 legal or illegal actions, or U=2 numbers in [-2,1]."""
    return DISCRETE if kind == "discrete" else CONTINUOUS


# -- registered methods -------------------------------------------------------------------------------------------


def importable() -> list[Any]:
    """Every registered method, as pytest parameters; one that cannot be imported is skipped with the reason."""
    found = []
    for name in registry.algorithms():
        try:
            registry.algorithm(name)
        except UserError as error:
            found.append(pytest.param(name, marks=pytest.mark.skip(reason=str(error))))
        else:
            found.append(pytest.param(name))
    return found


def method_kinds() -> list[Any]:
    """(name, action kind) of every registered method and every kind of action that it plays."""
    found = []
    for parameter in importable():
        kinds = ["discrete"] if parameter.marks else sorted(registry.algorithm(parameter.values[0]).actions)
        found += [pytest.param(parameter.values[0], kind, marks=parameter.marks) for kind in kinds]
    return found


def small(name: str, kind: str = "discrete", **settings: Any) -> Algorithm:
    """The method with the defaults for that kind of action, and ``SMALL``."""
    cls = registry.algorithm(name)
    fields = {f.name for f in dataclasses.fields(cls)}
    chosen = {k: v for k, v in (SMALL | settings).items() if k in fields}
    made: Algorithm = cls(**(dict(cls.presets.get(kind, {})) | chosen))
    return made


def networks(algorithm: Algorithm, spec: Spec, seed: int = 0) -> nn.ModuleDict:
    """Fresh networks from a seed."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return algorithm.networks(spec)


# -- environments -------------------------------------------------------------------------------------------------


class CountingEnv:
    """Environment e ends after ``lengths[e]`` steps, by termination unless ``e`` is in ``truncated``.

    At moment t (0 after reset) agent i of environment e sees (t, e, i), the state is (t, e), the reward is 100 e + t,
    action t modulo A is the only illegal one, "won" is e modulo 2 at the moment of the end and -1 at all others. What
    is played is kept in ``played``.
    """

    def __init__(
        self, lengths: Sequence[int], truncated: Sequence[int] = (), limit: int = 10, n_agents: int = 2
    ) -> None:
        self.spec = Spec(n_agents, 3, 2, limit, Discrete(4), ("won",))
        self.num_envs = len(lengths)
        self.lengths, self.truncated = torch.tensor(lengths), torch.zeros(len(lengths), dtype=torch.bool)
        self.truncated[list(truncated)] = True
        self.seeds: list[int] = []
        self.played: list[Tensor] = []

    def reset(self, seed: int) -> Step:
        self.seeds.append(seed)
        self.played, self.t = [], torch.zeros(self.num_envs, dtype=torch.int64)
        return self._step(torch.zeros(self.num_envs, dtype=torch.bool))

    def step(self, action: Tensor) -> Step:
        self.played.append(action.clone())
        running = self.t < self.lengths
        self.t = self.t + running
        return self._step(running)

    def _step(self, moved: Tensor) -> Step:
        e, n, t = self.num_envs, self.spec.n_agents, self.t
        place, agent = torch.arange(e), torch.arange(n)
        obs = torch.stack([t[:, None].expand(e, n), place[:, None].expand(e, n), agent.expand(e, n)], -1).float()
        avail = torch.ones(e, n, 4, dtype=torch.bool)
        avail[place, :, t % 4] = False
        over = t >= self.lengths
        won = torch.where(over & moved, (place % 2).float(), -1.0)
        reward = torch.where(moved, (100 * place + t).float(), 0.0)
        alive = torch.ones(e, n, dtype=torch.bool)
        state = torch.stack([t, place], -1).float()
        return Step(obs, state, avail, alive, reward, over & ~self.truncated, over & self.truncated, {"won": won})

    def close(self) -> None:
        pass


class NoisyEnv:
    """Random observations, masks, deaths, lengths and ends: all from the seed, none from the actions but the reward.

    With ``garbage`` (a number) the dead see it, and everything about a finished environment becomes it.
    """

    def __init__(self, kind: str, num_envs: int, garbage: float | None = None, legal: int | None = None) -> None:
        self.spec, self.num_envs, self.garbage, self.legal = spec_of(kind), num_envs, garbage, legal
        self.rng = torch.Generator()

    def reset(self, seed: int) -> Step:
        self.rng.manual_seed(seed)
        self.t = 0
        shape = (self.num_envs,)
        self.lengths = torch.randint(2, self.spec.episode_limit + 1, shape, generator=self.rng)
        self.truncated = torch.rand(shape, generator=self.rng) < 0.5
        self.alive = torch.ones(self.num_envs, self.spec.n_agents, dtype=torch.bool)
        return self._step(torch.zeros(shape))

    def step(self, action: Tensor) -> Step:
        running = self.t < self.lengths
        self.t += 1
        self.alive = self.alive & (torch.rand(self.alive.shape, generator=self.rng) < 0.8)
        self.alive[:, 0] = True
        paid = action.float().reshape(self.num_envs, -1).sum(1) + torch.randn(self.num_envs, generator=self.rng)
        return self._step(torch.where(running, paid, torch.zeros_like(paid)))

    def _step(self, reward: Tensor) -> Step:
        e, spec, rng = self.num_envs, self.spec, self.rng
        obs = torch.randn(e, spec.n_agents, spec.obs_dim, generator=rng)
        state = torch.randn(e, spec.state_dim, generator=rng)
        over, idle = self.t >= self.lengths, self.t > self.lengths
        avail = legal_actions(spec, (e,), rng, self.legal)
        won = torch.where(self.t == self.lengths, self.truncated.float(), 0.0)
        if self.garbage is not None:
            obs[~self.alive] = self.garbage
            obs[idle] = 1e6  # never NaN: someone must still choose an action for those who idle
            state[idle] = self.garbage
            reward = torch.where(idle, torch.full_like(reward, self.garbage), reward)
        return Step(obs, state, avail, self.alive, reward, over & ~self.truncated, over & self.truncated, {"won": won})

    def close(self) -> None:
        pass


def legal_actions(spec: Spec, shape: tuple[int, ...], rng: torch.Generator, count: int | None = None) -> Tensor | None:
    """Random masks [*shape,N,A] with at least one legal action, or exactly ``count``; None for continuous actions."""
    if not isinstance(spec.action, Discrete):
        return None
    rank = torch.rand(*shape, spec.n_agents, spec.action.n, generator=rng).argsort(-1)
    if count is not None:
        return rank < count
    return rank < torch.randint(1, spec.action.n + 1, (*shape, spec.n_agents, 1), generator=rng)


def played(
    algorithm: Algorithm, net: nn.ModuleDict, env: Any, seed: int = 0, greedy: bool = False, env_steps: int = 0
) -> Batch:
    """One round of episodes with the method's own exploration, or greedily."""
    rng = None if greedy else torch.Generator().manual_seed(seed + 1)
    batch = episodes(env, lambda s, memory, k: algorithm.act(net, s, memory, env_steps + k, rng), seed)[1]
    assert batch is not None
    return batch


# -- batches ------------------------------------------------------------------------------------------------------


def batch_of(
    spec: Spec, lengths: Sequence[int], terminated: Sequence[bool], seed: int = 0, legal: int | None = None
) -> Batch:
    """Random clean episodes of the given lengths, that end truly or at a limit; agents die on the way."""
    rng = torch.Generator().manual_seed(seed)
    b, t, n = len(lengths), max(lengths), spec.n_agents
    mask = (torch.arange(t) < torch.tensor(lengths)[:, None]).float()
    over = torch.zeros(b, t)
    over[torch.arange(b), torch.tensor(lengths) - 1] = torch.tensor(terminated).float()
    avail = legal_actions(spec, (b, t + 1), rng, legal)
    if avail is None:
        action = torch.rand(b, t, n, spec.action.dim, generator=rng) - 0.5
    else:
        action = torch.multinomial(avail[:, :-1].flatten(0, 2).float(), 1, generator=rng).reshape(b, t, n)
    alive = (torch.rand(b, t + 1, n, generator=rng) < 0.85).int().cumprod(1).bool()
    alive[:, :, 0] = True
    return Batch(
        obs=torch.randn(b, t + 1, n, spec.obs_dim, generator=rng),
        state=torch.randn(b, t + 1, spec.state_dim, generator=rng),
        avail=avail,
        alive=alive,
        action=action,
        log_prob=-torch.rand(b, t, n, generator=rng) * math.log(4),
        reward=torch.randn(b, t, generator=rng),
        terminated=over,
        mask=mask,
    ).clean()


def spoiled(batch: Batch, garbage: float) -> Batch:
    """``batch`` with garbage wherever nothing happened, and in what the dead see."""
    valid, step = batch.valid, batch.mask > 0
    bad: dict[str, Tensor | None] = {}
    for name, x in batch.tensors().items():
        if name in ("mask", "alive") or x is None:
            continue
        where = valid if name in ("obs", "state", "avail") else step
        value = 3 if name == "action" and not x.is_floating_point() else garbage
        if name == "avail":
            value = False
        x = x.clone()
        x[~where] = value
        bad[name] = x
    obs = bad["obs"]
    assert obs is not None
    obs[~batch.alive] = garbage
    return dataclasses.replace(batch, **bad)  # type: ignore[arg-type]


def padded(batch: Batch, extra: int) -> Batch:
    """The same episodes with ``extra`` more steps of padding."""

    def longer(x: Tensor) -> Tensor:
        if x.dim() == 1:
            return x
        return torch.cat([x, x.new_zeros((x.shape[0], extra, *x.shape[2:]))], 1)

    return batch.map(longer).clean()


# -- learning -----------------------------------------------------------------------------------------------------


def gradients(
    algorithm: Algorithm, net: nn.ModuleDict, target: nn.ModuleDict, batch: Batch, seed: int = 5
) -> dict[str, Tensor]:
    """Each loss's value and gradients on ``batch``, nothing moved: {loss: scalar, loss/network.weight: ...}."""
    rng, found = torch.Generator().manual_seed(seed), {}
    for loss in algorithm.losses():
        if loss.prepare is not None:
            with torch.no_grad():
                batch = loss.prepare(net, target, batch, rng)
        value, _ = loss.of(net, target, batch, rng)
        named = {f"{name}.{k}": p for name in loss.trains for k, p in net[name].named_parameters()}
        slopes = torch.autograd.grad(value, list(named.values()), allow_unused=True)
        found[loss.name] = value.detach()
        for (key, p), slope in zip(named.items(), slopes, strict=True):
            found[f"{loss.name}/{key}"] = torch.zeros_like(p) if slope is None else slope
    return found


def close(a: dict[str, Tensor], b: dict[str, Tensor], atol: float) -> None:
    """The same names and numbers; none of them NaN."""
    assert a.keys() == b.keys()
    for name, value in a.items():
        assert torch.isfinite(value).all(), name
        torch.testing.assert_close(b[name], value, atol=atol, rtol=atol, msg=lambda m, name=name: f"{name}: {m}")
