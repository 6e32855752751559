"""Suite ``matrix``: small games whose truth is known, for what a method can represent, find and be misled by."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from harness.errors import UserError, unknown
from harness.suite import Budget, Task
from harness.types import Discrete, Spec, Step
from suites.matrix import games
from suites.matrix.env import MatrixEnv, spec_of
from suites.matrix.games import Equilibrium, Game, TableGame

__all__ = ["Equilibrium", "Matrix"]

_DOC = {
    "climbing": "Climbing (Claus and Boutilier 1998): the optimum 11 lies behind -30; 7 is the safe way up",
    "climbing_3": "Climbing for three agents (this project's generalisation)",
    "qtran": "QTRAN's non-monotonic game (Son et al. 2019): optimum 8 beside -12, or a safe 0",
    "additive": "A sum of utilities: every mixer represents it",
    "monotone": "A product: a monotone mixer represents it, a sum does not",
    "two_step": "QMIX's two-step game (Rashid et al. 2018): 8 needs both agents, 7 is safe",
    "continuous": "FACMAC's continuous game: a ridge x = y up to 2.8, and nothing elsewhere",
}


@dataclass(frozen=True)
class Matrix:
    """Matrix games with known truth: climbing, penalty, QTRAN, two-step, FACMAC's continuous game, coordination."""

    coordination_actions: int = 3
    """Actions A of every agent in ``coordination_<n>``."""
    coordination_states: int = 2
    """States S of ``coordination_<n>``, each with a secret joint action of its own; agents see which state it is."""
    coordination_penalty: float = 0.1
    """Penalty p of ``coordination_<n>`` for every agent that is right while the team is not: the dial for CDM."""
    tolerance: float = 0.05
    """The continuous game's "optimal" asks for a return of at least (1 - tolerance) times the best."""

    name: ClassVar[str] = "matrix"
    budgets: ClassVar[Mapping[str, Budget]] = {
        "smoke": Budget(env_steps=500, eval_every=250, eval_episodes=8, final_episodes=8, seeds=2),
        "quick": Budget(env_steps=10_000, eval_every=1_000, eval_episodes=32, final_episodes=32, seeds=20),
        "paper": Budget(env_steps=50_000, eval_every=1_000, eval_episodes=32, final_episodes=320, seeds=20),
    }
    algorithms: ClassVar[tuple[str, ...]] = ("mcem", "vdn", "qmix", "facmac", "ippo")
    default_tasks: ClassVar[tuple[str, ...]] = (
        "climbing",
        "climbing_3",
        *(f"penalty_{k}" for k in games.PENALTIES),
        "qtran",
        "additive",
        "monotone",
        "two_step",
        "continuous",
    )

    def __post_init__(self) -> None:
        """Refuse settings that make no game."""
        if self.coordination_actions < 2:
            raise UserError(f"matrix: coordination_actions={self.coordination_actions}; an agent needs at least 2")
        if self.coordination_states < 1:
            raise UserError(f"matrix: coordination_states={self.coordination_states}; a game needs at least 1")
        if self.coordination_penalty < 0:
            raise UserError(f"matrix: coordination_penalty={self.coordination_penalty}; a penalty is 0 or more")
        if not 0 <= self.tolerance < 1:
            raise UserError(f"matrix: tolerance={self.tolerance}; it is a share of the optimum, 0 <= tolerance < 1")

    def tasks(self) -> Mapping[str, Task]:
        """Scored by return: 0 is uniform-random play, 1 the optimum; a shadowed equilibrium is drawn for reference."""
        names = [*self.default_tasks, *(f"coordination_{n}" for n in games.COORDINATION_AGENTS)]
        return {name: self._task(name) for name in names}

    def _task(self, name: str) -> Task:
        game = self._game(name)
        low, high = round(game.random_return(), 6), self.optimum(name)
        references = {"random": low, "optimum": high}
        shadow = self._best_shadowed(name, game)
        if shadow is not None:
            references["shadowed"] = shadow
        family, _, number = name.rpartition("_")
        if family == "penalty":
            doc = f"Penalty (Claus and Boutilier 1998) with k = {number}: two optima worth 10, a safe 2"
        elif family == "coordination":
            doc = f"{number} agents must all play the state's secret joint action"
        else:
            doc = _DOC[name]
        return Task(name, game.action.kind, "return", (low, high), references, doc)

    def _best_shadowed(self, name: str, game: Game) -> float | None:
        """Return of the best shadowed equilibrium of the first state.

        In ``two_step`` it is the safe 7: an equilibrium of the whole game, since 2B, unvisited, may be played badly.
        """
        if name == "two_step":
            return 7.0
        if not isinstance(game, TableGame):
            return 0.0 if self.coordination_penalty > 0 or name in ("continuous", "coordination_2") else None
        values = [e.value for e in games.nash(game.joint_values()) if not e.optimal and e.state == 0]
        return max(values, default=None)

    def engine_version(self) -> str:
        """The games are computed here, in float32."""
        return "matrix 1"

    def make(self, task: str, num_envs: int, device: torch.device) -> MatrixEnv:
        """E copies of a game. Raises ``UserError`` for an unknown one."""
        game = self._game(task)
        return MatrixEnv(game, num_envs, device, self.tolerance if task == "continuous" else 1e-5)

    def spec(self, task: str) -> Spec:
        """What ``make(task, ...)`` will have as its spec."""
        return spec_of(self._game(task))

    def payoff(self, task: str) -> Tensor:
        """Immediate reward of every state and joint action, [S,A,...,A] float32.

        Raises ``UserError`` for the continuous game and for tables of more than 16 million entries.
        """
        return self._table(task, 0)

    def transition(self, task: str) -> Tensor:
        """State that follows every state and joint action, [S,A,...,A] int64, -1 where the episode ends."""
        return self._table(task, 1)

    def joint_values(self, task: str) -> Tensor:
        """True joint value Q*(s,u) with discount 1, [S,A,...,A]; equals ``payoff`` in games of one step."""
        game = self._game(task)
        return game.joint_values() if isinstance(game, TableGame) else self.payoff(task)

    def reward(self, task: str, state: Tensor, action: Tensor) -> Tensor:
        """Reward [E] of joint actions [E,N] int64 | [E,N,1] float in states [E]; for every game."""
        return self._game(task).play(state, action)[0]

    def optimum(self, task: str) -> float:
        """Largest mean return of an episode."""
        game = self._game(task)
        return round(float(game.best()[: game.n_starts].mean()), 6)

    def equilibria(self, task: str) -> list[Equilibrium]:
        """Pure Nash equilibria of every state's team game (in ``two_step``: subgame-perfect), optimal and shadowed.

        In the continuous game every x = y = c in (0,1] is one, and so is (0,0); the two ends of the ridge are given.
        """
        if task == "continuous":
            return [
                Equilibrium(0, (0.0, 0.0), 0.0, False),
                Equilibrium(0, (1.0, 1.0), games.CONTINUOUS_OPTIMUM, True),
            ]
        return games.nash(self.joint_values(task))

    def every_state(self, task: str) -> Step:
        """A ``Step`` of S environments, one in each state of the game, as agents meet it."""
        game = self._game(task)
        env = MatrixEnv(game, game.n_states, torch.device("cpu"), self.tolerance)
        seen = torch.eye(game.n_states)
        return env.reset(0)._replace(obs=seen[:, None].expand(-1, game.n_agents, -1), state=seen)

    def _table(self, task: str, which: int) -> Tensor:
        game = self._game(task)
        if not isinstance(game.action, Discrete):
            raise UserError(f"matrix: {task} has no table, its actions are continuous; ask reward(task, state, action)")
        entries = game.n_states * game.action.n**game.n_agents
        if entries > 1 << 24:
            raise UserError(f"matrix: the table of {task} would have {entries} entries; fewer coordination_actions")
        state, action = games.enumerate_joint(game)
        return game.play(state, action)[which].reshape(game.n_states, *([game.action.n] * game.n_agents))

    def _game(self, task: str) -> Game:
        if task in self.default_tasks:
            family, _, number = task.rpartition("_")
            return games.penalty(int(number)) if family == "penalty" else _GAMES[task]()
        coordination = [f"coordination_{n}" for n in games.COORDINATION_AGENTS]
        if task not in coordination:
            raise unknown("task of suite matrix", task, [*self.default_tasks, *coordination])
        return games.coordination(
            int(task.rpartition("_")[2]),
            self.coordination_actions,
            self.coordination_states,
            self.coordination_penalty,
        )


_GAMES: Mapping[str, Callable[[], Game]] = {
    "climbing": lambda: games.one_shot(games.CLIMBING),
    "climbing_3": lambda: games.climbing(3),
    "qtran": lambda: games.one_shot(games.QTRAN),
    "additive": lambda: games.one_shot(games.ADDITIVE),
    "monotone": lambda: games.one_shot(games.MONOTONE),
    "two_step": games.two_step,
    "continuous": games.ContinuousGame,
}
