"""What a suite tells of a task's true values, where it can: read by name, so any suite may offer it.

joint_values(task) -> [S,A,...,A]   true value of every state and joint action (the payoff in games of one step)
every_state(task) -> Step           S environments, one in each state, in the same order
payoff(task) -> [S,A,...,A]         reward of every state and joint action
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from harness.cdm import exact
from harness.errors import UserError
from harness.types import Batch, Discrete, Spec, Step


class Truth(NamedTuple):
    """An enumerable task, known."""

    values: Tensor  # [S,A,...,A] float64
    rewards: Tensor  # the same shape
    step: Step  # of S environments
    one_step: bool  # every episode is a single joint action


def of(suite: Any, task: str, spec: Spec, limit: int) -> Truth | str:
    """The truth of ``task``, or why there is none. ``limit``: most entries of a table."""
    if not isinstance(spec.action, Discrete):
        return "its actions are continuous: joint actions cannot be enumerated"
    if spec.action.n**spec.n_agents > limit:
        return f"{spec.action.n}^{spec.n_agents} joint actions are more than {limit}"
    if not all(hasattr(suite, name) for name in ("joint_values", "every_state", "payoff")):
        return "the suite does not know its true joint values"
    try:
        values, rewards, step = suite.joint_values(task), suite.payoff(task), suite.every_state(task)
    except UserError as error:
        return str(error)
    if values.numel() > limit:
        return f"a table of {values.numel()} values is more than {limit}"
    return Truth(values.double(), rewards.double(), step, spec.episode_limit == 1)


def locate(truth: Truth, state: Tensor) -> Tensor | None:
    """The truth's index of each row of ``state`` [S,G]; None when one is none of its states."""
    same = (state.unsqueeze(1) == truth.step.state.to(state.device).unsqueeze(0)).all(-1)
    return same.int().argmax(1) if bool(same.any(1).all()) else None


def joint_actions(agents: int, actions: int, device: torch.device | str = "cpu") -> Tensor:
    """Every joint action in row-major order, [A^n,n] int64."""
    codes = torch.arange(actions**agents, device=device)
    powers = actions ** torch.arange(agents - 1, -1, -1, device=device)
    return (codes.unsqueeze(-1) // powers) % actions


def one_step_batch(truth: Truth, action: Tensor, which: Tensor, device: torch.device | str) -> Batch:
    """Episodes of one step, [R]: ``action`` [R,n] played in states ``which`` [R], with their true rewards."""
    step = truth.step

    def twice(x: Tensor) -> Tensor:
        return x[which].to(device).unsqueeze(1).repeat_interleave(2, 1)

    rows = len(action)
    reward = truth.rewards[(which, *action.unbind(-1))].float()
    ones = torch.ones(rows, 1, device=device)
    return Batch(
        obs=twice(step.obs),
        state=twice(step.state),
        avail=None if step.avail is None else twice(step.avail),
        alive=twice(step.alive),
        action=action.to(device).unsqueeze(1),
        log_prob=torch.zeros(rows, 1, action.shape[1], device=device),
        reward=reward.to(device).unsqueeze(1),
        terminated=ones,
        mask=ones.clone(),
    )


def ends(truth: Truth, actions: Tensor) -> tuple[bool, bool]:
    """(optimal, shadowed) of greedy joint actions [S,n] in a game of one step.

    Optimal: the best in every state. Shadowed: not that, yet in every state no agent alone can gain (a pure Nash
    equilibrium), the mark of relative overgeneralisation (Wiegand 2003; Wei and Luke 2016).
    """
    optimal = not bool(exact.igm_violations(truth.values, actions).any())
    here = truth.values[(torch.arange(len(actions)), *actions.unbind(-1))]
    stable = True
    for i in range(actions.shape[1]):
        others = [actions[:, j] for j in range(actions.shape[1]) if j != i]
        alone = truth.values.movedim(1 + i, -1)[(torch.arange(len(actions)), *others)]
        stable = stable and bool((alone.max(-1).values <= here + exact.TIE * alone.abs().max(-1).values).all())
    return optimal, stable and not optimal
