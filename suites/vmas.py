"""VMAS (Bettini et al. 2022): tasks of several robots on a plane, all environments in one batch of tensors."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor

from harness.errors import unknown
from harness.seeds import reseed
from harness.suite import Budget, Task, VecEnv
from harness.types import Continuous, Discrete, Spec, Step
from suites.adapters.packages import quiet_import, versions

DISCRETE = "_discrete"
LIMIT = 100
"""Steps an episode, BenchMARL's."""


class _Scenario(NamedTuple):
    arguments: Mapping[str, Any]  # those of BenchMARL's tasks
    random: float  # mean return of uniform random play, continuous actions
    scripted: float  # mean return of a script, continuous actions
    upper: float
    """What counts as 1: with shaping by distance what the whole way to the goal earns (its mean over 1,024 starts), in
    wheel the exact best, in simple_spread the script's."""
    doc: str


SCENARIOS: Mapping[str, _Scenario] = {
    "balance": _Scenario(
        {"n_agents": 4, "package_mass": 5}, -5.7, 13.0, 155.5, "carry a ball on a line up to its goal"
    ),
    "navigation": _Scenario(
        {"n_agents": 3, "shared_rew": False}, -0.5, -1.4, 1.1, "each to its own goal without colliding"
    ),
    "transport": _Scenario({"n_agents": 4, "package_mass": 50}, 0.0, 5.1, 107.6, "push a heavy package to its goal"),
    "wheel": _Scenario({"n_agents": 4, "line_length": 1}, -5.0, -4.0, 0.0, "turn a heavy bar at a given speed"),
    "simple_spread": _Scenario({"n_agents": 3}, -588.0, -131.0, -131.0, "cover the landmarks without colliding"),
}
"""Source of the figures: ``python -m benchmarks.environments bounds vmas``, 1,024 episodes each."""


@dataclass(frozen=True)
class VMAS:
    """VMAS: robots on a plane, vectorised on the trial's device, continuous and discrete."""

    name: ClassVar[str] = "vmas"
    budgets: ClassVar[Mapping[str, Budget]] = {
        "smoke": Budget(env_steps=20_000, eval_every=10_000, eval_episodes=8, final_episodes=16, seeds=2),
        "quick": Budget(env_steps=600_000, eval_every=60_000, eval_episodes=32, final_episodes=128, seeds=3),
        "paper": Budget(env_steps=10_000_000, eval_every=120_000, eval_episodes=32, final_episodes=320, seeds=10),
    }
    algorithms: ClassVar[tuple[str, ...]] = ("mcem", "vdn", "qmix", "facmac", "ippo")
    default_tasks: ClassVar[tuple[str, ...]] = ("balance",)

    def tasks(self) -> Mapping[str, Task]:
        """Each scenario with continuous actions and, under its name with "_discrete", with discrete ones."""
        found = {}
        for scenario, data in SCENARIOS.items():
            for name, action in ((scenario, "continuous"), (scenario + DISCRETE, "discrete")):
                references = {"random": data.random, "scripted": data.scripted}
                found[name] = Task(name, action, bounds=(data.random, data.upper), references=references, doc=data.doc)
        return found

    def engine_version(self) -> str:
        """Version of the package that computes the physics."""
        return versions("vmas", "vmas")

    def make(self, task: str, num_envs: int, device: torch.device) -> VecEnv:
        """The environments of one task. Raises ``UserError`` for an unknown task or a missing package."""
        if task not in self.tasks():
            raise unknown("task of suite vmas", task, self.tasks())
        self.engine_version()
        return VMASVecEnv(task.removesuffix(DISCRETE), num_envs, device, continuous=not task.endswith(DISCRETE))

    def spec(self, task: str) -> Spec:
        """What methods may know of ``task``."""
        return self.make(task, 1, torch.device("cpu")).spec


