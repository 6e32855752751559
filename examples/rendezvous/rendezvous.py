"""A suite as a package of its own: agents on a line that must meet. Nothing of the harness is changed or copied."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from harness.errors import unknown
from harness.seeds import reseed
from harness.suite import Budget, Task
from harness.types import Discrete, Spec, Step

AGENTS = {"two": 2, "three": 3, "five": 5}


@dataclass(frozen=True)
class Rendezvous:
    """Agents on a line of cells that must all stand in one; each sees its own cell and on which side the others are."""

    cells: int = 9
    """Length of the line."""

    name: ClassVar[str] = "rendezvous"
    budgets: ClassVar[Mapping[str, Budget]] = {
        "smoke": Budget(env_steps=2_000, eval_every=1_000, eval_episodes=16, final_episodes=32, seeds=2),
        "quick": Budget(env_steps=50_000, eval_every=5_000, eval_episodes=32, final_episodes=320, seeds=5),
        "paper": Budget(env_steps=200_000, eval_every=10_000, eval_episodes=32, final_episodes=320, seeds=10),
    }
    algorithms: ClassVar[tuple[str, ...]] = ("vdn", "qmix", "ippo")
    default_tasks: ClassVar[tuple[str, ...]] = ("two", "three")

    def tasks(self) -> Mapping[str, Task]:
        return {name: Task(name, "discrete", "met", bounds=(0.0, 1.0), doc=f"{n} agents") for name, n in AGENTS.items()}

    def engine_version(self) -> str:
        return "rendezvous 1.0"

    def spec(self, task: str) -> Spec:
        n = AGENTS[task]
        return Spec(n, obs_dim=2, state_dim=n, episode_limit=2 * self.cells, action=Discrete(3), outcomes=("met",))

    def make(self, task: str, num_envs: int, device: torch.device) -> Line:
        if task not in AGENTS:
            raise unknown("task of rendezvous", task, AGENTS)
        return Line(self.spec(task), self.cells, num_envs, device)


class Line:
    """E lines at once. Actions: 0 left, 1 stay, 2 right."""

    def __init__(self, spec: Spec, cells: int, num_envs: int, device: torch.device) -> None:
        self.spec, self.num_envs = spec, num_envs
        self._last, self._device = cells - 1, device
        self._rng = torch.Generator(device)
        self._avail = torch.ones(num_envs, spec.n_agents, 3, dtype=torch.bool, device=device)
        self._alive = torch.ones(num_envs, spec.n_agents, dtype=torch.bool, device=device)

    def reset(self, seed: int) -> Step:
        """Everyone somewhere, drawn from ``seed`` alone, but not all in one cell already."""
        reseed(self._rng, seed)
        shape = (self.num_envs, self.spec.n_agents)
        self._cell = torch.randint(0, self._last + 1, shape, generator=self._rng, device=self._device)  # [E,N]
        self._cell[:, 0] += self._together() * torch.where(self._cell[:, 0] < self._last, 1, -1)
        self._met = torch.zeros(self.num_envs, dtype=torch.bool, device=self._device)
        self._time = torch.zeros(self.num_envs, dtype=torch.int64, device=self._device)
        return self._moment(torch.zeros(self.num_envs, device=self._device))

    def step(self, action: Tensor) -> Step:
        """Move by ``action`` [E,N]; pay 1 where all have just met. Lines that are finished stay as they are."""
        running = ~self._met & (self._time < self.spec.episode_limit)
        moved = (self._cell + action - 1).clamp(0, self._last)
        self._cell = torch.where(running.unsqueeze(-1), moved, self._cell)
        self._time = self._time + running.long()
        reward = (running & self._together()).float()
        self._met = self._met | (reward > 0)
        return self._moment(reward)

    def close(self) -> None:
        pass

    def _together(self) -> Tensor:
        return (self._cell == self._cell[:, :1]).all(-1)

    def _moment(self, reward: Tensor) -> Step:
        here = self._cell.float()
        others = (here.sum(-1, keepdim=True) - here) / (self.spec.n_agents - 1)
        obs = torch.stack([here / self._last, (others - here).sign()], -1)  # [E,N,2]
        truncated = ~self._met & (self._time >= self.spec.episode_limit)
        outcome = {"met": self._met.float()}
        return Step(obs, here / self._last, self._avail, self._alive, reward, self._met, truncated, outcome)
