"""A method's own gradient estimator, taken from its own policy loss without knowing which method it is.

The loss that trains what ``policy`` (or else ``utilities``) reads is evaluated with a zero added to that network's
output [B,T,N,K]; the derivative by this zero is the gradient that each agent receives at each step, in the space of its
network's outputs (logits; utilities; mean and log standard deviation). Its sources of variation are then moved one
at a time:

- the loss reads the joint action that was played (policy gradients with advantages, TD learning): on games of one step
  every joint action is put into a batch with its true reward, so that T_i and O_i are exact;
- the loss draws actions itself from ``rng`` (candidates, Gumbel or Gaussian noise): the teammates' draws are kept while
  the agent's own are redrawn (pick-freeze, Sobol 1993), on any task;
- neither: the estimate is a function of the state alone, T_i = O_i = 0.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from harness.algorithm import Algorithm, Loss
from harness.types import Batch

Change = Callable[[Tensor], Tensor]
PROBES = 64
"""Least rows on which it is found out what moves an estimate."""


class Unmeasurable(Exception):
    """This estimator cannot be read; says why, for the list of what is missing."""


class Estimator(NamedTuple):
    """A method's policy loss and where its gradient is read."""

    method: Any
    net: nn.ModuleDict  # private copies
    target: nn.ModuleDict
    loss: Loss
    site: nn.Module  # of ``net``: the network that puts out [B,T,N,K]
    start: dict[str, Tensor]  # ``net``'s values: a loss may move running statistics, which are put back each time


def find(method: Algorithm, net: nn.ModuleDict, target: nn.ModuleDict, batch: Batch) -> Estimator:
    """The policy loss and its network. Raises ``Unmeasurable``."""
    net, target = copy.deepcopy(net), copy.deepcopy(target)
    names = _read_by(method, net, batch)
    losses = [loss for loss in method.losses() if set(loss.trains) & names]
    if not losses:
        raise Unmeasurable(f"no loss trains {', '.join(sorted(names))}, which its policy reads")
    children = [name for name in losses[0].trains if name in names]
    site = _site(method, net, batch, children)
    return Estimator(method, net, target, losses[0], site, {k: v.clone() for k, v in net.state_dict().items()})


def output(method: Any, net: nn.ModuleDict, batch: Batch) -> Tensor:
    """A scalar that depends on everything that ``policy``, or else ``utilities``, reads."""
    if hasattr(method, "policy"):
        pi = method.policy(net, batch)
        base = getattr(pi, "base_dist", pi)
        parts = [getattr(base, name) for name in ("logits", "loc", "scale") if hasattr(base, name)]
        if not parts:
            raise Unmeasurable(f"its policy is a {type(base).__name__}, neither a softmax nor a Gaussian")
        return torch.stack([p.clamp(-1e6, 1e6).square().sum() for p in parts]).sum()
    if hasattr(method, "utilities"):
        total: Tensor = method.utilities(net, batch, batch.action).square().sum()
        return total
    raise Unmeasurable("it has neither policy nor utilities")


@torch.enable_grad()
def _read_by(method: Any, net: nn.ModuleDict, batch: Batch) -> set[str]:
    named = [(name, p) for name, child in net.items() for p in child.parameters()]
    value = output(method, net, batch)
    if not value.requires_grad:
        raise Unmeasurable("its policy depends on no parameter")
    grads = torch.autograd.grad(value, [p for _, p in named], allow_unused=True)
    return {name for (name, _), g in zip(named, grads, strict=True) if g is not None}


def _first(out: Any) -> Any:
    return out[0] if isinstance(out, tuple | list) and out else out


def _replaced(out: Any, new: Tensor) -> Any:
    if isinstance(out, Tensor):
        return new
    rest = (new, *out[1:])
    return type(out)(*rest) if hasattr(out, "_fields") else type(out)(rest)


def fits(out: Any, batch: Batch) -> bool:
    """A network's output is [B,T or T+1,N,K]."""
    x, (b, t, n) = _first(out), batch.log_prob.shape
    return isinstance(x, Tensor) and x.dim() == 4 and x.shape[0] == b and x.shape[1] in (t, t + 1) and x.shape[2] == n


