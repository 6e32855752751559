"""The diagnostics of a method's own gradient estimator (``own.py`` reads it; here it is decomposed)."""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from harness.cdm import exact, own, sampled
from harness.cdm.actor import Values, combine, curve_name, join
from harness.cdm.definitions import EPSILONS
from harness.cdm.own import Estimator, Unmeasurable
from harness.cdm.read import Reader
from harness.cdm.truth import Truth, joint_actions, one_step_batch
from harness.types import Batch, Continuous, Discrete

ENUMERATED_ROWS = 200_000
"""Most (state, joint action, agent) triples that go through a loss at once."""
OUTER = 8
"""Draws of the teammates' noise that are kept."""
INNER = 2
"""Own draws under each."""
REPEATS = 256
"""A known game's few states are repeated up to this many rows, each with draws of its own."""

Seeds = Callable[[], int]


def measure(e: Estimator, reader: Reader, truth: Truth | None, seeds: Seeds) -> tuple[Values, dict[str, str], str]:
    """Values by quantity, what is missing and why, and a sentence on how the estimator varies."""
    found = own.sources(e, reader.batch, seeds())
    name = f"loss {e.loss.name!r}"
    small = truth is not None and truth.one_step and truth.values.numel() * reader.spec.n_agents <= ENUMERATED_ROWS
    if found.action and small:
        assert truth is not None
        return enumerated(e, reader, truth, seeds), {}, f"{name} reads the joint action played: every one is put in"
    if found.action:
        missing = {
            "own/teammate_share": f"{name} reads the action played and what came of it; other joint actions' outcomes "
            "are known only on enumerable one-step tasks of moderate size"
        }
        missing["own/cosine"] = missing["own/teammate_share"]
        how = f"{name} reads the joint action played: measured along the actions collected"
        return along_the_data(e, reader, seeds), missing, how
    if not found.noise:
        why = f"{name} does not vary at a given state: it draws nothing, or its draws have become certain"
        return (
            along_the_data(e, reader, seeds, silent=True),
            {"own/cosine": why},
            f"{name} is a function of the state alone",
        )
    if truth is not None and truth.one_step:
        reader = repeat(reader, REPEATS)
    values = split(e, reader, seeds)
    how = f"{name} draws actions of its own: the teammates' draws kept, the agent's redrawn"
    try:
        return values | curve(e, reader, seeds), {}, how
    except Unmeasurable as error:
        return values, {"own/cosine": str(error)}, how


