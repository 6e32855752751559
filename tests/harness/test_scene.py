"""Scenes as data: what must be seen, policies on a heat map, endings in words."""

from __future__ import annotations

import pytest

from harness.scene import Circle, Frame, Grid, Line, Recording, Scene, Text, probabilities, spread, view

GRID = Grid(((11.0, -30.0), (-30.0, 7.0)), (0.0, 0.0, 2.0, 2.0), (0, 1))


def frame(scene: Scene, step: int = 0, total: float = 0.0) -> Frame:
    return Frame(step, 0.0, total, scene)


def test_the_view_is_a_square_around_every_body_of_every_frame() -> None:
    near = Scene((-1.0, -1.0, 1.0, 1.0), ())
    far = Scene((-1.0, -1.0, 1.0, 1.0), (Circle(4.0, 0.0, 0.5, "blue"),))
    left, bottom, right, top = view([frame(near), frame(far)])
    side = 1.04 * 5.5  # from -1 to 4.5, and a little room
    assert right - left == pytest.approx(side)
    assert top - bottom == pytest.approx(side)
    assert ((left + right) / 2, (bottom + top) / 2) == (pytest.approx(1.75), pytest.approx(0.0))


def test_discs_have_the_area_of_the_joint_probability_and_row_0_is_on_top() -> None:
    shapes = probabilities(GRID, (1.0, 0.0), (0.25, 0.75))
    discs = [s for s in shapes if isinstance(s, Circle)]
    assert [(d.x, d.y > 1) for d in discs] == [(0.5, True), (1.5, True)]
    assert (discs[1].radius / discs[0].radius) ** 2 == pytest.approx(3.0)
    said = [s.text for s in shapes if isinstance(s, Text)]
    assert said == ["1.00", "0.00", "0.25", "0.75"]


def test_the_cross_of_a_gaussian_policy_stays_in_the_picture() -> None:
    across, up = spread(Grid(((0.0,),), (-1.0, -1.0, 1.0, 1.0), (0, 1)), (0.5, -0.25), (0.1, 5.0))
    assert across == Line(0.4, -0.25, 0.6, -0.25, "orange")
    assert up == Line(0.5, -1.0, 0.5, 1.0, "orange")


@pytest.mark.parametrize(
    ("recording", "words"),
    [
        ((True, {"won": 1.0}), "won, return 19.75 after 2 steps"),
        ((False, {"won": 0.0}), "not won, return 19.75 after 2 steps, cut by the time limit"),
        ((True, {}), "return 19.75 after 2 steps"),
    ],
)
def test_endings(recording: tuple[bool, dict[str, float]], words: str) -> None:
    nothing = Scene((0.0, 0.0, 1.0, 1.0), ())
    frames = (frame(nothing), frame(nothing, 1), frame(nothing, 2, 19.75))
    assert Recording(0, frames, *recording).ending == words