def agent_outputs(
    net: nn.ModuleDict, batch: Batch, children: Iterable[str], run: Callable[[], object]
) -> dict[str, tuple[nn.Module, Tensor]]:
    """By child, the outermost module that puts out [B,T,N,K] during ``run``, and what it put out last."""
    found: dict[str, tuple[nn.Module, Tensor]] = {}
    hooks = []
    for name in children:
        for module in net[name].modules():

            def hook(m: nn.Module, args: Any, out: Any, name: str = name) -> None:
                if fits(out, batch):
                    found[name] = m, _first(out).detach()  # an outer module ends after its parts: the last one stays

            hooks.append(module.register_forward_hook(hook))
    try:
        run()
    finally:
        for handle in hooks:
            handle.remove()
    return found


def _site(method: Any, net: nn.ModuleDict, batch: Batch, children: list[str]) -> nn.Module:
    found = agent_outputs(net, batch, children, lambda: output(method, net, batch))
    if not found:
        raise Unmeasurable(f"no module of {', '.join(children)} puts out [episodes, steps, agents, ...]")
    return next(iter(found.values()))[0]


@contextmanager
def hooked(module: nn.Module, change: Change) -> Iterator[None]:
    """Inside, the first tensor of ``module``'s output goes through ``change``."""
    handle = module.register_forward_hook(lambda m, args, out: _replaced(out, change(_first(out))))
    try:
        yield
    finally:
        handle.remove()


@torch.enable_grad()
def gradient(e: Estimator, batch: Batch, rng: torch.Generator) -> Tensor:
    """What each agent receives at each step, in the direction of descent, [B,T,N,K]; a step's share of the mean
    over steps is multiplied by their number, so that its size does not depend on the batch's."""
    zeros: list[Tensor] = []
    e.net.load_state_dict(e.start)

    def add_zero(out: Tensor) -> Tensor:
        if out.dim() != 4 or not torch.is_grad_enabled():
            return out
        zeros.append(torch.zeros_like(out, requires_grad=True))
        return out + zeros[-1]

    for loss in e.method.losses():
        if loss.prepare is not None:
            with torch.no_grad():
                batch = loss.prepare(e.net, e.target, batch, rng)
        if loss.name == e.loss.name:
            break
    with hooked(e.site, add_zero):
        value, _ = e.loss.of(e.net, e.target, batch, rng)
    if not zeros or not value.requires_grad:
        raise Unmeasurable(f"loss {e.loss.name!r} does not run its policy's network on the batch")
    grads = torch.autograd.grad(value, zeros, allow_unused=True)
    steps = batch.mask.shape[1]
    parts = [g[:, :steps] for g in grads if g is not None and g.shape[:1] == batch.mask.shape[:1]]
    if not parts:
        raise Unmeasurable(f"no gradient of loss {e.loss.name!r} reaches its policy's network")
    return -torch.stack(parts).sum(0).detach() * batch.mask.sum()


# -- what it depends on ---------------------------------------------------------------------------------------------


def first_step(batch: Batch) -> Batch:
    """The episodes' first steps alone."""
    cut = {
        k: None if v is None else v[:, : 2 if k in ("obs", "state", "avail", "alive") else 1]
        for k, v in batch.tensors().items()
    }
    return Batch(**cut)  # type: ignore[arg-type]


class Sources(NamedTuple):
    """What moves an estimate at a given state."""

    action: bool
    """The joint action that was played."""
    noise: bool
    """Draws of its own."""


def sources(e: Estimator, batch: Batch, seed: int) -> Sources:
    """Found by changing the played actions, and the seed, at the episodes' first steps.

    These are repeated up to ``PROBES`` rows with actions and rewards at random: a difference that one row might hide
    (candidates that come out alike, advantages that are all 0) shows in some.
    """
    rng = torch.Generator(batch.obs.device)
    batch = _probes(first_step(batch), rng.manual_seed(seed))

    def at(b: Batch, s: int) -> Tensor:
        return gradient(e, b, rng.manual_seed(s))

    base, other = at(batch, seed), dataclasses.replace(batch, action=_others(batch))
    again = at(batch, seed)
    if not torch.equal(base, again):
        raise Unmeasurable(f"loss {e.loss.name!r} is not a function of (networks, batch, rng): it draws from elsewhere")
    return Sources(not torch.equal(base, at(other, seed)), not torch.equal(base, at(batch, seed + 1)))


