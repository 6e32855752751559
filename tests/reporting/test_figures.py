from __future__ import annotations

import re

import pandas as pd
import pytest

from harness.reporting.figures import Drawing, Panel, _legend_grid, line
from harness.reporting.style import INK, LIGHT, PAPER, Look, looks, steps_text


def drawing(names: list[str]) -> Drawing:
    look = looks(names)

    def draw(axes: object) -> None:
        for n in names:
            line(axes, look[n], [0, 1, 2], [0.0, 0.5, 1.0], [0, 0.4, 0.9], [0.1, 0.6, 1.0])  # type: ignore[arg-type]

    panels = (Panel("3m", draw), Panel("8m", draw))
    return Drawing("x", "X", "", panels, pd.DataFrame(), tuple(look.items()))


def test_looks_differ_without_colour_and_are_fixed() -> None:
    found = looks([f"m{i}" for i in range(24)])
    assert len({(str(k.dash), k.marker, k.colour) for k in found.values()}) == 24
    first = list(looks(list("abcdef")).values())
    assert len({k.marker for k in first}) == len({str(k.dash) for k in first}) == len({k.colour for k in first}) == 6


def test_colours_keep_their_distance_for_the_colour_blind() -> None:
    """Simulated deuteranopia and protanopia (Vienot et al. 1999, linear RGB): no two of the first six coincide."""
    deutan = ((0.29275, 0.70725, -0.02234), (0.29275, 0.70725, -0.02234), (-0.02234, 0.02234, 1.0))
    protan = ((0.11238, 0.88762, 0.0), (0.11238, 0.88762, 0.0), (0.00401, -0.00401, 1.0))
    for matrix in (deutan, protan):
        seen = []
        for colour in LIGHT[:6]:
            rgb = [(int(colour[i : i + 2], 16) / 255) ** 2.2 for i in (1, 3, 5)]
            seen.append([min(1.0, max(0.0, sum(w * x for w, x in zip(row, rgb)))) ** (1 / 2.2) for row in matrix])
        for i, a in enumerate(seen):
            for b in seen[:i]:
                assert sum((x - y) ** 2 for x, y in zip(a, b)) ** 0.5 > 0.1


def test_panels_follow_the_theme_and_do_not_share_ids() -> None:
    one, two = drawing(["a", "b"]).svgs()
    assert "var(--m0)" in one
    assert "var(--ink)" in one
    for colour in (*LIGHT, INK, PAPER):
        assert colour not in one
    assert not set(re.findall(r'\bid="([^"]*)"', one)) & set(re.findall(r'\bid="([^"]*)"', two))
    for target in re.findall(r"url\(#([^)]*)\)", one):
        assert f'id="{target}"' in one
    head = one[: one.index(">")]
    assert "viewBox" in head
    assert "width=" not in head
    assert one == drawing(["a", "b"]).svgs()[0]


def test_legend_lines_are_all_in_the_whole_figure() -> None:
    figure = drawing(["first", "second", "third"]).whole()
    assert [t.get_text() for t in figure.legends[0].get_texts()] == ["first", "second", "third"]
    assert isinstance(looks(["a"])["a"], Look)


def test_steps_text() -> None:
    assert [steps_text(x) for x in (0, 500, 2_500, 1_500_000, 2e9)] == ["0", "500", "2.5k", "1.5M", "2G"]


def test_a_legend_of_long_names_takes_more_rows() -> None:
    assert _legend_grid(["vdn", "qmix", "ippo"], 7.2) == (3, pytest.approx(0.35))
    per_row, height = _legend_grid([*"abcdefg", "facmac@mixer=unconstrained"], 7.2)
    assert per_row * (0.6 + 0.075 * 26) <= 7.2
    assert (per_row, height) == (2, pytest.approx(0.17 + 4 * 0.18))
    assert _legend_grid([], 7.2) == (1, 0.0)
