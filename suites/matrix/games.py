"""The games as data: payoff tables, the rules of the continuous and coordination games, and their ground truth."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import torch
from torch import Tensor

from harness.types import Continuous, Discrete

END = -1
"""Value of a transition that ends the episode."""

CLIMBING = ((11, -30, 0), (-30, 7, 0), (0, 6, 5))
"""Claus and Boutilier 1998; row: agent 0's action, column: agent 1's."""
QTRAN = ((8, -12, -12), (-12, 0, 0), (-12, 0, 0))
"""Son et al. 2019, table 1a."""
ADDITIVE = ((2, 3, 4), (4, 5, 6), (6, 7, 8))
"""2 + 2 i + j: a sum of utilities, so VDN represents it."""
MONOTONE = ((1, 2, 3), (2, 4, 6), (3, 6, 9))
"""(i + 1)(j + 1): monotone in every agent's action, not a sum; QMIX represents it, VDN does not."""
TWO_STEP = (((0, 0), (0, 0)), ((7, 7), (7, 7)), ((0, 1), (1, 8)))
"""Rashid et al. 2018, table 1; states: first, 2A, 2B."""
TWO_STEP_NEXT = (((1, 1), (2, 2)), ((END, END), (END, END)), ((END, END), (END, END)))
"""Agent 0's first action alone chooses 2A or 2B."""

PENALTIES = (0, 25, 50, 75, 100)
COORDINATION_AGENTS = tuple(range(2, 11))
SECRET_SEED = 20_000
"""The secret joint actions of ``coordination_<n>`` are drawn once for all from the seed ``SECRET_SEED + n``."""
CONTINUOUS_OPTIMUM = 2.8
"""At x = y = 1: -.1 (1 + 1) + 1 + 1 + 1."""
CONTINUOUS_RANDOM = -0.06119
"""Mean reward of uniform x and y: -2/30 plus 1/4 of the integral of the bonus over the unit square."""

_BOX = Continuous(-1.0, 1.0, 1)


class Equilibrium(NamedTuple):
    """A joint action from which no agent alone can gain, the others' later play being optimal."""

    state: int
    action: tuple[float, ...]  # one entry an agent; whole numbers in discrete games
    value: float  # best return from here on when it is played
    optimal: bool  # False: shadowed, a better joint action exists in this state


