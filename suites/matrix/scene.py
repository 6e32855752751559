"""What a matrix game looks like: its payoff as a heat map, and what was played."""

from __future__ import annotations

import torch
from torch import Tensor

from harness.scene import Box, Circle, Grid, Scene, Shape, Text
from harness.types import Discrete
from suites.matrix.games import END, Game

SURFACE = 101
"""Points along a side of a continuous game's surface: every .02, the diagonal x = y included."""


def scene(game: Game, state: int, action: Tensor) -> Scene:
    """The payoff in ``state`` and the joint action [N] int64 | [N,1] float, agents from the third on held at theirs."""
    return _table(game, state, action) if isinstance(game.action, Discrete) else _surface(game, state, action)


def _table(game: Game, state: int, action: Tensor) -> Scene:
    count, played = game.action.dim, action.tolist()
    everyone = action.expand(count, count, -1).clone()
    everyone[..., 0] = torch.arange(count)[:, None]
    everyone[..., 1] = torch.arange(count)
    reward, following = game.play(torch.full((count * count,), state), everyone.flatten(0, 1))
    values = reward.reshape(count, count).tolist()
    after = following.reshape(count, count).tolist()
    labels = tuple(
        tuple(f"{v:g}" + ("" if s == END else f" → state {s}") for v, s in zip(row, states))
        for row, states in zip(values, after)
    )
    grid = Grid(tuple(map(tuple, values)), (0.0, 0.0, float(count), float(count)), (0, 1), labels)
    shapes: list[Shape] = [grid, Box(played[1], count - 1 - played[0], 1.0, 1.0, "ink")]
    for a in range(count):
        shapes.append(Text(-0.25, count - a - 0.5, str(a), 0.2))
        shapes.append(Text(a + 0.5, -0.25, str(a), 0.2))
    notes = [
        "payoff of each joint action, agent 0's action down, agent 1's across; box: the greedy joint action, played"
    ]
    if game.n_agents > 2:
        notes.append("the other agents' actions are held at what they play")
    if game.n_states > 1:
        notes.insert(0, f"state {state}")
    rows = tuple((f"agent {i}", str(a)) for i, a in enumerate(played))
    return Scene((-0.6, -0.6, count + 0.6, count + 0.6), tuple(shapes), ("agent", "action"), rows, tuple(notes))


def _surface(game: Game, state: int, action: Tensor) -> Scene:
    points = torch.linspace(-1, 1, SURFACE, dtype=torch.float64).float()
    y, x = torch.meshgrid(points.flip(0), points, indexing="ij")
    joint = torch.stack([x, y], -1).reshape(-1, 2, 1)
    reward, _ = game.play(torch.full((len(joint),), state), joint)
    values = tuple(tuple(round(v, 4) for v in row) for row in reward.reshape(SURFACE, SURFACE).tolist())
    half = 1 / (SURFACE - 1)
    u, v = action.flatten().clamp(-1, 1).tolist()
    edge = 1 + half
    shapes = (
        Grid(values, (-edge, -edge, edge, edge), (0, 1)),
        Circle(u, v, 0.03, "sky"),
        Circle(u, v, 0.07, "sky", filled=False),
        Text(0.0, -1.12, "agent 0's action, -1 to 1", 0.07, "muted"),
    )
    note = (
        f"payoff at every {2 * half:g} of agent 0's action (across) and agent 1's (up), so that the ridge is seen at "
        "its exact spike; pale blue: the greedy joint action, played"
    )
    rows = tuple((f"agent {i}", f"{a:+.6f}") for i, a in enumerate((u, v)))
    return Scene((-1.2, -1.2, 1.2, 1.2), shapes, ("agent", "action"), rows, (note,))
