from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pandas as pd
import pytest

from harness.analysis.bootstrap import Estimate
from harness.analysis.scores import TaskInfo
from harness.reporting import words
from harness.reporting.tables import Cell, Table, cells, escape

ROWS = (
    cells(["3m", "a|b", Cell("0.9", strong=True)]),
    cells(["3m", "c", "0.1"]),
    cells(["8m", "c", Cell("−1", mark=True)]),
)
COLUMNS = ("Task", "Method", "Mean")
TABLE = Table("t", "Scores_of 100%", "A & B", COLUMNS, ROWS, pd.DataFrame({"x": [1]}), labels=2)


def test_markdown() -> None:
    lines = TABLE.markdown().splitlines()
    assert lines[2:5] == ["| Task | Method | Mean |", "| --- | --- | ---: |", "| 3m | a\\|b | **0.9** |"]
    assert "| −1 † |" in lines[6]


def test_latex() -> None:
    text = TABLE.latex()
    assert r"\caption{Scores\_of 100\%. A \& B}" in text
    assert r"3m & a|b & \textbf{0.9} \\" in text
    assert text.count(r"\addlinespace") == 1
    assert r"$-$1$^\dagger$" in text
    for rule in ("toprule", "midrule", "bottomrule"):
        assert rule in text


def test_escape() -> None:
    assert escape(r"a_b{c}\d~") == r"a\_b\{c\}\textbackslash{}d\textasciitilde{}"


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="no LaTeX here")
def test_latex_compiles(tmp_path: Path) -> None:
    head = "\\documentclass{article}\\usepackage{booktabs}\\begin{document}\n"
    (tmp_path / "x.tex").write_text(head + TABLE.latex() + "\\end{document}")
    subprocess.run(["pdflatex", "-halt-on-error", "x.tex"], cwd=tmp_path, check=True, capture_output=True)


def test_words() -> None:
    assert words.value(-0.0004) == "0.000"
    assert words.value(-1.25, 1) == "−1.2"
    assert words.estimate(Estimate(0.5)) == "0.500"
    assert words.estimate(Estimate(0.5, 0.25, 0.75)) == "0.500 [0.250, 0.750]"
    assert words.interval(Estimate(0.5)) == "not estimable"
    assert [words.p_value(p) for p in (None, 1e-9, 0.0123, 0.5)] == ["not estimable", "<0.0001", "0.012", "0.50"]
    assert words.plural(1, "seed") == "1 seed"
    assert words.join(["a", "b", "c"]) == "a, b and c"


def test_digits_show_a_thousandth_of_the_bounds() -> None:
    assert [words.digits(TaskInfo("s", "t", "return", 0, high)) for high in (1, 20, 1_000, 10_000)] == [3, 2, 0, 0]