@dataclass(frozen=True)
class TableGame:
    """A game written out: rewards and transitions for every state and joint action, discount 1.

    As the other two kinds: N agents, S states of which the first ``n_starts`` begin episodes, equally often.
    """

    payoff: Tensor
    """[S,A,...,A] float32, one A an agent."""
    next: Tensor
    """[S,A,...,A] int64; larger than the state it leaves (no cycles), or ``END``."""
    episode_limit: int = 1
    n_starts: int = 1

    @property
    def n_agents(self) -> int:
        """N."""
        return self.payoff.dim() - 1

    @property
    def action(self) -> Discrete:
        """Every agent has the same actions."""
        return Discrete(self.payoff.shape[1])

    @property
    def n_states(self) -> int:
        """S."""
        return self.payoff.shape[0]

    def to(self, device: torch.device) -> TableGame:
        """The same game with its tensors there."""
        return TableGame(self.payoff.to(device), self.next.to(device), self.episode_limit, self.n_starts)

    def play(self, state: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        """State [E], joint action [E,N] | [E,N,1] -> reward [E] float32, next state [E] or ``END``."""
        index = (state, *action.unbind(-1))
        return self.payoff[index], self.next[index]

    def _backup(self, random: bool) -> Tensor:
        """[S,A,...,A]: reward plus the next state's largest (or uniform mean) value, last state first."""
        q = self.payoff.clone()
        value = torch.zeros(self.n_states + 1, device=q.device)  # the last entry, index END, stays 0
        for s in reversed(range(self.n_states)):
            q[s] += value[self.next[s]]
            value[s] = q[s].mean() if random else q[s].max()
        return q

    def joint_values(self) -> Tensor:
        """[S,A,...,A]: Q*(s,u), discount 1."""
        return self._backup(random=False)

    def best(self) -> Tensor:
        """[S] float32: largest return from each state on."""
        return self.joint_values().flatten(1).amax(1)

    def random_return(self) -> float:
        """Mean return of uniform-random play."""
        return float(self._backup(random=True).double().flatten(1).mean(1)[: self.n_starts].mean())


@dataclass(frozen=True)
class CoordinationGame:
    """All must play the state's secret joint action: 1 when they do, else -penalty for every agent that was right."""

    secret: Tensor
    """[S,N] int64."""
    n_actions: int
    penalty: float
    episode_limit: int = 1

    @property
    def n_agents(self) -> int:
        """N."""
        return self.secret.shape[1]

    @property
    def action(self) -> Discrete:
        """Every agent has the same actions."""
        return Discrete(self.n_actions)

    @property
    def n_states(self) -> int:
        """S."""
        return self.secret.shape[0]

    @property
    def n_starts(self) -> int:
        """Every state begins episodes."""
        return self.n_states

    def to(self, device: torch.device) -> CoordinationGame:
        """See ``TableGame``."""
        return CoordinationGame(self.secret.to(device), self.n_actions, self.penalty)

    def best(self) -> Tensor:
        """See ``TableGame``."""
        return torch.ones(self.n_states, device=self.secret.device)

    def play(self, state: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        """See ``TableGame``."""
        right = (action == self.secret[state]).sum(-1)
        reward = torch.where(right == self.n_agents, 1.0, 0.0 - self.penalty * right)
        return reward.float(), torch.full_like(state, END)

    def random_return(self) -> float:
        """See ``TableGame``. E[right] = N/A, of which N A^-N belongs to the full match."""
        n, full = self.n_agents, float(self.n_actions) ** -self.n_agents
        return full - self.penalty * (n / self.n_actions - n * full)


@dataclass(frozen=True)
class ContinuousGame:
    """The continuous game of FACMAC's code: agents play x and y in [-1,1] once."""

    n_agents: int = 2
    action: Continuous = _BOX
    n_states: int = 1
    n_starts: int = 1
    episode_limit: int = 1

    def to(self, device: torch.device) -> ContinuousGame:
        """See ``TableGame``; there is no tensor here."""
        return self

    def best(self) -> Tensor:
        """See ``TableGame``."""
        return torch.tensor([CONTINUOUS_OPTIMUM])

    def play(self, state: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        """See ``TableGame``. An action beyond the box counts as the nearest in it."""
        x, y = action.float().clamp(-1, 1).squeeze(-1).unbind(-1)
        gap = (x - y).abs()
        bonus = (1e-5 / (gap + 1e-5)).clamp(min=0.1) + x + y
        met = (x > 0) & (y > 0) & (gap < 0.01)
        return -0.1 * (x.square() + y.square()) + torch.where(met, bonus, 0.0), torch.full_like(state, END)

    def random_return(self) -> float:
        """See ``TableGame``."""
        return CONTINUOUS_RANDOM


Game: TypeAlias = TableGame | CoordinationGame | ContinuousGame


def one_shot(rows: object) -> TableGame:
    """A game of one state and one step from nested tuples [A,...,A]."""
    payoff = torch.tensor(rows, dtype=torch.float32)[None]
    return TableGame(payoff, torch.full(payoff.shape, END))


def penalty(k: int) -> TableGame:
    """Claus and Boutilier 1998: two optima worth 10 that miss each other at -k, and a safe 2."""
    return one_shot(((-k, 0, 10), (0, 2, 0), (10, 0, -k)))


def climbing_value(joint: tuple[int, ...]) -> float:
    """Climbing for any number of agents (this project's generalisation; for two agents it is ``CLIMBING``).

    All alike: 11, 7 or 5. Actions 0 and 1 together: -30. Action 0 among 2s: 0. Among 1s and 2s, agent 0 is the one
    who must climb last: 0 when it plays 1; when it plays 2, 5 plus the share of the others that play 1. So the way up
    from all-2 leads over (2,1,...,1) to all-1, and there it ends: 11 lies behind -30.
    """
    kinds = set(joint)
    if len(kinds) == 1:
        return float((11, 7, 5)[joint[0]])
    if {0, 1} <= kinds:
        return -30.0
    if 0 in kinds or joint[0] == 1:
        return 0.0
    return 5.0 + joint[1:].count(1) / (len(joint) - 1)


def climbing(n_agents: int) -> TableGame:
    """``climbing_value`` as a table."""
    values = [climbing_value(joint) for joint in itertools.product(range(3), repeat=n_agents)]
    payoff = torch.tensor(values).reshape(1, *([3] * n_agents))
    return TableGame(payoff, torch.full(payoff.shape, END))


def two_step() -> TableGame:
    """Rashid et al. 2018: agent 0 chooses between a safe 7 and a state where 8 needs both."""
    return TableGame(torch.tensor(TWO_STEP, dtype=torch.float32), torch.tensor(TWO_STEP_NEXT), episode_limit=2)


def coordination(n_agents: int, n_actions: int, states: int, penalty: float) -> CoordinationGame:
    """The secret joint actions are part of the task: the same in every episode, trial and seed."""
    rng = torch.Generator().manual_seed(SECRET_SEED + n_agents)
    return CoordinationGame(torch.randint(n_actions, (states, n_agents), generator=rng), n_actions, penalty)


def enumerate_joint(game: Game) -> tuple[Tensor, Tensor]:
    """State [S A^N] and joint action [S A^N,N] of every entry of a discrete game's table, in row-major order."""
    assert isinstance(game.action, Discrete)
    sizes = [game.n_states] + [game.action.n] * game.n_agents
    grid = torch.cartesian_prod(*(torch.arange(size) for size in sizes))
    return grid[:, 0], grid[:, 1:]


def nash(q: Tensor) -> list[Equilibrium]:
    """Pure equilibria of the team games q [S,A,...,A], ties counted as no gain; in row-major order."""
    best = q.flatten(1).amax(1)
    stable = torch.ones_like(q, dtype=torch.bool)
    for agent in range(1, q.dim()):
        stable &= q >= q.amax(agent, keepdim=True)
    return [
        Equilibrium(s, tuple(u), float(q[(s, *u)]), bool(q[(s, *u)] >= best[s]))
        for s, *u in torch.nonzero(stable).tolist()
    ]
