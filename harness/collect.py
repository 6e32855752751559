"""Whole episodes from a ``VecEnv``."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from harness import contract
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


class _Record:
    """What E environments did, as it comes; put together at the end; ``keep`` False: no batch, only the sums."""

    def __init__(self, first: Step, keep: bool) -> None:
        self.keep = keep
        self.moments: list[Step] = [first] if keep else []
        self.actions: list[Action] = []
        self.running: list[Tensor] = []  # before each step
        self.rewards: list[Tensor] = []
        self.outcomes: list[dict[str, Tensor]] = []

    def add(self, running: Tensor, action: Action, after: Step) -> None:
        """``action`` was played where ``running``, and led to ``after``."""
        self.running.append(running)
        self.rewards.append(after.reward)
        self.outcomes.append(after.outcome)
        if self.keep:
            self.actions.append(action)
            self.moments.append(after)

    def finish(self, outcomes: tuple[str, ...]) -> tuple[Episodes, Batch | None]:
        """Sums of what was paid, ``outcomes`` as they were when each environment finished, and the batch if kept."""
        mask, reward = torch.stack(self.running, 1), torch.stack(self.rewards, 1)
        length = mask.sum(1)
        last = (length - 1).unsqueeze(1)
        ends = {name: torch.stack([o[name] for o in self.outcomes], 1).gather(1, last).squeeze(1) for name in outcomes}
        returns = torch.where(mask, reward, torch.zeros_like(reward)).double().sum(1)
        return Episodes(returns, length, ends), self._batch(mask, reward) if self.keep else None

    def _batch(self, mask: Tensor, reward: Tensor) -> Batch:
        """The episodes; padding is cleaned."""
        moments, actions = self.moments, self.actions
        avail = [m.avail for m in moments if m.avail is not None]
        return Batch(
            obs=torch.stack([m.obs for m in moments], 1),
            state=torch.stack([m.state for m in moments], 1),
            avail=torch.stack(avail, 1) if avail else None,
            alive=torch.stack([m.alive for m in moments], 1),
            action=torch.stack([a.action for a in actions], 1),
            log_prob=torch.stack([a.log_prob for a in actions], 1),
            reward=reward,
            terminated=torch.stack([m.terminated for m in moments[1:]], 1).float(),
            mask=mask.float(),
        ).clean()


def seen(step: Step) -> Step:
    """``step`` as agents see it: the dead see nothing, whatever the environment says."""
    return step._replace(obs=step.obs.masked_fill(~step.alive.unsqueeze(-1), 0.0))


def check(step: Step, moment: int) -> None:
    """Everyone, dead or idle too, has something to do: without a legal action a policy is undefined (NaN)."""
    if step.avail is None or bool(step.avail.any(-1).all()):
        return
    environment, agent = (~step.avail.any(-1)).nonzero()[0].tolist()
    raise RuntimeError(f"agent {agent} of environment {environment} has no legal action at step {moment}")


VOID = 2**31
"""Of seeds of rounds begun anew: apart from those that environments spawn from a round's seed, which count from 0."""


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
            branch = np.random.SeedSequence(seed, spawn_key=(VOID, attempt))
            following = int(branch.generate_state(1, np.uint64)[0] >> np.uint64(1))
    raise AssertionError("the count has no end")


def _episodes(env: VecEnv, act: Act, seed: int, keep: bool) -> tuple[Episodes, Batch | None]:
    step = env.reset(seed)
    contract.step(step, env.spec, env.num_envs)
    step = seen(step)
    record = _Record(step, keep)
    running = torch.ones_like(step.terminated)
    left, played, memory = env.num_envs, 0, None
    for moment in range(env.spec.episode_limit):
        check(step, moment)
        action = act(step, memory, played)
        if not moment:
            contract.action(action, env.spec, env.num_envs)
        memory = action.memory
        step = seen(env.step(action.action))
        record.add(running, action, step)
        played += left
        running = running & ~(step.terminated | step.truncated)
        left = int(running.sum())
        if not left:
            break
    else:
        raise RuntimeError(f"an episode is longer than the task's limit of {env.spec.episode_limit} steps")
    return record.finish(env.spec.outcomes)
