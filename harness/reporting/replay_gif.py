"""One recorded episode as an animated GIF: the picture at the left; step, return and agents in words beside it."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import matplotlib as mpl
import numpy as np
from PIL import Image, ImageColor, ImageDraw, ImageFont

from harness.reporting.style import GRID, INK, LIGHT, MUTED, PAPER
from harness.scene import Bounds, Box, Circle, Frame, Grid, Line, Recording, Shape, Text, view

SIDE, PANEL, MARGIN = 480, 270, 14
"""Pixels: the square picture, the words at its right, the space around."""
TITLE = 30
FINER = 2
"""Drawn this many times larger and then reduced: Pillow's circles and lines have hard edges."""
SLOWEST, FASTEST, WHOLE, LAST = 1500, 120, 9000, 2500
"""Milliseconds: longest and shortest frame, an episode between them, the last frame."""
NAMES = ("blue", "orange", "green", "purple", "amber", "sky", "brown", "grey")
COLOURS = {**dict(zip(NAMES, LIGHT)), "ink": INK, "muted": MUTED, "grid": GRID}


def save(recording: Recording, title: str, path: Path, shades: Sequence[str]) -> None:
    """Write the GIF: a frame a moment, all with one palette; it repeats for ever."""
    bounds = view(recording.frames)
    last = len(recording.frames) - 1
    drawn = [
        frame_image(frame, bounds, title, recording.ending if k == last else "", shades)
        for k, frame in enumerate(recording.frames)
    ]
    palette = _palette(drawn)
    images = [image.quantize(palette=palette, dither=Image.Dither.NONE) for image in drawn]
    usual = min(SLOWEST, max(FASTEST, WHOLE // max(last, 1)))
    # Pillow joins frames that are alike; each says its own step, so that none are.
    images[0].save(
        path, save_all=True, append_images=images[1:], duration=[usual] * last + [LAST], loop=0, optimize=False
    )


def _palette(drawn: Sequence[Image.Image]) -> Image.Image:
    """Of the first, middle and last frame together."""
    some = [drawn[0], drawn[len(drawn) // 2], drawn[-1]]
    sheet = Image.new("RGB", (some[0].width, some[0].height * len(some)))
    for k, image in enumerate(some):
        sheet.paste(image, (0, k * image.height))
    return sheet.quantize(colors=255, dither=Image.Dither.NONE)


def frame_image(frame: Frame, bounds: Bounds, title: str, ending: str, shades: Sequence[str]) -> Image.Image:
    """One frame. ``ending`` is said where it is given."""
    size = ((SIDE + PANEL + 3 * MARGIN) * FINER, (SIDE + TITLE + 2 * MARGIN) * FINER)
    image, picture = Image.new("RGB", size, PAPER), Image.new("RGB", (SIDE * FINER, SIDE * FINER), PAPER)
    pen = _Pen(picture, bounds, shades)
    for shape in frame.scene.shapes:
        pen.draw(shape)
    pen.ink.rectangle((0, 0, SIDE * FINER - 1, SIDE * FINER - 1), outline=GRID, width=FINER)
    image.paste(picture, (MARGIN * FINER, (MARGIN + TITLE) * FINER))
    _words(ImageDraw.Draw(image), frame, title, ending)
    return image.resize((size[0] // FINER, size[1] // FINER), Image.Resampling.LANCZOS)


@cache
def _font(size: int, bold: bool = False) -> ImageFont.FreeTypeFont:
    """Matplotlib's own font, which is wherever matplotlib is."""
    name = "DejaVuSans-Bold.ttf" if bold else "DejaVuSans.ttf"
    return ImageFont.truetype(Path(mpl.get_data_path()) / "fonts" / "ttf" / name, size)


class _Pen:
    """Draws the shapes of one scene; pixels are those of the large picture."""

    def __init__(self, image: Image.Image, bounds: Bounds, shades: Sequence[str]) -> None:
        self.image, self._shades = image, shades
        self.ink = ImageDraw.Draw(image)
        self._left, self._bottom = bounds[0], bounds[1]
        self._scale = SIDE * FINER / (bounds[2] - bounds[0])

    def at(self, x: float, y: float) -> tuple[float, float]:
        """Pixels of a place in the world."""
        return (x - self._left) * self._scale, SIDE * FINER - (y - self._bottom) * self._scale

    def draw(self, shape: Shape) -> None:
        """Any shape."""
        if isinstance(shape, Circle):
            self._circle(shape)
        elif isinstance(shape, Line):
            self._line(shape)
        elif isinstance(shape, Grid):
            self._grid(shape)
        elif isinstance(shape, Box):
            (x, y), (to_x, to_y) = self.at(shape.x, shape.y + shape.height), self.at(shape.x + shape.width, shape.y)
            self.ink.rectangle((x, y, to_x, to_y), outline=COLOURS[shape.colour], width=4 * FINER)
        elif isinstance(shape, Text):
            size = max(9 * FINER, round(shape.height * self._scale))
            self.write(self.at(shape.x, shape.y), shape.text, size, COLOURS[shape.colour])

    def write(self, place: tuple[float, float], text: str, size: int, colour: str) -> None:
        """Text of ``size`` pixels around a place."""
        self.ink.text(place, text, fill=colour, font=_font(size), anchor="mm")

    def _circle(self, shape: Circle) -> None:
        (x, y), r = self.at(shape.x, shape.y), shape.radius * self._scale
        colour = _mixed(COLOURS[shape.colour], 0.3) if shape.faded else COLOURS[shape.colour]
        box = (x - r, y - r, x + r, y + r)
        self.ink.ellipse(box, fill=colour if shape.filled else None, outline=colour, width=2 * FINER)
        if shape.ring is not None:
            wide = r + 4 * FINER
            around = (x - wide, y - wide, x + wide, y + wide)
            self.ink.ellipse(around, outline=GRID, width=2 * FINER)
            self.ink.arc(around, -90, -90 + 360 * shape.ring, fill=COLOURS["green"], width=2 * FINER)
        if shape.label and r >= 8 * FINER:
            self.write((x, y), shape.label, min(round(1.1 * r), 15 * FINER), INK if shape.faded else PAPER)
        elif shape.label:
            self.write((x + r + 5 * FINER, y - r - 5 * FINER), shape.label, 10 * FINER, MUTED)

    def _line(self, shape: Line) -> None:
        start, end = self.at(shape.x, shape.y), self.at(shape.to_x, shape.to_y)
        colour, length = COLOURS[shape.colour], math.dist(start, end)
        if length == 0:
            return
        unit = ((end[0] - start[0]) / length, (end[1] - start[1]) / length)
        dash = 7 * FINER if shape.dashed else length
        at = 0.0
        while at < length:
            a, b = at, min(at + dash, length)
            ends = tuple((start[0] + unit[0] * d, start[1] + unit[1] * d) for d in (a, b))
            self.ink.line(ends, fill=colour, width=2 * FINER)
            at += dash * (1.7 if shape.dashed else 1.0)
        if shape.arrow:
            head = min(7 * FINER, length)
            back = (end[0] - unit[0] * head, end[1] - unit[1] * head)
            side = (-unit[1] * head / 2, unit[0] * head / 2)
            self.ink.polygon(
                (end, (back[0] + side[0], back[1] + side[1]), (back[0] - side[0], back[1] - side[1])), fill=colour
            )

    def _grid(self, shape: Grid) -> None:
        values = np.array(shape.values)
        low, span = values.min(), float(np.ptp(values))
        share = (values - low) / span if span > 0 else np.full(values.shape, 0.5)
        table = np.array([ImageColor.getrgb(s) for s in self._shades], np.uint8)
        index = np.rint(share * (len(table) - 1)).astype(int)
        (x, y), (to_x, to_y) = self.at(shape.bounds[0], shape.bounds[3]), self.at(shape.bounds[2], shape.bounds[1])
        picture = Image.fromarray(table[index])
        size = (max(1, round(to_x - x)), max(1, round(to_y - y)))
        self.image.paste(picture.resize(size, Image.Resampling.NEAREST), (round(x), round(y)))
        width, height = (to_x - x) / values.shape[1], (to_y - y) / values.shape[0]
        for i, row in enumerate(shape.labels):
            for j, label in enumerate(row):
                dark = share[i, j] < 0.55
                place = (x + (j + 0.5) * width, y + (i + 0.32) * height)
                size_of = max(9 * FINER, round(min(height * 0.2, 1.5 * width / max(len(label), 4))))
                self.write(place, label, size_of, PAPER if dark else INK)


def _mixed(colour: str, share: float) -> str:
    """``share`` of the colour, the rest paper."""
    one, other = ImageColor.getrgb(colour), ImageColor.getrgb(PAPER)
    return "#" + "".join(f"{round(share * a + (1 - share) * b):02x}" for a, b in zip(one[:3], other[:3]))


def _words(ink: ImageDraw.ImageDraw, frame: Frame, title: str, ending: str) -> None:
    """Title above, and at the right step, return, agents, ending, each on its line."""
    ink.text((MARGIN * FINER, MARGIN * FINER), title, fill=INK, font=_font(15 * FINER, True))
    x, y = (2 * MARGIN + SIDE) * FINER, (MARGIN + TITLE) * FINER

    def say(text: str, size: int = 12, colour: str = INK, bold: bool = False) -> None:
        nonlocal y
        ink.text((x, y), text, fill=colour, font=_font(size * FINER, bold))
        y += round(size * 1.45) * FINER

    say(f"step {frame.step}", 15, bold=True)
    say(f"return so far {frame.total:.4g}", 13)
    say(f"reward {frame.reward:+.4g}", 13)
    for line in textwrap.wrap(ending, 34):
        say(line, 12, COLOURS["blue"], True)
    y += 8 * FINER
    rows = frame.scene.rows
    size = 12 if len(rows) <= 16 else 10
    room = int((MARGIN + TITLE + SIDE) * FINER - y) // (round(size * 1.45) * FINER)
    shown = rows if len(rows) <= room else rows[: room - 1]
    for row in shown:
        text = "  ".join(part for part in row if part)
        say(text if len(text) <= 38 else text[:37] + "…", size)
    if len(shown) < len(rows):
        say(f"and {len(rows) - len(shown)} more", size, MUTED)
