"""Degradation: what one agent's bad behaviour costs the team, at once and, through learning, afterwards."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import nn

from harness.algorithm import Algorithm
from harness.cdm.corrupt import remembered, uniform_action
from harness.collect import Act, episodes
from harness.suite import VecEnv
from harness.types import Action, Step


class Player(NamedTuple):
    """A trained team."""

    algorithm: Algorithm
    net: nn.ModuleDict
    env_steps: int = 0


def greedily(player: Player) -> Act:
    """The whole team as it is evaluated."""
    return lambda step, memory, played: player.algorithm.act(player.net, step, memory, player.env_steps, None)


def with_uniform(player: Player, agent: int, env: VecEnv, rng: torch.Generator) -> Act:
    """The team, but ``agent`` plays uniformly among its legal actions."""
    team = greedily(player)

    def act(step: Step, memory: Any, played: int) -> Action:
        found = team(step, memory, played)
        drawn, log_prob = uniform_action(step, agent, env.spec, rng)
        action, probs = found.action.clone(), found.log_prob.clone()
        action[:, agent], probs[:, agent] = drawn.to(action.dtype), log_prob
        return Action(action, probs, remembered(found.memory, found.action, action))

    return act


def paired(player: Player, agent: int, other: Player) -> Act:
    """The team, but ``agent`` acts as in ``other``'s team. Each keeps a memory of its own."""
    ours, theirs = greedily(player), greedily(other)

    def act(step: Step, memory: Any, played: int) -> Action:
        mine, its = memory if memory is not None else (None, None)
        a, b = ours(step, mine, played), theirs(step, its, played)
        action, probs = a.action.clone(), a.log_prob.clone()
        action[:, agent], probs[:, agent] = b.action[:, agent], b.log_prob[:, agent]
        kept = (remembered(a.memory, a.action, action), remembered(b.memory, b.action, action))
        return Action(action, probs, kept)

    return act


def mean_return(env: VecEnv, act: Act, seeds: Sequence[int]) -> float:
    """Mean undiscounted return of one episode an environment and seed."""
    values = [float(x) for seed in seeds for x in episodes(env, act, seed, keep=False)[0].returns]
    return math.fsum(values) / len(values)


def degradation(
    env: VecEnv, player: Player, seeds: Sequence[int], rng: torch.Generator, earlier: Player | None = None
) -> dict[str, float]:
    """Drops in mean return when one agent is replaced, over the same environment seeds.

    ``degradation/uniform`` and ``degradation/uniform_worst``: by uniform-random play, the mean over which agent, and
    the costliest one. ``degradation/earlier`` likewise by that agent's own policy of an ``earlier`` checkpoint.
    ``degradation/return`` is the whole team's return.
    """
    agents = range(env.spec.n_agents)
    whole = mean_return(env, greedily(player), seeds)
    drops = [whole - mean_return(env, with_uniform(player, i, env, rng), seeds) for i in agents]
    found = {
        "degradation/return": whole,
        "degradation/uniform": math.fsum(drops) / len(drops),
        "degradation/uniform_worst": max(drops),
    }
    if earlier is not None:
        lost = [whole - mean_return(env, paired(player, i, earlier), seeds) for i in agents]
        found["degradation/earlier"] = math.fsum(lost) / len(lost)
        found["degradation/earlier_worst"] = max(lost)
    return found


def amplification_factor(others: float, one: float) -> float:
    """Drop of the others / drop of the one; NaN where the one's misbehaviour cost nothing."""
    return others / one if one > 0 else math.nan


def amplification(
    env: VecEnv, control: Player, corrupted: Player, agent: int, seeds: Sequence[int], rng: torch.Generator
) -> dict[str, float]:
    """What an agent's bad behaviour during training did to its teammates, against the same seed without it.

    ``amplification/one``      what the misbehaviour itself costs: the drop when the agent plays uniformly in the
                               control team
    ``amplification/others``   the drop when the control's agent, a good partner, plays with the teammates that
                               learned beside the bad one
    ``amplification/factor``   others / one: 0 when the teammates learned on unharmed, 1 when as much was lost for
                               good as the misbehaviour cost while it lasted
    ``amplification/team``     the drop of the corrupted team as it is, against the control
    """
    whole = mean_return(env, greedily(control), seeds)
    one = whole - mean_return(env, with_uniform(control, agent, env, rng), seeds)
    others = whole - mean_return(env, paired(corrupted, agent, control), seeds)
    return {
        "amplification/one": one,
        "amplification/others": others,
        "amplification/factor": amplification_factor(others, one),
        "amplification/team": whole - mean_return(env, greedily(corrupted), seeds),
    }