class VMASVecEnv:
    """E environments in one VMAS batch. The team's reward is the mean over agents; the state is all observations."""

    def __init__(self, scenario: str, num_envs: int, device: torch.device, *, continuous: bool) -> None:
        """``scenario`` is one of ``SCENARIOS``."""
        self.num_envs, self._device = num_envs, device
        self._env = quiet_import("vmas").make_env(
            scenario=scenario,
            num_envs=num_envs,
            device=device,
            continuous_actions=continuous,
            max_steps=LIMIT,
            terminated_truncated=True,
            **SCENARIOS[scenario].arguments,
        )
        self._random = _Streams(type(self._env).vmas_random_state, device)
        sizes = [int(space.shape[0]) for space in self._env.observation_space]
        self._pad = [max(sizes) - size for size in sizes]
        n = len(sizes)
        action = self._bounds() if continuous else Discrete(max(int(space.n) for space in self._env.action_space))
        self.spec = Spec(n, max(sizes), n * max(sizes), LIMIT, action)
        self._avail = None if continuous else self._legal(action.dim)
        self._last: Step | None = None

    def reset(self, seed: int) -> Step:
        """New episodes from ``seed``; the program's own generators are left alone."""
        self._random.seed(seed)
        with self._random.inside():
            observations = self._env.reset()
        no = torch.zeros(self.num_envs, dtype=torch.bool, device=self._device)
        self._last = self._step(self._stack(observations), torch.zeros(self.num_envs, device=self._device), no, no)
        return self._last

    def step(self, action: Tensor) -> Step:
        """Play ``action`` [E,N] int64 | [E,N,U] float32. All move on; finished ones are shown as they ended."""
        last = self._last
        if last is None:
            raise RuntimeError("reset comes before step")
        with self._random.inside():
            observations, rewards, terminated, truncated, _ = self._env.step(self._native(action))
        done = last.terminated | last.truncated
        obs = torch.where(done[:, None, None], last.obs, self._stack(observations))
        reward = torch.where(done, torch.zeros_like(last.reward), self._team(rewards))
        ended = torch.where(done, last.terminated, terminated)
        self._last = self._step(obs, reward, ended, torch.where(done, last.truncated, truncated & ~terminated))
        return self._last

    def close(self) -> None:
        """Nothing is held."""

    def _step(self, obs: Tensor, reward: Tensor, terminated: Tensor, truncated: Tensor) -> Step:
        alive = torch.ones(self.num_envs, self.spec.n_agents, dtype=torch.bool, device=self._device)
        return Step(obs, obs.flatten(1), self._avail, alive, reward, terminated, truncated, {})

    def _stack(self, observations: list[Tensor]) -> Tensor:
        padded = [torch.nn.functional.pad(o, (0, pad)) for o, pad in zip(observations, self._pad)]
        return torch.stack(padded, 1)

    def _team(self, rewards: list[Tensor]) -> Tensor:
        # Some scenarios give [E,1].
        return torch.stack([reward.reshape(self.num_envs) for reward in rewards]).mean(0)

    def _bounds(self) -> Continuous:
        """The common box; where agents' forces differ, all play in [-1, 1] of their own."""
        spaces = self._env.action_space
        highs = {float(high) for space in spaces for high in space.high}
        self._scale = [torch.as_tensor(space.high, device=self._device) for space in spaces]
        if len(highs) == 1:
            self._scale = [torch.ones_like(scale) for scale in self._scale]
        high = highs.pop() if len(highs) == 1 else 1.0
        return Continuous(-high, high, max(int(space.shape[0]) for space in spaces))

    def _legal(self, n_actions: int) -> Tensor:
        own = torch.tensor([int(space.n) for space in self._env.action_space], device=self._device)
        legal = torch.arange(n_actions, device=self._device) < own[:, None]
        return legal.expand(self.num_envs, -1, -1)

    def _native(self, action: Tensor) -> list[Tensor]:
        if isinstance(self.spec.action, Discrete):
            return [action[:, i, None].clone() for i in range(self.spec.n_agents)]
        low, high = self.spec.action.low, self.spec.action.high
        return [action[:, i, : len(s)].clamp(low, high) * s for i, s in enumerate(self._scale)]


class _Streams:
    """Random numbers of one batch. VMAS keeps one set for all batches of a process, and draws on CUDA from the global
    generator; here each batch has its own, so that evaluating does not change what is trained.
    """

    def __init__(self, shared: list[Any], device: torch.device) -> None:
        self._shared, self._device = shared, device
        self._own: list[Any] = list(shared)
        self._cuda: Tensor | None = None

    def seed(self, seed: int) -> None:
        words = np.random.SeedSequence(seed).generate_state(4)
        # VMAS restores the states of numpy's legacy generator, so that is the kind to make.
        legacy = np.random.RandomState(words)
        torchs = reseed(torch.Generator(), seed)
        self._own = [torchs.get_state(), legacy.get_state(), random.Random(seed).getstate()]
        if self._device.type == "cuda":
            self._cuda = torch.Generator(self._device).manual_seed(seed).get_state()

    @contextlib.contextmanager
    def inside(self) -> Iterator[None]:
        """VMAS draws from this batch's streams; whatever others had there is put back."""
        others = list(self._shared)
        outside = torch.cuda.get_rng_state(self._device) if self._cuda is not None else None
        self._shared[:] = self._own
        if self._cuda is not None:
            torch.cuda.set_rng_state(self._cuda, self._device)
        try:
            yield
            self._own = list(self._shared)
            if self._cuda is not None:
                self._cuda = torch.cuda.get_rng_state(self._device)
        finally:
            self._shared[:] = others
            if outside is not None:
                torch.cuda.set_rng_state(outside, self._device)
