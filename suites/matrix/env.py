"""Any of the games, vectorised: a state index an environment, and one look-up a step."""

from __future__ import annotations

import torch
from torch import Tensor

from harness.errors import UserError
from harness.scene import Scene
from harness.seeds import reseed
from harness.types import Discrete, Spec, Step
from suites.matrix.games import Game
from suites.matrix.scene import scene


def spec_of(game: Game) -> Spec:
    """Observation and state are both the one-hot index of the state (a constant 1 where there is only one)."""
    return Spec(game.n_agents, game.n_states, game.n_states, game.episode_limit, game.action, ("optimal",))


class MatrixEnv:
    """E copies of one game.

    ``tolerance``: how far below the best return, as a share of it, an episode still counts as "optimal".
    """

    def __init__(self, game: Game, num_envs: int, device: torch.device, tolerance: float) -> None:
        self.spec = spec_of(game)
        self.num_envs = num_envs
        self._device = device
        self._game = game.to(device)
        self._rng = torch.Generator(device)
        best = game.best().to(device)
        self._enough = best - tolerance * best.abs()
        self._one_hot = torch.eye(game.n_states, device=device)
        self._alive = torch.ones(num_envs, game.n_agents, dtype=torch.bool, device=device)
        self._no = torch.zeros(num_envs, dtype=torch.bool, device=device)
        discrete = isinstance(game.action, Discrete)
        self._shape = (num_envs, game.n_agents) if discrete else (num_envs, game.n_agents, 1)
        self._avail = (
            torch.ones(num_envs, game.n_agents, game.action.n, dtype=torch.bool, device=device)
            if isinstance(game.action, Discrete)
            else None
        )

    def reset(self, seed: int) -> Step:
        """Begin E episodes in states drawn from ``seed`` alone (always the first state where only that one begins)."""
        reseed(self._rng, seed)
        shape, starts = (self.num_envs,), self._game.n_starts
        self._state = torch.randint(starts, shape, generator=self._rng, device=self._device)
        self._needed = self._enough[self._state]
        self._return = torch.zeros(shape, device=self._device)
        self._done = self._no
        return self._step(torch.zeros_like(self._return))

    def step(self, action: Tensor) -> Step:
        """Play ``action`` [E,N] int64 | [E,N,1] float. Raises ``UserError`` when its shape or kind is another."""
        if tuple(action.shape) != self._shape or action.is_floating_point() == isinstance(self.spec.action, Discrete):
            raise UserError(
                f"matrix: an action of shape {tuple(action.shape)}, {action.dtype}; this game takes {self._shape}, "
                + ("int64" if self._avail is not None else "float32")
            )
        reward, following = self._game.play(self._state, action)
        reward = reward.masked_fill(self._done, 0.0)
        ended = following < 0
        self._state = torch.where(ended | self._done, self._state, following)
        self._return = self._return + reward
        self._done = self._done | ended
        return self._step(reward)

    def _step(self, reward: Tensor) -> Step:
        seen = self._one_hot[self._state]
        obs = seen[:, None].expand(-1, self.spec.n_agents, -1)
        optimal = (self._done & (self._return >= self._needed)).float()
        return Step(obs, seen, self._avail, self._alive, reward, self._done, self._no, {"optimal": optimal})

    def scene(self, index: int, action: Tensor) -> Scene:
        """The payoff in environment ``index``'s state, and ``action`` [N] | [N,1] in it."""
        return scene(self._game.to(torch.device("cpu")), int(self._state[index]), action)

    def close(self) -> None:
        """Nothing is held."""
