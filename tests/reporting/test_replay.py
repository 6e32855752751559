"""The page and the GIFs of a replay, and the command from outside."""

from __future__ import annotations

import dataclasses
import json
import re
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from PIL import Image

from harness.cli import main
from harness.reporting import replay
from harness.scene import Box, Circle, Frame, Grid, Line, Recording, Scene, Text
from tests.reporting.test_browser import CHROMIUM, opened
from tests.support.trials import finish, tiny

ABOUT = {
    "experiment": "e", "suite": "s", "task": "t</script>", "algorithm": "a", "seed": 3, "checkpoint": "best.pt",
    "env_steps": 1200, "engine": "toy 2", "trained_on": "toy 1", "metric": "won",
}  # fmt: skip
GRID = Grid(((1.0, 2.0), (3.0, 4.25)), (0.0, 0.0, 2.0, 2.0), (0, 1), (("1", "2"), ("3", "4.25")))


def made(steps: int = 4) -> Recording:
    """Every kind of shape; bodies that move; a reward of .1 a step."""

    def scene(k: int) -> Scene:
        shapes = (
            GRID,
            Box(0.0, 0.0, 1.0, 1.0, "ink"),
            Line(0.0, 0.0, 1.0 + k, 1.0, "orange", arrow=True, dashed=True),
            Line(0.5, 0.5, 0.5, 0.5, "orange", arrow=True),
            Circle(0.1 * k, 1 / 3, 0.2, "blue", "7", ring=1 - k / 4),
            Circle(0.2, 0.1 * k, 0.01, "green", "8", filled=False, faded=True),
            Text(1.0, 1.9, "<b>&", 0.1),
        )
        return Scene((0.0, 0.0, 2.0, 2.0), shapes, ("unit", "health"), (("ally 0", f"{k}"),), ("how to read it",))

    frames, total = [Frame(0, 0.0, 0.0, scene(0))], 0.0
    for k in range(1, steps + 1):
        total += 0.1
        frames.append(Frame(k, 0.1, total, scene(k)))
    return Recording(0, tuple(frames), True, {"won": 1.0})


def inside(page: str) -> dict[str, object]:
    """The page's data."""
    match = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)
    assert match is not None
    return json.loads(match[1])


def test_the_page_holds_the_episodes_and_nothing_from_elsewhere() -> None:
    page = replay.html(ABOUT, [made()])
    assert not re.search(r"https?:|//[a-z]|src=|@import|url\(", page.replace("<!doctype html>", ""))
    found = inside(page)
    (episode,) = found["episodes"]  # type: ignore[misc]
    assert [f["step"] for f in episode["frames"]] == [0, 1, 2, 3, 4]  # type: ignore[index]
    assert episode["frames"][-1]["total"] == made().frames[-1].total  # type: ignore[index]
    assert episode["ending"] == "won, return 0.4 after 4 steps"  # type: ignore[index]
    shapes = episode["frames"][1]["shapes"]  # type: ignore[index]
    assert shapes[4] == ["circle", 0.1, 0.3333, 0.2, "m0", "7", True, 0.75, False]
    assert shapes[2] == ["line", 0.0, 0.0, 2.0, 1.0, "m1", True, True]
    assert shapes[6] == ["text", 1.0, 1.9, "<b>&", 0.1, "ink"]
    assert shapes[0] == ["grid", 0]
    assert len(found["grids"]) == 1  # type: ignore[arg-type]
    assert found["grids"][0]["values"] == [[1.0, 2.0], [3.0, 4.25]]  # type: ignore[index]


def test_what_was_played_is_said_and_names_cannot_break_the_page() -> None:
    page = replay.html(ABOUT, [made()])
    assert "best networks, 1,200 environment steps · toy 2, though it was trained on toy 1" in page
    assert "t</script>" not in page
    assert "<h1>t&lt;/script&gt;: a, seed 3</h1>" in page
    assert inside(page)["about"] == ABOUT


def test_every_colour_of_a_scene_is_in_the_style_sheet() -> None:
    from typing import get_args

    from harness.reporting.replay_gif import COLOURS
    from harness.scene import Colour

    assert set(get_args(Colour)) == set(replay.VARIABLES) == set(COLOURS)
    css = Path(replay.__file__).with_name("templates").joinpath("report.css").read_text()
    for variable in replay.VARIABLES.values():
        assert css.count(f"--{variable}:") >= 2, variable  # light and dark


def test_a_gif_has_a_frame_a_moment(tmp_path: Path) -> None:
    page, gif = replay.write(ABOUT, [made(7)], tmp_path)
    assert page.name == "replay.html"
    with Image.open(gif) as image:
        assert image.n_frames == 8  # type: ignore[attr-defined]
        assert image.info["loop"] == 0
        colours = []
        for k in range(8):
            image.seek(k)
            colours.append(image.convert("RGB").getpixel((20, 500)))
        assert len(set(colours)) == 1  # the paper does not flicker


