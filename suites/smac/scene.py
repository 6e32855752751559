"""What a battle of SMAX looks like."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from harness.scene import Box, Circle, Line, Scene

Array = NDArray[Any]
MOVES = ("up", "right", "down", "left", "stop")
"""Actions 0-4; 5+i attacks enemy i."""

ROOM = 2.0
"""Map units shown around the units."""


class Units(NamedTuple):
    """Every unit of one battle, allies first; K units."""

    position: Array  # [K,2] in map units
    alive: Array  # [K] bool
    health: Array  # [K] share of its own maximum
    radius: Array  # [K] in map units
    reach: Array  # [K] attack range in map units
    order: Array  # [K] int, the last order as the engine numbers it: 5 and more attacks
    kind: tuple[str, ...]  # [K] e.g. "marine"


def target(unit: int, order: int, allies: int) -> int | None:
    """Whom ``unit`` was told to attack; None where it was not. The engine counts an enemy's targets backwards."""
    if order < len(MOVES):
        return None
    number = order - len(MOVES)
    return allies + number if unit < allies else allies - 1 - number


def battle(units: Units, allies: int, size: tuple[float, float], action: Array, over: bool) -> Scene:
    """Allies blue, enemies orange, health as a ring, attacks in range as lines; allies choose ``action`` [N]."""
    shapes: list[Box | Circle | Line] = [Box(0.0, 0.0, *size, "muted")]
    for k, alive in enumerate(units.alive):
        aim = target(k, int(units.order[k]), allies)
        if alive and aim is not None and 0 <= aim < len(units.alive):
            distance = float(np.linalg.norm(units.position[k] - units.position[aim]))
            if distance < units.reach[k]:
                (x, y), (to_x, to_y) = units.position[k].tolist(), units.position[aim].tolist()
                shapes.append(Line(x, y, to_x, to_y, _colour(k, allies), dashed=k >= allies))
    for k, alive in enumerate(units.alive):
        x, y = units.position[k].tolist()
        number = str(k if k < allies else k - allies)
        ring = float(units.health[k]) if alive else None
        shapes.append(Circle(x, y, float(units.radius[k]), _colour(k, allies), number, ring=ring, faded=not alive))
    (left, bottom), (right, top) = units.position.min(0).tolist(), units.position.max(0).tolist()
    return Scene(
        (left - ROOM, bottom - ROOM, right + ROOM, top + ROOM),
        tuple(shapes),
        ("unit", "health", "action"),
        tuple(_row(units, k, allies, action, over) for k in range(len(units.alive))),
        (
            "blue: allies, orange: enemies; ring: health, pale: dead; lines: attacks within range in the last step, "
            "the enemies' dashed",
            f"the map is {size[0]:g} by {size[1]:g}; shown is the part around the battle, with the wall if near",
        ),
    )


def _colour(unit: int, allies: int) -> Any:
    return "blue" if unit < allies else "orange"


def _row(units: Units, k: int, allies: int, action: Array, over: bool) -> tuple[str, str, str]:
    side, number = ("ally", k) if k < allies else ("enemy", k - allies)
    name = f"{side} {number} ({units.kind[k]})"
    if not units.alive[k]:
        return name, "dead", ""
    health = f"{units.health[k]:.0%}"
    if k < allies:
        return name, health, "" if over else _said(int(action[k]))
    aim = target(k, int(units.order[k]), allies)
    return name, health, "" if aim is None else f"at ally {aim}"


def _said(action: int) -> str:
    return MOVES[action] if action < len(MOVES) else f"attack {action - len(MOVES)}"
