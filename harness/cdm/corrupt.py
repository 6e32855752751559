"""Teammate injection: one agent behaves badly for a while, ``corrupt=agent:0,from:1e5,to:2e5,policy:uniform``.

The control is the same trial without it; what the others lost is measured by ``harness.cdm.play.amplification``.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor

from harness.errors import UserError, unknown
from harness.types import Action, Continuous, Discrete, Spec, Step

POLICIES = ("uniform",)
EXAMPLE = "corrupt=agent:0,from:1e5,to:2e5,policy:uniform"


@dataclass(frozen=True)
class Corruption:
    """Which agent, over which environment steps, and what it does instead."""

    agent: int
    """Index of the agent, from 0."""
    start: int
    """First environment step at which it behaves badly."""
    end: int
    """First environment step at which it no longer does."""
    policy: str = "uniform"
    """"uniform": uniform over its legal actions, or over its box."""

    def __str__(self) -> str:
        return f"agent:{self.agent},from:{self.start},to:{self.end},policy:{self.policy}"

    def settings(self) -> dict[str, int | str]:
        """Every field, as JSON values."""
        return {f.name: getattr(self, f.name) for f in fields(self)}

    def active(self, env_steps: int) -> bool:
        """It behaves badly at this step of training."""
        return self.start <= env_steps < self.end

    def check(self, spec: Spec) -> None:
        """Raises ``UserError`` when the task has no such agent."""
        if self.agent >= spec.n_agents:
            raise UserError(f"corrupt: agent:{self.agent}, but the task has agents 0 to {spec.n_agents - 1}")


def parse(text: str) -> Corruption | None:
    """``agent:0,from:1e5,to:2e5,policy:uniform`` -> Corruption; None for "" and "none". ``UserError`` otherwise."""
    if text.strip().lower() in ("", "none", "off"):
        return None
    found: dict[str, str] = {}
    for part in text.split(","):
        key, colon, value = (x.strip() for x in part.partition(":"))
        if not colon or not value:
            raise UserError(f"corrupt: {part.strip()!r} is not key:value; like {EXAMPLE}")
        if key not in ("agent", "from", "to", "policy"):
            raise unknown("key of corrupt", key, ("agent", "from", "to", "policy"))
        if key in found:
            raise UserError(f"corrupt: {key!r} is given twice")
        found[key] = value
    missing = [key for key in ("agent", "from", "to") if key not in found]
    if missing:
        raise UserError(f"corrupt: {' and '.join(missing)} missing; like {EXAMPLE}")
    policy = found.get("policy", "uniform")
    if policy not in POLICIES:
        raise unknown("policy of corrupt", policy, POLICIES)
    agent, start, end = (_whole(key, found[key]) for key in ("agent", "from", "to"))
    if end <= start:
        raise UserError(f"corrupt: to:{found['to']} is not after from:{found['from']}")
    return Corruption(agent, start, end, policy)


def _whole(key: str, text: str) -> int:
    try:
        value = float(text.replace("_", ""))
    except ValueError:
        value = -1.0
    if not (value >= 0 and value.is_integer()):
        raise UserError(f"corrupt: {key}:{text} is not a whole number of 0 or more")
    return int(value)


def corrupted(
    action: Action, step: Step, env_steps: int, corruption: Corruption | None, spec: Spec, rng: torch.Generator
) -> Action:
    """``action`` with the corrupted agent's part redrawn while the corruption is active; else the same object.

    ``log_prob`` becomes that of the policy that really drew it, so that off-policy corrections stay right. Draws come
    from ``rng`` alone, on ``step``'s device; outside the window none is drawn. Where the method
    remembers its action, it remembers the one played (``remembered``).
    """
    if corruption is None or not corruption.active(env_steps):
        return action
    drawn, log_prob = uniform_action(step, corruption.agent, spec, rng)
    played, probs = action.action.clone(), action.log_prob.clone()
    played[:, corruption.agent], probs[:, corruption.agent] = drawn.to(played.dtype), log_prob.to(probs.dtype)
    return Action(played, probs, remembered(action.memory, action.action, played))


def uniform_action(step: Step, agent: int, spec: Spec, rng: torch.Generator) -> tuple[Tensor, Tensor]:
    """Uniform over legal actions, or over the box: [E] int64 | [E,U], and its log probability (density) [E]."""
    kind = spec.action
    if isinstance(kind, Discrete):
        assert step.avail is not None
        legal = step.avail[:, agent].float()
        return torch.multinomial(legal, 1, generator=rng).squeeze(-1), -legal.sum(-1).log()
    assert isinstance(kind, Continuous)
    shape = (len(step.obs), kind.size)
    unit = torch.rand(shape, generator=rng, device=step.obs.device)
    density = -kind.size * torch.log(torch.tensor(kind.high - kind.low))
    return kind.low + (kind.high - kind.low) * unit, density.to(step.obs.device).expand(shape[0])


def remembered(memory: object, before: Tensor, played: Tensor) -> object:
    """``memory`` with every tensor that is the action itself replaced by what was played in its place.

    Recurrent agents feed on their last action; one that remembered an action it did not play would see in acting what
    it never sees in learning. Named tuples, tuples, lists and dicts are searched; anything else is left as it is.
    """
    if isinstance(memory, Tensor):
        same = memory is before or (memory.shape == before.shape and memory.dtype == before.dtype)
        return played if same and (memory is before or torch.equal(memory, before)) else memory
    if isinstance(memory, tuple):
        parts: list[Any] = [remembered(part, before, played) for part in memory]
        return type(memory)(*parts) if hasattr(memory, "_fields") else tuple(parts)
    if isinstance(memory, list):
        return [remembered(part, before, played) for part in memory]
    if isinstance(memory, dict):
        return {key: remembered(part, before, played) for key, part in memory.items()}
    return memory
