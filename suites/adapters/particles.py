"""What a world of the multi-agent particle environments looks like: read from the object that the package steps."""

from __future__ import annotations

from typing import Any

import numpy as np

from harness.scene import Circle, Colour, Line, Scene, Shape

LANDMARKS: tuple[Colour, ...] = ("orange", "green", "purple", "amber", "sky", "brown")
WORDS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


def world_of(env: Any) -> Any:
    """The world below a PettingZoo environment; None where it is another kind."""
    world = getattr(getattr(env, "unwrapped", env), "world", None)
    return world if hasattr(world, "agents") and hasattr(world, "landmarks") else None


def particles(world: Any) -> Scene:
    """Agents blue with the force that they last used as an arrow, landmarks in colours of their own, goals dashed."""
    marks = [LANDMARKS[k % len(LANDMARKS)] for k in range(len(world.landmarks))]
    shapes: list[Shape] = []
    for k, landmark in enumerate(world.landmarks):
        shapes.append(Circle(*_place(landmark), float(landmark.size), marks[k], str(k), faded=True))
    for agent in world.agents:
        walker, goal = _goal(agent, "goal_a"), _goal(agent, "goal_b")
        if walker is not None and goal is not None:
            shapes.append(Line(*_place(walker), *_place(goal), marks[world.landmarks.index(goal)], dashed=True))
    for k, agent in enumerate(world.agents):
        (x, y), force = _place(agent), _force(agent)
        if any(force):
            shapes.append(Line(x, y, x + 0.05 * force[0], y + 0.05 * force[1], "ink", arrow=True))
        shapes.append(Circle(x, y, float(agent.size), "blue", str(k)))
    rows = tuple((f"{k} {agent.name}", _moves(agent), _says(agent)) for k, agent in enumerate(world.agents))
    talk = any(not agent.silent for agent in world.agents)
    notes = ["blue: agents with the force of their last move; the other colours: landmarks"]
    if any(_goal(agent, "goal_b") is not None for agent in world.agents):
        notes.append("dashed: where an agent is to go, which another one must tell it")
    width = 3 if talk else 2
    columns = ("agent", "moves", "says")[:width]
    return Scene((-1.0, -1.0, 1.0, 1.0), tuple(shapes), columns, tuple(r[:width] for r in rows), tuple(notes))


def _place(entity: Any) -> tuple[float, float]:
    x, y = entity.state.p_pos
    return float(x), float(y)


def _goal(agent: Any, name: str) -> Any:
    """One of an agent's goals. The package raises where there is none yet."""
    try:
        return getattr(agent, name, None)
    except AssertionError:
        return None


def _force(agent: Any) -> tuple[float, float]:
    try:
        x, y = agent.action.u
    except (AssertionError, TypeError):  # nobody has moved yet
        return 0.0, 0.0
    return float(x), float(y)


def _moves(agent: Any) -> str:
    if not agent.movable:
        return "cannot"
    x, y = _force(agent)
    return f"{x:+.2f}, {y:+.2f}" if x or y else ""


def _says(agent: Any) -> str:
    """The loudest word of its last message."""
    if agent.silent:
        return "cannot"
    message = np.asarray(agent.state.c)
    return WORDS[int(message.argmax())] if message.any() else ""
