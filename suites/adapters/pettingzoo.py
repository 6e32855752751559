"""Any cooperative PettingZoo environment, Parallel or AEC (converted), as one team.

Agents keep the order of ``possible_agents`` for good. One that has left has a zero observation, is not ``alive`` and
may only play action 0, which reaches nobody; so it is in a turn-based game with whoever is not to move. Differing
observations and actions are padded to the largest; numbers and actions beyond an agent's own are zero, illegal, or
ignored.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Mapping
from typing import Any, Literal

import numpy as np

from harness.errors import UserError
from harness.scene import Scene
from suites.adapters.particles import particles, world_of
from suites.adapters.single import Array, Layout, Moment

Reward = Literal["sum", "mean"]
State = Literal["auto", "concat"]


class PettingZooEnv:
    """A ``Single`` over a PettingZoo environment."""

    def __init__(
        self,
        factory: Callable[..., Any],
        arguments: Mapping[str, Any],
        *,
        reward: Reward,
        episode_limit: int,
        state: State = "auto",
    ) -> None:
        """``factory(**arguments)`` builds it. The team's ``reward`` is the sum of the agents' or the mean over all N.

        ``episode_limit``: steps after which an episode is cut (truncated) if the environment has not ended it.
        ``state``: the environment's own ``state()`` if it has one ("auto"), or all agents' observations ("concat").
        Raises ``UserError`` naming the agent or space that cannot be played.
        """
        self._env, self._game = _parallel(factory(**arguments))
        self._agents: list[str] = list(_possible_agents(self._env))
        self._name = str(self._env)
        self._mean = reward == "mean"
        self._observers = [_flattener(self._env.observation_space(agent), agent) for agent in self._agents]
        self._actors = _actors({agent: self._env.action_space(agent) for agent in self._agents})
        self._limit, self._steps = episode_limit, 0
        self._obs_dim = max(size for size, _ in self._observers)
        self._own_state = state == "auto" and self._has_state()
        state_dim = self._state_of_env().size if self._own_state else self._obs_dim * len(self._agents)
        self.layout = self._layout(state_dim)

    def reset(self, seed: int) -> Moment:
        """Begin an episode."""
        observations, infos = self._env.reset(seed=seed)
        self._steps = 0
        return self._moment(observations, infos, self._present(), 0.0, False, False)

    def step(self, action: Array) -> Moment:
        """Play ``action`` [N] int64 | [N,U] float32; what absent agents' rows hold is ignored.

        Terminated: the last agents left by termination. Truncated: at least one of them was cut by a time limit, so
        that there was more to come.
        """
        acting = self._present()
        played = {a: self._actors[i].native(action[i]) for i, a in enumerate(self._agents) if acting[i]}
        observations, rewards, ended, cut, infos = self._env.step(played)
        self._steps += 1
        # Rewards of every agent named count, also those that leave now: on the last step env.agents is already empty.
        team = math.fsum(float(reward) for reward in rewards.values()) / (len(self._agents) if self._mean else 1)
        cut_only = np.array([cut.get(a, False) and not ended.get(a, False) for a in self._agents])
        over = not self._env.agents
        truncated = over and bool(cut_only.any())
        limit = not over and self._steps >= self._limit
        alive = self._present() | cut_only
        return self._moment(observations, infos, alive, team, over and not truncated, truncated or limit)

    def scene(self, action: Array) -> Scene | None:
        """What it looks like: particle environments alone can say."""
        world = world_of(self._env)
        return None if world is None else particles(world)

    def close(self) -> None:
        """Close the environment."""
        self._env.close()

    def _present(self) -> Array:
        present = set(self._env.agents)
        return np.array([agent in present for agent in self._agents])

    def _moment(
        self,
        observations: Mapping[str, Any],
        infos: Mapping[str, Any],
        alive: Array,
        reward: float,
        terminated: bool,
        truncated: bool,
    ) -> Moment:
        obs = np.zeros((len(self._agents), self._obs_dim), np.float32)
        for i, agent in enumerate(self._agents):
            if alive[i] and agent in observations:
                flat = self._observers[i][1](observations[agent])
                obs[i, : flat.size] = flat
        avail = None
        if self.layout.n_actions:
            acting = alive if self._game is None else alive & (np.array(self._agents) == self._game.agent_selection)
            avail = self._avail(observations, infos, acting)
        state = self._state_of_env() if self._own_state else obs.ravel()
        return Moment(obs, state, avail, alive, reward, terminated, truncated)

    def _avail(self, observations: Mapping[str, Any], infos: Mapping[str, Any], acting: Array) -> Array:
        avail = np.zeros((len(self._agents), self.layout.n_actions), np.bool_)
        for i, agent in enumerate(self._agents):
            if not acting[i]:
                avail[i, 0] = True
                continue
            mask = _mask(observations.get(agent), infos.get(agent))
            avail[i, : self._actors[i].size] = True if mask is None else mask
        return avail

    def _layout(self, state_dim: int) -> Layout:
        shape = (len(self._agents), self._obs_dim, state_dim, self._limit)
        size = max(actor.size for actor in self._actors)
        if isinstance(self._actors[0], _Choice):
            return Layout(*shape, n_actions=size)
        low, high = _Numbers.box(self._actors)
        return Layout(*shape, low=low, high=high, size=size)

    def _has_state(self) -> bool:
        """Whether ``state()`` gives numbers; asked after a reset, since some environments have none before."""
        self._env.reset(seed=0)
        try:
            state = self._env.state()
        except (NotImplementedError, AttributeError):
            return False
        return isinstance(state, np.ndarray) and np.issubdtype(state.dtype, np.number)

    def _state_of_env(self) -> Array:
        return np.asarray(self._env.state(), np.float32).ravel()


class _Choice:
    """One agent's Discrete or MultiDiscrete actions, numbered from 0."""

    def __init__(self, space: Any) -> None:
        self._start = getattr(space, "start", 0)
        self._nvec = None if hasattr(space, "n") else np.asarray(space.nvec)
        self.size = int(space.n) if self._nvec is None else int(np.prod(self._nvec))

    def native(self, action: Any) -> Any:
        """As the environment takes it."""
        if self._nvec is None:
            return int(action) + int(self._start)
        return np.array(np.unravel_index(int(action), self._nvec)) + self._start