def test_still_scenes_keep_their_frames(tmp_path: Path) -> None:
    still = made(3)
    frames = tuple(dataclasses.replace(f, scene=still.frames[0].scene) for f in still.frames)
    _, gif = replay.write(ABOUT, [dataclasses.replace(still, frames=frames)], tmp_path)
    with Image.open(gif) as image:
        assert image.n_frames == 4  # type: ignore[attr-defined]


def test_the_same_bytes_and_no_gif_of_an_earlier_replay(tmp_path: Path) -> None:
    first = [p.read_bytes() for p in replay.write(ABOUT, [made(), dataclasses.replace(made(), number=1)], tmp_path)]
    assert len(first) == 3
    again = [p.read_bytes() for p in replay.write(ABOUT, [made()], tmp_path)]
    assert again[1] == first[1]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["episode_1.gif", "replay.html"]


def test_a_flat_heat_map_is_drawn(tmp_path: Path) -> None:
    flat = Scene((0.0, 0.0, 2.0, 2.0), (dataclasses.replace(GRID, values=((0.0, 0.0), (0.0, 0.0)), labels=()),))
    recording = Recording(0, (Frame(0, 0.0, 0.0, flat), Frame(1, 0.0, 0.0, flat)), True, {})
    replay.write(ABOUT, [recording], tmp_path)
    assert replay.data(ABOUT, [recording])["notes"] == [["dark: 0, bright: 0"]]


# -- the command ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return finish(tiny(tmp_path_factory.mktemp("results"), "vdn"))


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["replay", *map(str, arguments)])


def test_the_command_writes_page_and_gifs(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = run(folder, "--episodes", 2)
    assert result.exit_code == 0, result.output
    place = tmp_path / "reports" / "test" / "replay" / "matrix-two_step-vdn-seed_0"
    assert sorted(p.name for p in place.iterdir()) == ["episode_1.gif", "episode_2.gif", "replay.html"]
    assert re.match(r"episode 1: (not )?optimal, return \S+ after 2 steps\n", result.output)
    before = {p.name: p.read_bytes() for p in place.iterdir()}
    assert run(folder.parent, "--episodes", 2, "--out", tmp_path / "again").exit_code == 0
    assert {p.name: p.read_bytes() for p in (tmp_path / "again").iterdir()} == before


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("nowhere",), "nowhere: no trials there"),
        (("--checkpoint", "last"), "no saved networks (checkpoint.pt)"),
    ],
)
def test_what_cannot_be_shown_is_one_line_and_2(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (folder / "checkpoint.pt").unlink(missing_ok=True)
    given = arguments if arguments[0] == "nowhere" else (folder, *arguments)
    result = run(*given)
    assert result.exit_code == 2
    assert result.output.startswith("harness: ")
    assert result.output.count("\n") == 1
    assert words in result.output
    assert not (tmp_path / "reports").exists()


def test_a_suite_without_scenes_is_one_line_and_2(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from suites.matrix.env import MatrixEnv

    monkeypatch.delattr(MatrixEnv, "scene")
    result = run(folder, "--out", tmp_path / "out")
    assert result.exit_code == 2
    assert result.output.count("\n") == 1
    assert "do not say how they look" in result.output
    assert not (tmp_path / "out").exists()


# -- in Chromium ------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here")
def test_the_page_in_a_browser(tmp_path: Path) -> None:
    page = replay.write(ABOUT, [made(), dataclasses.replace(made(), number=1)], tmp_path)[0]
    for width in (390, 1440):
        found, log = opened(page, width)
        assert found["scroll"] <= found["width"] == width  # type: ignore[operator]
        assert found["outside"] == []
        assert "CONSOLE" not in log
    moved = tmp_path / "moved.html"
    text = page.read_text().replace(
        "</body>",
        "<script>document.getElementById('episodes').children[1].click();"
        "const r = document.getElementById('frame'); r.value = 4; r.dispatchEvent(new Event('input'));</script></body>",
    )
    moved.write_text(text)
    assert CHROMIUM is not None
    command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}"]
    dom = subprocess.run(
        [*command, "--dump-dom", moved.as_uri()], capture_output=True, text=True, timeout=120, check=True
    ).stdout
    picture = re.search(r'<svg id="picture".*?</svg>', dom, re.S)
    assert picture is not None
    assert picture[0].count("<circle") == 3  # two bodies and the empty ring of the one whose health is 0
    assert 'href="data:image/png' in picture[0]
    assert "&lt;b&gt;&amp;" in picture[0]
    assert "step 4 of 4 · return so far 0.4 · reward +0.1" in dom
    assert '<p class="ending" id="ending">won, return 0.4 after 4 steps</p>' in dom
    assert re.search(r'aria-pressed="true">Episode 2', dom)
