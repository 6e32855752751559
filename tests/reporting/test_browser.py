"""The report in Chromium, where it is installed."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from types import ModuleType

import pytest

from harness.reporting.report import build

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here")

PROBE = """<script>addEventListener("load", () => {
  const root = document.documentElement, found = [...document.querySelectorAll("figure.drawing")];
  const shown = (e) => { const b = e.getBoundingClientRect(); return b.width > 60 && b.height > 40; };
  const outside = [...document.querySelectorAll("main *")].filter((e) => !e.closest(".scroll, details, svg")
      && e.getBoundingClientRect().right > root.clientWidth + 1).map((e) => e.tagName + "." + e.className);
  document.title = "probe " + JSON.stringify({
    width: root.clientWidth, scroll: root.scrollWidth, outside,
    figures: Object.fromEntries(found.map((f) => [f.id, [...f.querySelectorAll(".panel svg")].filter(shown).length])),
    expected: Object.fromEntries(found.map((f) => [f.id, +f.dataset.panels])),
    ink: getComputedStyle(document.body).color, paper: getComputedStyle(document.body).backgroundColor,
  });
});</script>"""


@pytest.fixture(scope="module")
def page(synthetic: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("browser")
    made = synthetic.Made(root, tasks=("3m", "8m", "27m_vs_30m"), seeds=range(4), points=11, final_episodes=40)
    return build([synthetic.write(made)], root / "out", resamples=200)


def opened(page: Path, width: int, *flags: str) -> tuple[dict[str, object], str]:
    """What the probe found, and the browser's log."""
    frame = page.with_name("frame.html")
    probed = page.with_name("probed.html")
    probed.write_text(page.read_text().replace("</body>", PROBE + "</body>"))
    # headless windows are at least 500 px wide: a frame is as narrow as a phone
    frame.write_text(
        "<!doctype html><meta charset=utf-8><link rel=icon href=data:,>"
        f"<iframe id=f src=probed.html style='width:{width}px;height:900px;border:0'></iframe>"
        "<script>const f = document.getElementById('f'); setInterval(() => { const t = f.contentDocument.title;"
        "if (t.startsWith('probe')) document.body.dataset.probe = t; }, 50)</script>"
    )
    assert CHROMIUM is not None
    always = ("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--allow-file-access-from-files")
    profile = f"--user-data-dir={page.parent / 'profile'}"
    command = [
        CHROMIUM,
        *always,
        "--enable-logging=stderr",
        "--virtual-time-budget=4000",
        profile,
        *flags,
        "--dump-dom",
    ]
    done = subprocess.run([*command, frame.as_uri()], capture_output=True, text=True, timeout=120, check=True)
    match = re.search(r'data-probe="probe ([^"]*)"', done.stdout)
    assert match is not None, done.stdout[-500:]
    return json.loads(match[1].replace("&quot;", '"')), done.stderr


@pytest.mark.parametrize("width", [390, 1440])
def test_no_error_every_figure_no_sideways_scroll(page: Path, width: int) -> None:
    found, log = opened(page, width)
    assert found["figures"] == found["expected"]
    assert len(found["figures"]) == 7  # type: ignore[arg-type]
    assert found["scroll"] <= found["width"] == width  # type: ignore[operator]
    assert found["outside"] == []
    assert "CONSOLE" not in log


def test_dark(page: Path) -> None:
    light, _ = opened(page, 1440)
    dark, _ = opened(page, 1440, "--blink-settings=preferredColorScheme=0")
    assert light["paper"] == "rgb(255, 255, 255)"
    assert dark["paper"] == "rgb(20, 23, 27)"
    assert dark["ink"] == "rgb(231, 234, 238)"
