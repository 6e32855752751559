"""Environments that tests know everything about, importable by name in worker processes.

``Misbehaving`` obeys a plan given in a file, one line an order: "crash 3", "hang reset", ... each obeyed once, so that
the environment that takes its place behaves. Nothing here imports torch.
"""

from __future__ import annotations

import ctypes
import os
import random
import signal
import subprocess
import time
from pathlib import Path
from typing import ClassVar

import gymnasium
import numpy as np
from pettingzoo import AECEnv, ParallelEnv

from suites.adapters.single import Layout, Moment


class Misbehaving:
    """2 agents, 3 actions, 6 steps. Observation: [step, own action, draws of the global generators, of the seed's]."""

    layout = Layout(2, 4, 3, 6, n_actions=3, outcomes=("won",))

    def __init__(self, plan: str = "", ends: str = "truncated") -> None:
        self._plan, self._ends, self._steps = plan, ends, 0
        self._last, self._rng = np.zeros(2), np.random.default_rng()
        self._child: subprocess.Popen[bytes] | None = None
        self._obey("start")

    def reset(self, seed: int) -> Moment:
        self._rng, self._steps, self._last = np.random.default_rng(seed), 0, np.zeros(2)
        self._obey("reset")
        return self._moment(0.0, False)

    def step(self, action: np.ndarray) -> Moment:
        self._steps, self._last = self._steps + 1, action
        mask = self._obey(str(self._steps))
        return self._moment(float(action.sum()) + 1.0, self._steps == 6, mask)

    def close(self) -> None:
        self._obey("close")

    def _moment(self, reward: float, over: bool, mask: bool = True) -> Moment:
        obs = np.zeros((2, 4), np.float32)
        obs[:, 0], obs[:, 1] = self._steps, self._last
        obs[:, 2], obs[:, 3] = random.random() + np.random.random(), self._rng.random()  # noqa: NPY002
        avail = np.ones((2, 3), np.bool_)
        avail[1] = mask
        end, cut = over and self._ends == "terminated", over and self._ends == "truncated"
        return Moment(obs, obs[0, :3], avail, np.ones(2, np.bool_), reward, end, cut, (float(over),))

    def _obey(self, now: str) -> bool:
        """Do what the plan says for this moment; False: hand out an all-zero mask."""
        file = Path(self._plan) if self._plan else None
        if file is None or not file.exists():
            return True
        orders = file.read_text().splitlines()
        mine = next((order for order in orders if order.split()[1] == now), None)
        if mine is None:
            return True
        if not mine.endswith("always"):
            try:  # of several environments one obeys
                file.with_suffix(f".{mine.replace(' ', '_')}").touch(exist_ok=False)
            except FileExistsError:
                return True
        what = mine.split()[0]
        if what == "raise":
            raise ConnectionError("the game does not answer")
        if what == "crash":
            os.kill(os.getpid(), signal.SIGKILL)
        if what == "exit":
            os._exit(7)
        if what == "hang":
            time.sleep(1000)
        if what == "stuck":
            ctypes.PyDLL(None).sleep(1000)  # in C, with the interpreter's lock: no thread runs
        if what == "child":
            self._child = subprocess.Popen(["sleep", "1000"])
            file.with_suffix(".child").write_text(str(self._child.pid))
        return what != "mask"


class Leaving(ParallelEnv):
    """Three agents with 2, 3, 4 numbers to see and 2, 3, 4 actions. Agent k dies after step k+1, the last is cut at 5.

    Each living agent gets 1 a step, also the step it dies in; it sees its number times the step.
    """

    metadata: ClassVar = {"name": "leaving"}
    render_mode = None
    possible_agents = ("a", "b", "c")

    def __init__(self, masks: str = "", last: str = "truncated") -> None:
        self._masks, self._last, self._steps = masks, last, 0
        self.agents: list[str] = []
        self.acted: list[dict[str, int]] = []

    def observation_space(self, agent: str) -> gymnasium.Space:
        return gymnasium.spaces.Box(-9.0, 9.0, (2 + "abc".index(agent),))

    def action_space(self, agent: str) -> gymnasium.Space:
        return gymnasium.spaces.Discrete(2 + "abc".index(agent), start=1 if agent == "b" else 0)

    def reset(self, seed: int | None = None, options: object = None) -> tuple[dict, dict]:
        self.agents, self._steps, self.acted = ["c", "a", "b"], 0, []  # another order than possible_agents
        return self._see(self.agents), self._infos(self.agents)

    def step(self, actions: dict[str, int]) -> tuple[dict, dict, dict, dict, dict]:
        self.acted.append(actions)
        self._steps += 1
        present = list(self.agents)
        ended = {a: self._steps == "abc".index(a) + 1 and a != "c" for a in present}
        over = self._steps == 5
        cut = dict.fromkeys(present, over and self._last == "truncated")
        ended |= {a: ended[a] or (over and self._last == "terminated") for a in present}
        self.agents = [a for a in present if not ended[a] and not cut[a]]
        rewards = dict.fromkeys(present, 1.0)
        return self._see(present), rewards, ended, cut, self._infos(present)

    def _see(self, agents: list[str]) -> dict[str, np.ndarray]:
        return {a: np.full(2 + "abc".index(a), ("abc".index(a) + 1) * self._steps, np.float32) for a in agents}

    def _infos(self, agents: list[str]) -> dict[str, dict]:
        if not self._masks:
            return {a: {} for a in agents}
        size = {a: 2 + "abc".index(a) for a in agents}
        return {a: {"action_mask": np.arange(size[a]) == (0 if a == self._masks else size[a] - 1)} for a in agents}


