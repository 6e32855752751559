"""What a battle looks like: against units by hand, and against the engine's own state."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from harness.scene import Circle, Line
from suites.smac import SMAC
from suites.smac.scene import Units, battle, target


def units(**changed: Any) -> Units:
    """Two marines against two, one of each side in reach of another."""
    seen: dict[str, Any] = {
        "position": np.array([[10.0, 10.0], [4.0, 4.0], [13.0, 14.0], [30.0, 30.0]]),
        "alive": np.array([True, True, True, False]),
        "health": np.array([1.0, 0.4, 0.6, 0.0]),
        "radius": np.array([0.375, 0.625, 0.375, 0.375]),
        "reach": np.array([6.0, 6.0, 5.5, 5.0]),
        "order": np.array([5, 6, 6, 5]),
        "kind": ("marine", "stalker", "marine", "marine"),
    }
    return Units(**(seen | changed))


def test_the_engine_counts_an_enemys_targets_backwards() -> None:
    assert [target(0, o, 3) for o in (4, 5, 6, 7)] == [None, 3, 4, 5]
    assert [target(4, o, 3) for o in (4, 5, 6, 7)] == [None, 2, 1, 0]


def test_attacks_in_range_of_the_living_alone() -> None:
    lines = [s for s in battle(units(), 2, (32.0, 32.0), np.array([5, 1]), False).shapes if isinstance(s, Line)]
    # ally 0 reaches enemy 0 at distance 5; ally 1 is told to attack enemy 1, far away; enemy 0 attacks ally 0 back;
    # enemy 1 is dead
    assert [(line.x, line.y, line.to_x, line.to_y, line.dashed) for line in lines] == [
        (10.0, 10.0, 13.0, 14.0, False),
        (13.0, 14.0, 10.0, 10.0, True),
    ]


def test_bodies_and_words() -> None:
    scene = battle(units(), 2, (32.0, 32.0), np.array([5, 1]), False)
    bodies = [s for s in scene.shapes if isinstance(s, Circle)]
    assert [(b.x, b.y, b.radius, b.colour, b.label, b.ring, b.faded) for b in bodies] == [
        (10.0, 10.0, 0.375, "blue", "0", 1.0, False),
        (4.0, 4.0, 0.625, "blue", "1", 0.4, False),
        (13.0, 14.0, 0.375, "orange", "0", 0.6, False),
        (30.0, 30.0, 0.375, "orange", "1", None, True),
    ]
    assert scene.rows == (
        ("ally 0 (marine)", "100%", "attack 0"),
        ("ally 1 (stalker)", "40%", "right"),
        ("enemy 0 (marine)", "60%", "at ally 0"),
        ("enemy 1 (marine)", "dead", ""),
    )
    over = battle(units(), 2, (32.0, 32.0), np.array([5, 1]), True)
    assert over.rows[0] == ("ally 0 (marine)", "100%", "")


@pytest.fixture(scope="module")
def env() -> Any:
    made = SMAC(engine="smax").make("3m", 2, torch.device("cpu"))
    yield made
    made.close()


def test_the_scene_is_the_engines_state(env: Any) -> None:
    step = env.reset(4)
    for _ in range(12):
        action = (
            step.avail.int().argmax(-1).where(~step.avail[..., 5:].any(-1), 5 + step.avail[..., 5:].int().argmax(-1))
        )
        step = env.step(torch.where(step.avail[..., 5:].any(-1), action, torch.ones_like(action)))
        state = env._carry[1].state
        for index in range(2):
            scene = env.scene(index, action[index])
            bodies = [s for s in scene.shapes if isinstance(s, Circle)]
            places = np.array([[b.x, b.y] for b in bodies])
            assert np.array_equal(places, np.asarray(state.unit_positions)[index])
            alive = np.asarray(state.unit_alive)[index]
            assert [not b.faded for b in bodies] == alive.tolist()
            health = np.asarray(state.unit_health)[index] / 45.0
            assert [b.ring for b, a in zip(bodies, alive) if a] == pytest.approx(health[alive].tolist())
            assert all(row[0].endswith("(marine)") for row in scene.rows)
            own = step.state[index][: 6 * 10].reshape(6, 10)[:, 1:3].numpy() * 32
            assert np.allclose(places[alive], own[alive], atol=1e-4)  # the state hides where the dead lie


def test_looking_changes_nothing(env: Any) -> None:
    action = torch.ones(2, 3, dtype=torch.int64)

    def played(look: bool) -> list[torch.Tensor]:
        env.reset(9)
        found = []
        for _ in range(6):
            if look:
                env.scene(1, action[1])
            found.append(env.step(action).state)
        return found

    assert all(torch.equal(a, b) for a, b in zip(played(True), played(False)))
