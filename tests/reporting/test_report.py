from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd
import pytest

from harness.analysis.study import Options, study
from harness.errors import UserError
from harness.reporting.drawings import learning_curves
from harness.reporting.report import build
from harness.reporting.style import looks
from harness.store import TrialFolder

SMALL: dict[str, Any] = {
    "methods": {"ippo": (0.3, 0.5), "qmix": (0.9, 0.3), "vdn": (0.85, 0.3)}, "seeds": range(5), "points": 6,
    "env_steps": 50_000, "final_episodes": 40, "eval_episodes": 8,
}  # fmt: skip


class Outline(HTMLParser):
    """Ids and links of a page, and whether every tag is closed."""

    VOID = ("meta", "link", "br", "img", "path", "use", "rect", "circle")

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.links: list[str] = []
        self.external: list[str] = []
        self.open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open.append(tag)
        for name, value in attrs:
            if name == "id" and value:
                self.ids.append(value)
            if name == "href" and value and tag == "a":
                self.links.append(value)
            if name in ("src", "srcset") or (name == "href" and tag == "link"):
                self.external.append(value or "")
        if tag in ("meta", "link", "br", "img"):
            self.open.pop()

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in ("meta", "link", "br", "img"):
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open
        assert self.open.pop() == tag


@pytest.fixture(scope="module")
def folder(synthetic: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report of three methods on three tasks."""
    root = tmp_path_factory.mktemp("report")
    path = synthetic.write(synthetic.Made(root, **SMALL, tasks=("3m", "8m", "MMM2")))
    return build([path], root / "out", ("html", "md"), resamples=500).parent


def test_files(folder: Path) -> None:
    names = {p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file()}
    assert {"report.html", "report.md"} <= names
    figures = {n.split("/")[1].split(".")[0] for n in names if n.startswith("figures/")}
    assert figures == {"learning_curves", "final_scores", "aggregate", "performance_profile", "sample_efficiency",
                       "improvement", "ranks"}  # fmt: skip
    for name in figures:
        for kind in ("png", "pdf", "svg", "csv"):
            assert (folder / f"figures/{name}.{kind}").stat().st_size > 20
    tables = {n.split("/")[1].split(".")[0] for n in names if n.startswith("tables/")}
    assert {"final_by_task", "final_scores", "aggregate", "pairs", "steps_to_score", "fairness", "provenance"} <= tables
    assert "time_to_score" in tables
    assert not {"cpu_time_to_score", "energy_to_score"} & tables  # these results hold none
    assert {p.suffix for p in (folder / "tables").iterdir()} == {".csv", ".tex", ".md"}


def test_html_is_whole_and_opens_without_a_network(folder: Path) -> None:
    text = (folder / "report.html").read_text()
    page = Outline(text)
    assert page.open == []
    assert page.external == ["data:,"]
    assert len(page.ids) == len(set(page.ids))
    for link in page.links:
        if link.startswith("#"):
            assert link[1:] in page.ids
        else:
            assert (folder / link).exists()
    assert "@import" not in text
    assert not re.search(r"url\((?!#)", text)
    assert len(text) < 5_000_000


def test_summary_says_who_is_above_whom(folder: Path) -> None:
    text = (folder / "report.md").read_text()
    assert "ippo, qmix and vdn on 3 tasks of smac (smax 0.2.0): 5 seeds each, 50k environment steps." in text
    assert "qmix is above ippo on 3 of 3 tasks" in text
    assert re.search(r"qmix is above vdn on none of 3 tasks; no difference shown on 3m \(.*seeds? each needed", text)
    assert "The methods differ in parameters" in text


def test_data_of_figures_is_what_is_drawn(folder: Path) -> None:
    curves = pd.read_csv(folder / "figures/learning_curves.csv")
    assert len(curves) == 3 * 3 * 6
    assert set(curves.columns) == {"task", "algorithm", "env_steps", "value", "low", "high", "seeds"}
    assert ((curves["low"] <= curves["value"]) & (curves["value"] <= curves["high"])).all()
    assert curves["low"].min() >= 0
    assert curves["high"].max() <= 1
    finals = pd.read_csv(folder / "figures/final_scores.csv")
    values = finals["values"].map(lambda t: np.mean([float(x) for x in t.split()]))
    assert values.to_numpy() == pytest.approx(finals["mean"].to_numpy())


def test_the_same_results_make_the_same_bytes(synthetic: ModuleType, tmp_path: Path) -> None:
    path = synthetic.write(synthetic.Made(tmp_path, **{**SMALL, "seeds": range(3)}))
    first, second = (build([path], tmp_path / n, ("html", "md"), resamples=200).parent for n in ("a", "b"))
    for file in sorted(p for p in first.rglob("*") if p.is_file()):
        assert file.read_bytes() == (second / file.relative_to(first)).read_bytes(), file.name


def test_one_task_has_no_aggregate_panel(synthetic: ModuleType, tmp_path: Path) -> None:
    path = synthetic.write(synthetic.Made(tmp_path, **{**SMALL, "seeds": range(2)}))
    out = build([path], tmp_path / "out", ("html", "md")).parent
    text = (out / "report.html").read_text()
    assert 'id="aggregate"' not in text
    assert 'id="cdm"' not in text
    assert "not estimable" in text
    assert not (out / "figures/aggregate.png").exists()
    assert pd.read_csv(out / "figures/learning_curves.csv")["low"].isna().all()


def test_an_earlier_report_leaves_nothing_behind(synthetic: ModuleType, tmp_path: Path) -> None:
    path = synthetic.write(synthetic.Made(tmp_path, **{**SMALL, "seeds": range(2)}))
    out = tmp_path / "out"
    (out / "figures").mkdir(parents=True)
    (out / "figures/aggregate.png").write_bytes(b"old")
    (out / "notes.txt").write_text("mine")
    build([path], out, ("md",))
    assert not (out / "figures/aggregate.png").exists()
    assert not (out / "report.html").exists()
    assert (out / "notes.txt").read_text() == "mine"


def test_default_folder_is_the_experiments(
    synthetic: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = synthetic.write(synthetic.Made(tmp_path, **{**SMALL, "seeds": range(2)}, experiment="mine"))
    monkeypatch.chdir(tmp_path)
    assert build([path], None, ("md",)) == Path("reports/mine/report.md")


def test_guards_speak_in_the_report(synthetic: ModuleType, tmp_path: Path) -> None:
    made = synthetic.Made(tmp_path, **SMALL)
    path = synthetic.write(made)
    synthetic.trial(made, "3m", "qmix", 9, np.random.default_rng(0), status="failed")
    TrialFolder(path / "smac/3m/qmix/seed_9").update(reason="the game <died> & left")
    text = build([path], tmp_path / "out", ("html",), resamples=200).read_text()
    assert "Read this first" in text
    assert "qmix on 3m seed 9" in text
    assert "the game &lt;died&gt; &amp; left" in text


def test_strange_names_do_not_break_the_page(synthetic: ModuleType, tmp_path: Path) -> None:
    methods = {"a<b>&'c": (0.3, 0.4), "qmix@pymarl2_$x$": (0.9, 0.3)}
    knobs = {**SMALL, "methods": methods, "seeds": range(3), "tasks": ("x$_$y",)}
    path = synthetic.write(synthetic.Made(tmp_path, **knobs))
    out = build([path], tmp_path / "out", ("html", "md"), resamples=200).parent
    text = (out / "report.html").read_text()
    assert Outline(text).open == []
    assert "<b>" not in text
    assert r"qmix@pymarl2\_\$x\$" in (out / "tables/final_scores.tex").read_text()


def test_returns_in_their_own_unit(synthetic: ModuleType, tmp_path: Path) -> None:
    path = synthetic.write(synthetic.Made(tmp_path, **SMALL, metric="return", bounds=(-200.0, 50.0)))
    out = build([path], tmp_path / "out", ("md",), resamples=200).parent
    text = (out / "tables/final_scores.md").read_text()
    assert "Return with 95% intervals" in text
    assert "−" in text
    assert "seeds.md" in {p.name for p in (out / "tables").iterdir()}
    assert "Wilson" in (out / "tables/seeds.md").read_text()


def test_refuses_unknown_options_and_formats(synthetic: ModuleType, tmp_path: Path) -> None:
    path = synthetic.write(synthetic.Made(tmp_path, **{**SMALL, "seeds": range(2)}))
    with pytest.raises(UserError, match="format pdf"):
        build([path], tmp_path / "o", ("pdf",))
    with pytest.raises(UserError, match=r"unknown report option 'baselin'.*'baseline'"):
        build([path], tmp_path / "o", baselin="qmix")
    with pytest.raises(UserError, match=r"unknown match 'steps'"):
        build([path], tmp_path / "o", match="steps")
    with pytest.raises(UserError, match=r"unknown baseline 'qmx'.*'qmix'"):
        build([path], tmp_path / "o", baseline="qmx")
    with pytest.raises(UserError, match="no such folder"):
        build([tmp_path / "nowhere"], tmp_path / "o")


def test_baseline_match_and_partial(synthetic: ModuleType, tmp_path: Path) -> None:
    made = synthetic.Made(tmp_path, **SMALL)
    path = synthetic.write(made)
    out = build([path], tmp_path / "a", ("md",), baseline="ippo", match="seconds", statistic="iqm", resamples=200)
    text = out.read_text()
    assert "qmix is above ippo on 3m" in text
    assert "Methods are compared at equal seconds" in text
    assert "qmix and vdn cannot" not in text
    synthetic.trial(made, "3m", "qmix", 9, np.random.default_rng(0), status="running")
    partial = build([path], tmp_path / "b", ("md",), partial=True, resamples=200).read_text()
    assert "Budgets differ on 3m" in partial
    assert "Seed 9 of qmix on smac/3m has 3 of 6 points" in partial


def test_energy_that_was_not_measured_is_said_in_words(folder: Path) -> None:
    page = (folder / "report.html").read_text()
    assert page.count("Energy was not measured: made before it was recorded (45 of 45 trials).") == 2
    assert "No tuning budget was declared." in page


def test_curves_of_different_budgets_show_where_they_are_compared(synthetic: ModuleType, tmp_path: Path) -> None:
    """epymarl#9: 40M on-policy against 4M off-policy on one axis."""
    more = {**SMALL, "env_steps": 100_000, "points": 11, "methods": {"ippo": (0.3, 0.5)}}
    synthetic.write(synthetic.Made(tmp_path, **more))
    path = synthetic.write(synthetic.Made(tmp_path, **{**SMALL, "methods": {"qmix": (0.9, 0.3)}}))
    made = study([path], Options(resamples=200))
    drawing = learning_curves(made, looks(made.algorithms))
    assert drawing is not None
    assert "Upright line: the common step" in drawing.caption
    upright = [ln for ln in drawing.whole().axes[0].lines if list(ln.get_xdata()) == [50_000, 50_000]]
    assert len(upright) == 1
    same = study([path], Options(resamples=200, algorithms=("qmix",)))
    assert "Upright" not in learning_curves(same, looks(same.algorithms)).caption  # type: ignore[union-attr]