def _probes(batch: Batch, rng: torch.Generator) -> Batch:
    times = -(-PROBES // len(batch.mask))
    batch = batch.map(lambda x: x.repeat(times, *[1] * (x.dim() - 1)))
    reward = torch.randn(batch.reward.shape, generator=rng, device=rng.device)
    if batch.avail is None:
        action = torch.rand(batch.action.shape, generator=rng, device=rng.device)
    else:
        legal = batch.avail[:, :-1].flatten(0, 2).float()
        action = torch.multinomial(legal, 1, generator=rng).reshape(batch.action.shape)
    return dataclasses.replace(batch, action=action, reward=reward)


def _others(batch: Batch) -> Tensor:
    """Another legal action wherever there is one; continuous actions negated and shrunk."""
    if batch.avail is None:
        return -0.5 * batch.action - 0.1
    here = torch.zeros_like(batch.avail[:, :-1]).scatter(-1, batch.action.unsqueeze(-1), True)
    free = batch.avail[:, :-1] & ~here
    return torch.where(free.any(-1), free.int().argmax(-1), batch.action)


# -- teammates' draws kept, own redrawn -----------------------------------------------------------------------------


class SplitNoise(TorchFunctionMode):
    """Every draw from ``rng`` comes from ``own`` for one agent and from ``mates`` for the others.

    The agent's axis is the last but one of draws with an action axis ([...,N,A or U], and rows [...N] of a multinomial)
    and the last of draws without ([...,N]): the house's order of axes. Raises ``Unmeasurable`` where neither fits.
    """

    def __init__(
        self, rng: torch.Generator, own: torch.Generator, mates: torch.Generator, agent: int, agents: int, size: int
    ) -> None:
        super().__init__()
        self.rng, self.own, self.mates, self.agent, self.agents, self.size = rng, own, mates, agent, agents, size

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """One call of torch inside the block."""
        kwargs = kwargs or {}
        if kwargs.get("generator") is not self.rng:
            return func(*args, **kwargs)
        name = getattr(func, "__name__", "")
        kept = func(*args, **{**kwargs, "generator": self.mates}).clone()
        redrawn = func(*args, **{**kwargs, "generator": self.own})
        merged = torch.where(self._mine(name, kept, args), redrawn, kept)
        return args[0].copy_(merged) if name.endswith("_") else merged

    def _mine(self, name: str, drawn: Tensor, args: Any) -> Tensor:
        shape, n = drawn.shape, self.agents
        if name == "multinomial" and drawn.dim() == 2 and shape[0] % n == 0:
            return (torch.arange(shape[0], device=drawn.device) % n == self.agent).unsqueeze(-1)
        mine = torch.arange(n, device=drawn.device) == self.agent
        if name != "multinomial" and drawn.dim() >= 2:
            if shape[-2] == n and (shape[-1] == self.size or shape[-1] != n):
                return mine.unsqueeze(-1)
            if shape[-1] == n:
                return mine
        raise Unmeasurable(f"draws of shape {tuple(shape)} have no axis of {n} agents that could be redrawn alone")


def redrawn(
    e: Estimator, batch: Batch, agent: int, outer: int, inner: int, seeds: Callable[[], int], size: int
) -> Tensor:
    """[B,T,outer,inner,K]: agent's gradient, the teammates' draws kept along ``inner``. ``size``: A or U."""
    device = batch.obs.device
    rng, own, mates = (torch.Generator(device) for _ in range(3))
    rows = []
    for _ in range(outer):
        kept, row = seeds(), []
        for _ in range(inner):
            own.manual_seed(seeds())
            mates.manual_seed(kept)
            with SplitNoise(rng, own, mates, agent, batch.log_prob.shape[-1], size):
                row.append(gradient(e, batch, rng)[:, :, agent])
        rows.append(torch.stack(row, 2))
    return torch.stack(rows, 2)


def repeated(e: Estimator, batch: Batch, count: int, seeds: Callable[[], int]) -> Tensor:
    """[B,T,count,N,K]: the gradient under ``count`` seeds."""
    rng = torch.Generator(batch.obs.device)
    return torch.stack([gradient(e, batch, rng.manual_seed(seeds())) for _ in range(count)], 2)