def repeat(reader: Reader, rows: int) -> Reader:
    """Every state as often as fits into ``rows`` (at least once), for a batch whose every moment is a state."""
    times = max(1, rows // len(reader.index))
    batch = reader.batch.map(lambda x: x.repeat(times, *[1] * (x.dim() - 1)))
    index = torch.arange(batch.mask.numel(), device=reader.index.device)
    return dataclasses.replace(reader, batch=batch, index=index)


def enumerated(e: Estimator, reader: Reader, truth: Truth, seeds: Seeds) -> Values:
    """Exact: the loss on every joint action in every state of a one-step game, weighed by the policies.

    ``reader`` holds the game's states in the truth's order. What a loss normalises over its batch (advantages) is
    normalised over this one, where every joint action counts once.
    """
    assert isinstance(reader.spec.action, Discrete)
    n, a, s = reader.spec.n_agents, reader.spec.action.n, len(truth.values)
    device = reader.index.device
    policies = reader.policies()
    actions = joint_actions(n, a).repeat(s, 1)
    which = torch.arange(s).repeat_interleave(a**n)
    batch = one_step_batch(truth, actions, which, device)
    probs = torch.stack(policies, 1)[which.to(device)].gather(-1, batch.action[:, 0].unsqueeze(-1)).squeeze(-1)
    batch = dataclasses.replace(batch, log_prob=probs.clamp(min=1e-30).log().float().unsqueeze(1)).clean()
    g = own.gradient(e, batch, torch.Generator(device).manual_seed(seeds()))[:, 0].double()
    fields = [
        g[:, i].reshape(s, *[a] * n, -1).movedim(1 + i, 1).flatten(2, n) if n > 1 else g[:, i].reshape(s, a, 1, -1)
        for i in range(n)
    ]
    found = combine([exact.decompose(f, policies[i], exact.teammates(policies, i)) for i, f in enumerate(fields)])
    avail = [x.double() for x in reader.avail.unbind(1)]

    def expected(eps: float | str) -> Tensor:
        parts = []
        for i, f in enumerate(fields):
            weights = exact.teammates(exact.perturbed(policies, i, eps, avail), i)
            parts.append(torch.einsum("sa,sr,sarp->sp", policies[i], weights, f))
        return torch.cat(parts, -1)

    reference = expected(0.0)
    for eps in EPSILONS:
        found |= dict(zip(curve_name(eps), exact.agreement(expected(eps), reference), strict=True))
    return found


def along_the_data(e: Estimator, reader: Reader, seeds: Seeds, silent: bool = False) -> Values:
    """Total variance over the states (and what was played in them), and signal to noise; with ``silent`` the parts that
    the joint action has in it are known to be 0."""
    g = own.gradient(e, reader.batch, torch.Generator(reader.index.device).manual_seed(seeds()))
    x = reader.at(g).flatten(1).double()
    if len(x) < 2 and not silent:
        raise Unmeasurable("a single step has no variance over steps")
    total = float(x.var(0).sum()) if len(x) > 1 else 0.0
    signal = float(x.mean(0).square().sum()) - total / len(x)
    found = {"variance_total": total, "snr": signal / total if total > 0 else math.nan}
    return found | ({"variance_state": total, "variance_teammates": 0.0, "variance_own": 0.0} if silent else {})


def split(e: Estimator, reader: Reader, seeds: Seeds) -> Values:
    """Teammates' noise kept, own noise redrawn, for each agent in turn."""
    size = reader.spec.action.n if isinstance(reader.spec.action, Discrete) else reader.spec.action.size
    moments = []
    for i in range(reader.spec.n_agents):
        g = own.redrawn(e, reader.batch, i, OUTER, INNER, seeds, size)
        moments.append(sampled.nested(reader.at(g)))
    found = sampled.summary(join(moments))
    names = ("variance_state", "variance_teammates", "variance_own", "variance_total", "teammate_share", "snr")
    return {name: found[name].value for name in names}


# -- teammates perturbed --------------------------------------------------------------------------------------------


def curve(e: Estimator, reader: Reader, seeds: Seeds) -> Values:
    """Cosines and sign flips when the teammates' policies (and proposals) are moved inside the networks.

    Every network that neither ``utilities`` nor ``joint_value`` reads and that puts out logits [B,T,N,A] is a policy;
    its teammates' rows become the logits of the perturbed policy while the loss runs.
    """
    if isinstance(reader.spec.action, Continuous):
        raise Unmeasurable(
            "a Gaussian policy mixed with uniform play is no Gaussian, which its loss would have to draw from"
        )
    modules = policy_networks(e, reader)

    def gradients(eps: float | str) -> Tensor:
        parts = []
        for i in range(reader.spec.n_agents):
            with contextlib.ExitStack() as stack:
                for module in modules:
                    stack.enter_context(own.hooked(module, perturb(reader.batch, i, eps)))
                parts.append(reader.at(own.repeated(e, reader.batch, OUTER, seeds))[:, :, i])
        return torch.cat(parts, -1)

    found: Values = {}
    reference = gradients(0.0)
    for eps in EPSILONS:
        values = sampled.agreement(gradients(eps), reference)
        found |= dict(zip(curve_name(eps), values, strict=True))
    return found


def policy_networks(e: Estimator, reader: Reader) -> list[nn.Module]:
    """The networks whose outputs are logits of a policy. Raises ``Unmeasurable`` when the method's own is not."""
    critics = _read_by_values(e, reader.batch)
    children = [name for name in e.net if name not in critics]
    rng = torch.Generator(reader.index.device).manual_seed(0)
    found = own.agent_outputs(e.net, reader.batch, children, lambda: own.gradient(e, reader.batch, rng))
    for module, out in found.values():
        if module is e.site:
            legal = _masked(out, reader.batch)[:, : reader.batch.mask.shape[1]]
            probs = torch.stack(reader.policies(), 1)
            if not torch.allclose(reader.at(legal.softmax(-1)).double(), probs, atol=1e-4):
                raise Unmeasurable("its network's outputs are not the logits of its policy")
            actions = out.shape[-1]
            return [m for m, o in found.values() if o.shape[-1] == actions]
    raise Unmeasurable("its policy's network is also its critic")


@torch.enable_grad()
def _read_by_values(e: Estimator, batch: Batch) -> set[str]:
    named = [(name, p) for name, child in e.net.items() for p in child.parameters()]
    total: Any = 0.0
    for read in ("utilities", "joint_value"):
        if hasattr(e.method, read):
            total = total + getattr(e.method, read)(e.net, batch, batch.action).sum()
    if not isinstance(total, Tensor) or not total.requires_grad:
        return set()
    grads = torch.autograd.grad(total, [p for _, p in named], allow_unused=True)
    return {name for (name, _), g in zip(named, grads, strict=True) if g is not None}


def _masked(logits: Tensor, batch: Batch) -> Tensor:
    if batch.avail is None:
        return logits
    return logits.masked_fill(~batch.avail[:, : logits.shape[1]], torch.finfo(logits.dtype).min)


def perturb(batch: Batch, agent: int, eps: float | str) -> own.Change:
    """A change of logits [B,T,N,A] that perturbs all agents' policies but ``agent``'s."""

    def change(out: Tensor) -> Tensor:
        if not own.fits(out, batch) or eps == 0.0:
            return out
        pi = _masked(out, batch).softmax(-1)
        avail = None if batch.avail is None else batch.avail[:, : out.shape[1]].flatten(0, 2)
        flat = pi.detach().flatten(0, 2)
        new = exact.greedy(flat) if isinstance(eps, str) else (1 - eps) * flat + eps * exact.uniform(flat, avail)
        logits = new.clamp(min=1e-30).log().reshape(out.shape)
        mine = (torch.arange(out.shape[2], device=out.device) == agent).unsqueeze(-1)
        return torch.where(mine, out, logits)

    return change
