"""What an environment looks like, as data: shapes in its own coordinates, and words. Nothing here draws.

A suite makes a ``Scene`` of the present moment (``harness.suite.VecEnv``); ``harness.reporting`` draws it, as GIF and
as a page. No torch here: a worker process that holds one environment can say how it looks.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

Colour: TypeAlias = Literal[
    "blue", "orange", "green", "purple", "amber", "sky", "brown", "grey",
    "ink", "muted", "grid",
]  # fmt: skip
"""Eight that the colour-blind tell apart (after Okabe and Ito 2008), in the reports' order; text, pale text, lines."""
Bounds: TypeAlias = tuple[float, float, float, float]
"""(left, bottom, right, top); y grows upwards."""


@dataclass(frozen=True)
class Circle:
    """A body. ``ring`` in [0,1] is drawn as an arc around it, a full circle at 1: health, mostly."""

    x: float
    y: float
    radius: float
    colour: Colour
    label: str = ""
    filled: bool = True
    ring: float | None = None
    faded: bool = False


@dataclass(frozen=True)
class Line:
    """From (x, y) to (to_x, to_y)."""

    x: float
    y: float
    to_x: float
    to_y: float
    colour: Colour
    arrow: bool = False
    dashed: bool = False


@dataclass(frozen=True)
class Box:
    """An outline; (x, y) is its lower left corner."""

    x: float
    y: float
    width: float
    height: float
    colour: Colour


@dataclass(frozen=True)
class Text:
    """One line of text centred at (x, y), ``height`` high."""

    x: float
    y: float
    text: str
    height: float
    colour: Colour = "ink"


@dataclass(frozen=True)
class Grid:
    """A heat map of ``values[row][column]`` over ``bounds``; row 0 is the top one.

    ``agents``: rows are actions of the first and columns of the second of these agents, so that policies can be drawn
    on it. In a continuous game the first agent's action is x and the second's y.
    """

    values: tuple[tuple[float, ...], ...]
    bounds: Bounds
    agents: tuple[int, int] | None = None
    labels: tuple[tuple[str, ...], ...] = ()
    """What is written in each cell; nothing when empty."""


Shape: TypeAlias = Circle | Line | Box | Text | Grid


@dataclass(frozen=True)
class Scene:
    """One environment at one moment. Later shapes lie on top of earlier ones."""

    bounds: Bounds
    """What must be seen; a recording shows more where a body leaves it."""
    shapes: tuple[Shape, ...]
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    """A table beside the picture, a row an agent: health, action, ..."""
    notes: tuple[str, ...] = ()
    """How to read the picture."""


@dataclass(frozen=True)
class Frame:
    """One moment of an episode."""

    step: int
    reward: float
    """Of the step that led here."""
    total: float
    """Return so far, undiscounted."""
    scene: Scene


@dataclass(frozen=True)
class Recording:
    """One whole episode, T+1 frames."""

    number: int
    """From 0 on, in the order of the rounds it was played in."""
    frames: tuple[Frame, ...]
    terminated: bool
    """False: the time limit cut it."""
    outcome: dict[str, float]

    @property
    def ending(self) -> str:
        """How it ended, in words: "won, return 19.75 after 23 steps"."""
        last = self.frames[-1]
        said = [name if value else f"not {name}" for name, value in self.outcome.items()]
        how = "" if self.terminated else ", cut by the time limit"
        return ", ".join([*said, f"return {last.total:.4g} after {last.step} step{'s' * (last.step != 1)}"]) + how


def view(frames: Iterable[Frame]) -> Bounds:
    """A square that holds the bounds and every body of all ``frames``, with a little room around."""
    left, bottom, right, top = math.inf, math.inf, -math.inf, -math.inf
    for frame in frames:
        boxes = [frame.scene.bounds]
        for shape in frame.scene.shapes:
            if isinstance(shape, Circle):
                r = shape.radius
                boxes.append((shape.x - r, shape.y - r, shape.x + r, shape.y + r))
        left, bottom = min(left, *(b[0] for b in boxes)), min(bottom, *(b[1] for b in boxes))
        right, top = max(right, *(b[2] for b in boxes)), max(top, *(b[3] for b in boxes))
    side = 1.04 * max(right - left, top - bottom)
    x, y = (left + right - side) / 2, (bottom + top - side) / 2
    return (x, y, x + side, y + side)


def cells(grid: Grid) -> tuple[float, float]:
    """Width and height of a cell."""
    left, bottom, right, top = grid.bounds
    return (right - left) / len(grid.values[0]), (top - bottom) / len(grid.values)


def probabilities(grid: Grid, rows: Sequence[float], columns: Sequence[float]) -> tuple[Shape, ...]:
    """Discs, area as the probability of each joint action, and both agents' own probabilities beside the grid.

    ``rows`` and ``columns`` are those agents' probabilities of each of their actions.
    """
    left, _, right, top = grid.bounds
    width, height = cells(grid)
    size = min(width, height)
    shapes: list[Shape] = []
    for i, p in enumerate(rows):
        y = top - (i + 0.5) * height
        shapes.append(Text(right + 0.33 * size, y, f"{p:.2f}", 0.13 * size, "muted"))
        for j, q in enumerate(columns):
            if p * q >= 0.005:
                x = left + (j + 0.5) * width
                shapes.append(Circle(x, y - 0.2 * height, 0.22 * size * math.sqrt(p * q), "orange"))
    for j, q in enumerate(columns):
        shapes.append(Text(left + (j + 0.5) * width, top + 0.18 * size, f"{q:.2f}", 0.13 * size, "muted"))
    return tuple(shapes)


def spread(grid: Grid, mean: tuple[float, float], deviation: tuple[float, float]) -> tuple[Shape, ...]:
    """A cross through the means of two agents' Gaussian policies, one deviation to each side, cut at the edge."""
    left, bottom, right, top = grid.bounds
    (x, y), (dx, dy) = mean, deviation
    return (
        Line(max(left, x - dx), y, min(right, x + dx), y, "orange"),
        Line(x, max(bottom, y - dy), x, min(top, y + dy), "orange"),
    )
