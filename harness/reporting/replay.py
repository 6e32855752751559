"""``harness replay``: recorded episodes -> one page that opens without a network, and a GIF an episode.

Made from ``harness.scene`` alone: nothing here knows a suite. The same recordings give the same bytes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from markupsafe import Markup
from matplotlib.colors import to_hex

import harness
from harness.reporting import page, replay_gif
from harness.scene import Box, Circle, Frame, Grid, Line, Recording, Shape, Text, view

VARIABLES: Mapping[str, str] = {
    "blue": "m0", "orange": "m1", "green": "m2", "purple": "m3", "amber": "m4", "sky": "m5", "brown": "m6",
    "grey": "m7", "ink": "ink", "muted": "muted", "grid": "line",
}  # fmt: skip
"""Of the report's style sheet, by the scene's names of colours."""
SHADES = 33
DIGITS = 4
"""Of places and values in the page; returns are exact."""


def shades() -> list[str]:
    """Colours of a heat map from its lowest to its highest value: cividis, even in lightness for everyone."""
    return [to_hex(mpl.colormaps["cividis"](k / (SHADES - 1))) for k in range(SHADES)]


def write(about: Mapping[str, Any], recordings: Sequence[Recording], folder: Path) -> list[Path]:
    """``replay.html`` and ``episode_<k>.gif`` from 1 on, replacing those of an earlier replay there; their paths.

    ``about`` is that of ``harness.watch.Watched``.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("episode_*.gif"):
        old.unlink()
    made = [folder / "replay.html"]
    made[0].write_text(html(about, recordings), encoding="utf-8")
    for recording in recordings:
        made.append(folder / f"episode_{recording.number + 1}.gif")
        replay_gif.save(recording, f"{title(about)}, episode {recording.number + 1}", made[-1], shades())
    return made


def title(about: Mapping[str, Any]) -> str:
    """E.g. "3m: qmix, seed 0"."""
    return f"{about['task']}: {about['algorithm']}, seed {about['seed']}"


def lead(about: Mapping[str, Any]) -> str:
    """What was played, in one line."""
    engine, before = about["engine"], about["trained_on"]
    where = engine if before in (None, engine) else f"{engine}, though it was trained on {before}"
    which = "best networks" if about["checkpoint"] == "best.pt" else "last networks"
    return f"greedy episodes · suite {about['suite']} · {which}, {about['env_steps']:,} environment steps · {where}"


def html(about: Mapping[str, Any], recordings: Sequence[Recording]) -> str:
    """The page."""
    env = page.templates()
    text = json.dumps(data(about, recordings), separators=(",", ":"), ensure_ascii=False)
    return env.get_template("replay.html.j2").render(
        title=title(about),
        lead=lead(about),
        css=page.source(env, "report.css", "replay.css"),
        script=page.source(env, "replay.js"),
        # a string in it must not end the script that holds it
        data=Markup(text.replace("<", "\\u003c").replace("&", "\\u0026")),
        gifs=[f"episode_{r.number + 1}.gif" for r in recordings],
        foot=f"Made by harness {harness.__version__}.",
    )


def data(about: Mapping[str, Any], recordings: Sequence[Recording]) -> dict[str, Any]:
    """All that the page shows, as JSON values. Heat maps and notes, mostly the same in every frame, are kept once."""
    grids: list[dict[str, Any]] = []
    notes: list[list[str]] = []
    episodes = [
        {
            "ending": recording.ending,
            "outcome": recording.outcome,
            "terminated": recording.terminated,
            "view": [round(v, DIGITS) for v in view(recording.frames)],
            "frames": [_frame(frame, grids, notes) for frame in recording.frames],
        }
        for recording in recordings
    ]
    return {"about": dict(about), "shades": shades(), "grids": grids, "notes": notes, "episodes": episodes}


def _frame(frame: Frame, grids: list[dict[str, Any]], notes: list[list[str]]) -> dict[str, Any]:
    scene = frame.scene
    said = [*scene.notes, *(scale(s) for s in scene.shapes if isinstance(s, Grid) and not s.labels)]
    return {
        "step": frame.step,
        "reward": frame.reward,
        "total": frame.total,
        "shapes": [_shape(shape, grids) for shape in scene.shapes],
        "columns": list(scene.columns),
        "rows": [list(row) for row in scene.rows],
        "notes": _place(said, notes),
    }


def scale(grid: Grid) -> str:
    """What the ends of a heat map's colours stand for."""
    low, high = (f(f(row) for row in grid.values) for f in (min, max))
    return f"dark: {low:.3g}, bright: {high:.3g}"


def _place(thing: Any, among: list[Any]) -> int:
    """Where ``thing`` is among those kept; it is added where it is not."""
    if thing not in among:
        among.append(thing)
    return among.index(thing)


def _shape(shape: Shape, grids: list[dict[str, Any]]) -> list[Any]:
    """[kind, places..., colour, ...]; see replay.js."""
    if isinstance(shape, Grid):
        kept = {
            "values": [[round(v, DIGITS) for v in row] for row in shape.values],
            "bounds": list(shape.bounds),
            "labels": [list(row) for row in shape.labels],
        }
        return ["grid", _place(kept, grids)]
    at, colour = [round(shape.x, DIGITS), round(shape.y, DIGITS)], VARIABLES[shape.colour]
    if isinstance(shape, Circle):
        ring = None if shape.ring is None else round(shape.ring, DIGITS)
        return ["circle", *at, round(shape.radius, DIGITS), colour, shape.label, shape.filled, ring, shape.faded]
    if isinstance(shape, Line):
        to = [round(shape.to_x, DIGITS), round(shape.to_y, DIGITS)]
        return ["line", *at, *to, colour, shape.arrow, shape.dashed]
    if isinstance(shape, Box):
        return ["box", *at, shape.width, shape.height, colour]
    assert isinstance(shape, Text)
    return ["text", *at, shape.text, shape.height, colour]
