"""Simple play that knows what it needs: the upper reference lines of the suites ``mpe`` and ``vmas``."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from harness.suite import VecEnv
from harness.types import Step

Policy = Callable[[VecEnv, Step], Tensor]


def scripted(suite: str, task: str) -> Policy | None:
    """The script for a task, for environments stepped in this process; None where there is none."""
    if suite == "mpe":
        return particles(task)
    if suite == "vmas" and task in ("balance", "transport", "wheel"):
        return heuristic(task)
    if suite == "vmas" and task in ("navigation", "simple_spread"):
        return walkers(task)
    return None


# -- mpe ----------------------------------------------------------------------------------------------------------


def walk(offset: np.ndarray, velocity: np.ndarray) -> int:
    """The discrete move that brings an agent at ``velocity`` closest to where it wants to be, ``offset`` away."""
    pushes = np.array([[0, 0], [-1, 0], [1, 0], [0, -1], [0, 1]], float)
    # mpe2: velocity <- 0.75 velocity + 5 push * 0.1 a step; looking two steps ahead damps the swing.
    ahead = velocity * (0.75 + 0.75**2) * 0.1 + pushes * 0.5 * (1 + 0.75) * 0.1
    return int(np.linalg.norm(offset - ahead, axis=1).argmin())


def spread(obs: np.ndarray) -> list[int]:
    """Each agent walks to the landmark that the best assignment gives it."""
    positions, velocities = obs[:, 2:4], obs[:, 0:2]
    landmarks = obs[0, 4:10].reshape(3, 2) + positions[0]
    distance = np.linalg.norm(positions[:, None] - landmarks[None], axis=-1)
    _, goal = linear_sum_assignment(distance)
    return [walk(landmarks[goal[i]] - positions[i], velocities[i]) for i in range(3)]


def speaker_listener(obs: np.ndarray, goal: int) -> list[int]:
    """The listener walks to the landmark that the speaker means."""
    return [0, walk(obs[1, 2 + 2 * goal : 4 + 2 * goal], obs[1, 0:2])]


def reference(obs: np.ndarray, goals: list[int]) -> list[int]:
    """Each agent walks to the landmark that the other one knows to be its own; what is said does not matter."""
    return [walk(obs[i, 2 + 2 * goals[i] : 4 + 2 * goals[i]], obs[i, 0:2]) for i in range(2)]


def particles(task: str) -> Policy | None:
    """Scripts for the games with discrete actions, which read the goals off the world."""
    if task.endswith("_continuous"):
        return None

    def act(env: Any, step: Step) -> Tensor:
        actions = []
        for single, obs in zip(env._envs, step.obs.numpy()):
            world = single._env.unwrapped.world
            if task == "simple_spread":
                actions.append(spread(obs))
            elif task == "simple_speaker_listener":
                actions.append(speaker_listener(obs, world.landmarks.index(world.agents[0].goal_b)))
            else:
                goals = [world.landmarks.index(world.agents[1 - i].goal_b) for i in range(2)]
                actions.append(reference(obs, goals))
        return torch.tensor(actions)

    return act


# -- vmas ---------------------------------------------------------------------------------------------------------


def heuristic(task: str) -> Policy:
    """The package's own heuristic."""
    policy = importlib.import_module(f"vmas.scenarios.{task}").HeuristicPolicy(continuous_action=True)

    def act(env: VecEnv, step: Step) -> Tensor:
        return torch.stack([policy.compute_action(step.obs[:, i], u_range=1.0) for i in range(env.spec.n_agents)], 1)

    return act


def walkers(task: str) -> Policy:
    """Straight to the own goal, braking; in simple_spread to the landmark of the best assignment."""

    def act(env: VecEnv, step: Step) -> Tensor:
        velocity = step.obs[..., 2:4]
        if task == "navigation":
            offset = -step.obs[..., 4:6]
        else:
            landmarks = step.obs[..., 4:10].unflatten(-1, (3, 2))  # [E,N,L,2], from each agent
            goals = [linear_sum_assignment(distance)[1] for distance in landmarks.norm(dim=-1).numpy()]
            chosen = torch.as_tensor(np.stack(goals))[..., None, None].expand(-1, -1, 1, 2)
            offset = landmarks.gather(2, chosen).squeeze(2)
        return (4 * offset - 2 * velocity).clamp(-1, 1)

    return act
