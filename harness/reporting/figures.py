"""Figures: each is drawn twice from the same data, whole for print and panel by panel for the page."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D

from harness.reporting.style import PAPER, Look, context, themed

Draw = Callable[[Axes], None]


@dataclass(frozen=True)
class Panel:
    """One set of axes."""

    title: str
    draw: Draw
    size: tuple[float, float] = (3.4, 2.5)
    """Inches."""


@dataclass(frozen=True)
class Drawing:
    """A figure of the report."""

    name: str
    """Of its files."""
    title: str
    caption: str
    panels: tuple[Panel, ...]
    data: pd.DataFrame
    """What is drawn, one row a mark."""
    legend: tuple[tuple[str, Look], ...] = ()
    columns: int = 3
    """Panels in a row on paper."""
    notes: tuple[str, ...] = field(default=())

    def svgs(self) -> list[str]:
        """One themed SVG a panel, for the page."""
        return [self._svg(i, panel) for i, panel in enumerate(self.panels)]

    def _svg(self, i: int, panel: Panel) -> str:
        salt = f"{self.name}-{i}"
        with context(salt):
            figure = Figure(figsize=panel.size, layout=ConstrainedLayoutEngine(h_pad=0.06, w_pad=0.06))
            figure.patch.set_alpha(0.0)
            axes = figure.add_subplot()
            panel.draw(axes)
            axes.set_title(panel.title)
            return themed(_saved(figure, "svg").decode(), salt)

    def whole(self) -> Figure:
        """All panels with one legend, for print."""
        n = len(self.panels)
        columns = min(self.columns, n)
        rows = math.ceil(n / columns)
        width = max(p.size[0] for p in self.panels) * columns
        per_row, legend_height = _legend_grid([name for name, _ in self.legend], width)
        height = max(p.size[1] for p in self.panels) * rows + legend_height
        figure = Figure(figsize=(width, height), layout=ConstrainedLayoutEngine(h_pad=0.06, w_pad=0.06))
        for i, panel in enumerate(self.panels):
            axes = figure.add_subplot(rows, columns, i + 1)
            panel.draw(axes)
            axes.set_title(panel.title)
        if self.legend:
            handles = [handle(name, look) for name, look in self.legend]
            figure.legend(handles=handles, loc="outside lower center", ncols=per_row)
        figure.draw_without_rendering()
        figure.set_layout_engine("none")  # laid out once, not again for each file format
        return figure

    def save(self, folder: Path) -> list[Path]:
        """PNG, PDF, SVG and the data as CSV."""
        folder.mkdir(parents=True, exist_ok=True)
        paths = []
        with context(self.name):
            figure = self.whole()
            for kind in ("png", "pdf", "svg"):
                path = folder / f"{self.name}.{kind}"
                path.write_bytes(_saved(figure, kind))
                paths.append(path)
        self.data.to_csv(folder / f"{self.name}.csv", index=False)
        return [*paths, folder / f"{self.name}.csv"]


def _saved(figure: Figure, kind: str) -> bytes:
    """The file's bytes, without a date: the same results make the same bytes."""
    dates: dict[str, dict[str, Any]] = {"svg": {"Date": None}, "pdf": {"CreationDate": None}, "png": {}}
    buffer = io.BytesIO()
    figure.savefig(buffer, format=kind, metadata=dates[kind])
    return buffer.getvalue()


def _legend_grid(names: Sequence[str], width: float) -> tuple[int, float]:
    """Entries in a row of a legend ``width`` inches wide, by the longest name, and the inches that its rows take."""
    if not names:
        return 1, 0.0
    entry = max(1.1, 0.6 + 0.075 * max(map(len, names)))
    per_row = max(1, min(len(names), int(width / entry)))
    return per_row, 0.17 + 0.18 * math.ceil(len(names) / per_row)


def handle(name: str, look: Look) -> Line2D:
    """A legend entry."""
    return Line2D([], [], color=look.colour, linestyle=look.dash, marker=look.marker, label=name)


def file_name(text: str) -> str:
    """``text`` as a file's name."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "_", text).strip("_")


# -- marks that several figures share --------------------------------------------------------------------------------


def line(axes: Axes, look: Look, x: Any, value: Any, low: Any = None, high: Any = None, markers: int = 6) -> None:
    """A curve with its band; some markers on it, spread so that methods' markers do not coincide."""
    if low is not None:
        axes.fill_between(x, low, high, color=look.colour, alpha=0.16, linewidth=0)
    every = max(1, len(x) // markers)
    start = (look.place * every // 5) % every if len(x) > markers else 0
    axes.plot(x, value, color=look.colour, linestyle=look.dash, marker=look.marker, markevery=(start, every), zorder=3)


def span(axes: Axes, look: Look, y: float, value: float, low: float | None, high: float | None) -> None:
    """A point with its interval, lying."""
    if low is not None and high is not None:
        axes.plot([low, high], [y, y], color=look.colour, linewidth=5, alpha=0.35, solid_capstyle="butt")
    axes.plot([value], [y], color=look.colour, marker=look.marker, markersize=6, linestyle="none", zorder=4)


def dots(axes: Axes, look: Look, y: float, values: Sequence[float] | np.ndarray[Any, Any]) -> None:
    """Each seed, faint, below a span."""
    axes.plot(
        values,
        np.full(len(values), y + 0.27),
        color=look.colour,
        marker="|",
        markersize=5,
        linestyle="none",
        alpha=0.75,
    )


def name_axis(axes: Axes, names: Sequence[str]) -> None:
    """Methods down the side, the first on top."""
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.grid(visible=False, axis="y")
    axes.tick_params(axis="y", length=0)


def matrix(axes: Axes, names: Sequence[str], cells: Any, texts: Sequence[Sequence[str]]) -> None:
    """Rows against columns, shaded from 0 (columns win) over 0.5 (white) to 1."""
    from matplotlib.colors import LinearSegmentedColormap

    # both ends read on white and on black paper: the middle is transparent, the ends half so
    blend = [(0.835, 0.369, 0.0, 0.55), (0.835, 0.369, 0.0, 0.0), (0.0, 0.447, 0.698, 0.0), (0.0, 0.447, 0.698, 0.55)]
    shade = LinearSegmentedColormap.from_list("improvement", list(zip((0, 0.5, 0.5, 1), blend)))
    axes.pcolormesh(np.arange(len(names) + 1) - 0.5, np.arange(len(names) + 1) - 0.5, cells, cmap=shade, vmin=0, vmax=1,
                    edgecolors=PAPER, linewidth=1.5)  # fmt: skip
    for i, row in enumerate(texts):
        for j, text in enumerate(row):
            axes.text(j, i, text, ha="center", va="center", fontsize=7.5)
    axes.set_xticks(range(len(names)), names, rotation=30 if max(map(len, names)) > 7 else 0,
                    ha="right" if max(map(len, names)) > 7 else "center")  # fmt: skip
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.grid(visible=False)
    axes.tick_params(length=0)
    for side in axes.spines.values():
        side.set_visible(False)
