"""Whole episodes from a ``VecEnv``."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from harness.suite import EpisodeVoid, VecEnv
from harness.types import Action, Batch, Step

Act = Callable[[Step, Any, int], Action]
"""(step, memory, environment steps played in this round so far) -> action; memory is None at the first step."""


class Episodes(NamedTuple):
    """What E whole episodes came to."""

    returns: Tensor  # [E] float64, undiscounted
    length: Tensor  # [E] int64, steps
    outcome: dict[str, Tensor]  # name -> [E] float32

    def means(self) -> dict[str, Tensor]:
        """Over the E episodes, a scalar each: "return", "length" and every outcome."""
        found = {"return": self.returns, "length": self.length.float(), **self.outcome}
        return {name: values.mean() for name, values in found.items()}


class _Recorder:
    """Moments and transitions as they come, stacked at the end."""

    def __init__(self) -> None:
        self.moments: list[Step] = []
        self.actions: list[Action] = []
        self.running: list[Tensor] = []

    def batch(self) -> Batch:
        """The episodes; padding is cleaned."""
        moments, after = self.moments, self.moments[1:]
        first = moments[0]

        def stack(tensors: list[Tensor]) -> Tensor:
            return torch.stack(tensors, 1)

        mask = stack(self.running)
        return Batch(
            obs=stack([m.obs for m in moments]),
            state=stack([m.state for m in moments]),
            avail=None if first.avail is None else stack([m.avail for m in moments if m.avail is not None]),
            alive=stack([m.alive for m in moments]),
            action=stack([a.action for a in self.actions]),
            log_prob=stack([a.log_prob for a in self.actions]),
            reward=stack([m.reward for m in after]),
            terminated=stack([m.terminated for m in after]).float(),
            mask=mask.float(),
        ).clean()


def seen(step: Step) -> Step:
    """``step`` as agents see it: the dead see nothing, whatever the environment says."""
    return step._replace(obs=torch.where(step.alive.unsqueeze(-1), step.obs, torch.zeros_like(step.obs)))


def check(step: Step, moment: int) -> None:
    """Everyone, dead or idle too, has something to do: without a legal action a policy is undefined (NaN)."""
    if step.avail is None or bool(step.avail.any(-1).all()):
        return
    environment, agent = (~step.avail.any(-1)).nonzero()[0].tolist()
    raise RuntimeError(f"agent {agent} of environment {environment} has no legal action at step {moment}")


@torch.no_grad()
def episodes(env: VecEnv, act: Act, seed: int, keep: bool = True) -> tuple[Episodes, Batch | None]:
    """Play one whole episode in every environment, finished ones idling until the last is done.

    Every environment gives exactly one episode, however long: no bias to short ones. ``keep`` False leaves out the
    batch. A round that an environment declares void is begun anew, with another seed that follows from ``seed``.
    """
    following = seed
    for attempt in itertools.count(1):
        try:
            return _episodes(env, act, following, keep)
        except EpisodeVoid:
            branch = np.random.SeedSequence(seed, spawn_key=(attempt,))
            following = int(branch.generate_state(1, np.uint64)[0] >> np.uint64(1))
    raise AssertionError("the count has no end")


def _episodes(env: VecEnv, act: Act, seed: int, keep: bool) -> tuple[Episodes, Batch | None]:
    step = seen(env.reset(seed))
    recorder = _Recorder() if keep else None
    running = torch.ones_like(step.terminated)
    returns = torch.zeros_like(step.reward, dtype=torch.float64)
    outcome = {name: torch.zeros_like(step.outcome[name]) for name in env.spec.outcomes}
    length = torch.zeros_like(step.reward, dtype=torch.int64)
    memory: Any = None
    played = 0
    if recorder:
        recorder.moments.append(step)
    for moment in range(env.spec.episode_limit):
        check(step, moment)
        action = act(step, memory, played)
        memory = action.memory
        step = seen(env.step(action.action))
        returns += torch.where(running, step.reward, torch.zeros_like(step.reward))
        length += running
        played += int(running.sum())
        if recorder:
            recorder.actions.append(action)
            recorder.running.append(running)
            recorder.moments.append(step)
        over = step.terminated | step.truncated
        outcome = {name: torch.where(running & over, step.outcome[name], value) for name, value in outcome.items()}
        running = running & ~over
        if not bool(running.any()):
            break
    else:
        raise RuntimeError(f"an episode is longer than the task's limit of {env.spec.episode_limit} steps")
    return Episodes(returns, length, outcome), recorder.batch() if recorder else None
