"""How figures look: one colour, line and marker a method, the same in every figure, on paper and in both themes.

Colours are those of Okabe and Ito (2008), told apart by the colour-blind, in an order in which neighbours also differ
in lightness; lines and markers tell methods apart without any colour. Figures in the page carry names of CSS
variables where the printed ones carry colours, so that they follow the reader's theme.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, MaxNLocator

LIGHT = ("#0072b2", "#d55e00", "#009e73", "#aa4499", "#e69f00", "#56b4e9", "#7f4f24", "#6b7280")
DARK = ("#4ea8de", "#ff8a3d", "#35d0a0", "#e58fc9", "#f2c14e", "#a8dcff", "#c99b6d", "#a9b1bd")
DASHES: tuple[Any, ...] = ("-", (0, (5, 1.6)), (0, (1.2, 1.2)), (0, (6, 1.5, 1.2, 1.5)), (0, (3, 1)), (0, (8, 2)))
SVG_DASHES = ("", "5 1.6", "1.2 1.2", "6 1.5 1.2 1.5", "3 1", "8 2")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")

INK, MUTED, GRID, PAPER = "#1b1f24", "#5c6570", "#dfe3e8", "#ffffff"


class Look(NamedTuple):
    """Of one method."""

    place: int
    colour: str
    dash: Any
    marker: str


def looks(names: Sequence[str]) -> dict[str, Look]:
    """A look for each method, by its place in the report's fixed order; all differ up to 24 methods."""
    return {
        name: Look(
            i, LIGHT[i % len(LIGHT)], DASHES[(i + i // len(LIGHT)) % len(DASHES)], MARKERS[(i + i // 8) % len(MARKERS)]
        )
        for i, name in enumerate(names)
    }


RC: dict[str, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 8.5,
    "axes.titlesize": 9,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.labelsize": 8.5,
    "axes.edgecolor": MUTED,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "axes.linewidth": 0.7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "text.color": INK,
    "lines.linewidth": 1.6,
    "lines.markersize": 4.5,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "figure.facecolor": PAPER,
    "axes.facecolor": "none",
    "savefig.dpi": 200,
    "pdf.fonttype": 42,
    "svg.fonttype": "none",
    "text.parse_math": False,  # names of tasks and methods are no formulas
}


def context(salt: str) -> AbstractContextManager[None]:
    """Matplotlib set up for one figure; ``salt`` makes an SVG's ids its own and the same every time."""
    settings: Any = {**RC, "svg.hashsalt": salt}
    return mpl.rc_context(settings)


def steps_text(x: float, _: object = None) -> str:
    """1500000 -> 1.5M."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(x) >= size:
            return f"{x / size:.4g}{unit}"
    return f"{x:.4g}"


def steps_axis(axes: Axes, label: str) -> None:
    """Few ticks of round step counts."""
    axes.xaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]))
    axes.xaxis.set_major_formatter(FuncFormatter(steps_text))
    axes.set_xlabel(label)


def themed(svg: str, name: str) -> str:
    """A figure's SVG for the page: theme variables for colours, the page's font, ids of its own, no fixed size."""
    svg = svg[svg.index("<svg") :]
    for colour, variable in ((INK, "ink"), (MUTED, "muted"), (GRID, "grid"), (PAPER, "paper")):
        svg = svg.replace(colour, f"var(--{variable})")
    for i, colour in enumerate(LIGHT):
        svg = svg.replace(colour, f"var(--m{i})")
    svg = re.sub(r"'DejaVu Sans'[^;\"]*", "var(--sans)", svg)
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.S)
    svg = re.sub(r'\bid="', f'id="{name}-', svg)
    svg = re.sub(r'(href="#|url\(#)', rf"\g<1>{name}-", svg)
    svg = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", svg, count=1)
    svg = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", svg, count=1)
    return re.sub(r"\n\s*", "\n", svg).strip()