class Boxes(ParallelEnv):
    """Two agents with 1 and 2 numbers as actions, of differing bounds; the reward is what arrives."""

    metadata: ClassVar = {"name": "boxes"}
    render_mode = None
    possible_agents = ("a", "b")

    def __init__(self) -> None:
        self.agents: list[str] = []

    def observation_space(self, agent: str) -> gymnasium.Space:
        return gymnasium.spaces.Tuple((gymnasium.spaces.Discrete(3), gymnasium.spaces.Box(0.0, 1.0, (2, 2))))

    def action_space(self, agent: str) -> gymnasium.Space:
        if agent == "a":
            return gymnasium.spaces.Box(0.0, 10.0, (1,))
        return gymnasium.spaces.Box(np.array([-1.0, -4.0], np.float32), np.array([1.0, 0.0], np.float32))

    def reset(self, seed: int | None = None, options: object = None) -> tuple[dict, dict]:
        self.agents = ["a", "b"]
        return self._see(), {a: {} for a in self.agents}

    def step(self, actions: dict[str, np.ndarray]) -> tuple[dict, dict, dict, dict, dict]:
        no = dict.fromkeys(self.agents, False)
        rewards = {a: float(actions[a].sum()) for a in self.agents}
        return self._see(), rewards, no, dict(no), {a: {} for a in self.agents}

    def _see(self) -> dict[str, tuple]:
        return {a: (2, np.full((2, 2), 0.5, np.float32)) for a in self.agents}


class Turns(AECEnv):
    """Two agents move one after the other, 4 moves in all; only who is to move has a mask with legal actions."""

    metadata: ClassVar = {"name": "turns", "is_parallelizable": False}
    render_mode = None

    def __init__(self) -> None:
        super().__init__()
        self.possible_agents = ["a", "b"]
        self.moves: list[tuple[str, int]] = []

    def observation_space(self, agent: str) -> gymnasium.Space:
        mask = gymnasium.spaces.Box(0, 1, (2,), np.int8)
        return gymnasium.spaces.Dict({"observation": gymnasium.spaces.Box(0.0, 9.0, (1,)), "action_mask": mask})

    def action_space(self, agent: str) -> gymnasium.Space:
        return gymnasium.spaces.Discrete(2)

    def reset(self, seed: int | None = None, options: object = None) -> None:
        self.agents, self.moves, self.agent_selection = ["a", "b"], [], "a"
        self.rewards = dict.fromkeys(self.agents, 0.0)
        self._cumulative_rewards = dict.fromkeys(self.agents, 0.0)
        self.terminations = dict.fromkeys(self.agents, False)
        self.truncations = dict.fromkeys(self.agents, False)
        self.infos = {a: {} for a in self.agents}

    def observe(self, agent: str) -> dict[str, np.ndarray]:
        mask = np.array([0, 1] if agent == self.agent_selection else [0, 0], np.int8)
        return {"observation": np.array([len(self.moves)], np.float32), "action_mask": mask}

    def step(self, action: int | None) -> None:
        agent = self.agent_selection
        if self.terminations[agent]:
            self._was_dead_step(action)
            return
        assert action is not None
        self.moves.append((agent, action))
        self.rewards = {a: float(a == agent) for a in self.agents}
        self.agent_selection = "b" if agent == "a" else "a"
        if len(self.moves) == 4:
            self.terminations = dict.fromkeys(self.agents, True)


class Unbounded(Boxes):
    def action_space(self, agent: str) -> gymnasium.Space:
        return gymnasium.spaces.Box(-np.inf, np.inf, (1,))


class Mixed(Boxes):
    def action_space(self, agent: str) -> gymnasium.Space:
        return gymnasium.spaces.Discrete(2) if agent == "a" else gymnasium.spaces.Box(0.0, 1.0, (1,))