class _Numbers:
    """One agent's Box actions, flat. Where bounds differ between numbers or agents, all are played in [-1, 1]."""

    def __init__(self, space: Any) -> None:
        self._space = space
        self._low, self._high = space.low.ravel().astype(np.float64), space.high.ravel().astype(np.float64)
        self.size = int(self._low.size)
        self._scaled = False

    @staticmethod
    def box(actors: list[Any]) -> tuple[float, float]:
        """Common (low, high) of all; marks the agents as scaled where there is none."""
        bounds = {(float(x), float(y)) for actor in actors for x, y in zip(actor._low, actor._high)}
        if len(bounds) == 1:
            return bounds.pop()
        for actor in actors:
            actor._scaled = True
        return -1.0, 1.0

    def native(self, action: Array) -> Array:
        """As the environment takes it: own numbers, in bounds."""
        own = action[: self.size].astype(np.float64)
        if self._scaled:
            own = self._low + (own + 1.0) / 2.0 * (self._high - self._low)
        clipped: Array = np.clip(own, self._low, self._high).astype(self._space.dtype).reshape(self._space.shape)
        return clipped


def _actors(spaces: Mapping[str, Any]) -> list[Any]:
    kinds = {agent: type(space).__name__ for agent, space in spaces.items()}
    if all(kind in ("Discrete", "MultiDiscrete") for kind in kinds.values()):
        return [_Choice(space) for space in spaces.values()]
    if all(kind == "Box" for kind in kinds.values()):
        for agent, space in spaces.items():
            if not np.isfinite(space.low).all() or not np.isfinite(space.high).all():
                raise UserError(f"agent {agent}'s actions have no bounds: {space}; they must be finite")
        return [_Numbers(space) for space in spaces.values()]
    listed = ", ".join(f"{agent}: {kind}" for agent, kind in kinds.items())
    raise UserError(f"agents' actions must be all Discrete (or MultiDiscrete) or all Box; here they are {listed}")


def _flattener(space: Any, agent: str) -> tuple[int, Callable[[Any], Array]]:
    """(size, function to a flat float array) for the observations of one agent."""
    from gymnasium.spaces import flatdim, flatten

    if type(space).__name__ == "Dict" and "action_mask" in space.spaces and "observation" in space.spaces:
        size, inner = _flattener(space.spaces["observation"], agent)
        return size, lambda observation: inner(observation["observation"])
    if type(space).__name__ == "Box":
        return int(np.prod(space.shape)), lambda observation: np.asarray(observation, np.float32).ravel()
    try:
        size = flatdim(space)
    except (NotImplementedError, ValueError) as error:
        raise UserError(f"agent {agent}'s observations cannot be flattened to numbers: {space}") from error
    return size, lambda observation: np.asarray(flatten(space, observation), np.float32)


def _mask(observation: Any, info: Any) -> Array | None:
    """An agent's action mask, where PettingZoo's conventions put it: in the observation or in the info."""
    for place in (observation, info):
        if isinstance(place, Mapping) and "action_mask" in place:
            return np.asarray(place["action_mask"], np.bool_).ravel()
    return None


def _parallel(env: Any) -> tuple[Any, Any]:
    """(Parallel environment, the AEC environment below it if its agents move one at a time)."""
    if not hasattr(env, "agent_iter"):
        return env, None
    from pettingzoo.utils.conversions import aec_to_parallel, turn_based_aec_to_parallel

    if env.metadata.get("is_parallelizable", False):
        return aec_to_parallel(env), None
    return turn_based_aec_to_parallel(env), env


def _possible_agents(env: Any) -> list[str]:
    agents = getattr(env, "possible_agents", None)
    if not agents:
        raise UserError(f"{env} does not list its possible_agents; a fixed team is needed")
    return list(agents)


def load(path: str) -> Callable[..., Any]:
    """The function or class that "module:name" names. Raises ``UserError`` when there is none."""
    module, _, name = path.partition(":")
    if not module or not name:
        example = "mpe2.simple_spread_v3:parallel_env"
        raise UserError(f"environment {path!r} is not of the form module:factory, e.g. {example}")
    try:
        found = getattr(importlib.import_module(module), name)
    except ImportError as error:
        raise UserError(f"environment {path!r} cannot be imported: {error}") from error
    except AttributeError as error:
        raise UserError(f"environment {path!r}: module {module} has no {name}") from error
    return found  # type: ignore[no-any-return]


def build(path: str, arguments: Mapping[str, Any], **options: Any) -> PettingZooEnv:
    """``PettingZooEnv`` of "module:factory"; picklable as a partial, so that worker processes can build it."""
    return PettingZooEnv(load(path), arguments, **options)
