"""What is drawn from a study."""

from __future__ import annotations

import itertools

import pytest
from matplotlib.figure import Figure

from harness.analysis.scores import TaskInfo
from harness.reporting.drawings import _reference_lines


@pytest.mark.parametrize(
    "references",
    [
        {"random": -19.8, "shadowed": 2.0, "optimum": 10.0},
        {"random": 4.75, "shadowed": 7.0, "optimum": 8.0},
        {"random": 0.0, "scripted": 1.0, "shadowed": 2.0, "optimum": 2.5},
    ],
)
def test_names_of_known_values_never_lie_over_each_other(references: dict[str, float]) -> None:
    """Found in a report: "shadowed" under "optimum" where the two are near."""
    figure = Figure(figsize=(3.4, 2.5))
    axes = figure.subplots()
    limits = (-105.0, 14.0) if min(references.values()) < -10 else (-0.5, max(references.values()) + 0.3)
    axes.set_ylim(*limits)
    _reference_lines(axes, TaskInfo("s", "t", "return", 0.0, 10.0, references), limits)
    figure.draw_without_rendering()
    boxes = [t.get_window_extent() for t in axes.texts]
    assert len(boxes) == len(references)
    for a, b in itertools.combinations(boxes, 2):
        assert not a.overlaps(b), (a, b)
    frame = axes.get_window_extent()
    assert all(frame.x0 <= b.x0 and b.x1 <= frame.x1 for b in boxes)
