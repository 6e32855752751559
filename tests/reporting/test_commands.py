from __future__ import annotations

import json
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from harness.errors import UserError
from harness.reporting.commands import COMMANDS

SMALL: dict[str, Any] = {
    "methods": {"ippo": (0.3, 0.5), "qmix": (0.9, 0.3)}, "seeds": range(5), "points": 4, "env_steps": 30_000,
    "final_episodes": 20, "eval_episodes": 4, "tasks": ("3m", "8m"),
}  # fmt: skip


@pytest.fixture
def path(synthetic: ModuleType, tmp_path: Path) -> Path:
    return synthetic.write(synthetic.Made(tmp_path / "results", **SMALL))  # type: ignore[no-any-return]


def call(*words: object, width: int = 200) -> Result:
    group = click.Group(commands={c.name or "": c for c in COMMANDS})
    return CliRunner().invoke(group, [str(w) for w in words], terminal_width=width, env={"COLUMNS": str(width)})


def test_report(path: Path, tmp_path: Path) -> None:
    out = call("report", path, "--out", tmp_path / "o", "--format", "md", "--tasks", "3m", "--resamples", 200)
    assert out.exit_code == 0, out.output
    assert Path(out.output.strip()).read_text().startswith("# Report: made")


def test_compare(path: Path) -> None:
    out = call("compare", "qmix", "ippo", path, "--resamples", 200)
    assert out.exit_code == 0, out.output
    assert out.output.count("qmix is above") == 2
    assert "Over 2 tasks P(qmix > ippo) is 1.00 [" in out.output
    both = call("compare", "qmix", "ippo", path, "--task", "8m", "--task", "3m", "--resamples", 200)
    assert both.output == out.output
    turned = call("compare", "ippo", "qmix", path, "--task", "8m", "--resamples", 200)
    assert "−0." in turned.output
    assert turned.output.count("qmix is above") == 1


def test_compare_in_a_narrow_terminal_cuts_nothing(path: Path) -> None:
    text = call("compare", "qmix", "ippo", path, "--resamples", 200, width=60).output
    assert re.findall(r"^(\w+) *$", text, flags=re.M) == ["3m", "8m"]
    assert len(re.findall(r"^ P\(qmix > ippo\) +1\.00 \[.*\] *$", text, flags=re.M)) == 2
    assert len(re.findall(r"^ verdict +qmix is above *$", text, flags=re.M)) == 2
    assert "…" not in text


def test_compare_refuses_in_one_line(path: Path) -> None:
    wrong = call("compare", "qmix", "ipo", path)
    assert isinstance(wrong.exception, UserError)
    assert "did you mean 'ippo'" in str(wrong.exception)
    assert "name two methods" in str(call("compare", "qmix", "qmix", path).exception)


def test_export_and_import(path: Path, tmp_path: Path) -> None:
    file = tmp_path / "x.json"
    out = call("export", path, "--format", "marl-eval", "--out", file)
    assert out.output.strip() == str(file)
    assert list(json.loads(file.read_text())["smac"]) == ["3m", "8m"]
    made = call("import", file, "--format", "marl-eval", "--name", "theirs", "--results", tmp_path / "results")
    assert made.exit_code == 0, made.output
    assert made.output.startswith("20 trials below")
    both = call("report", tmp_path / "results/theirs", "--out", tmp_path / "o", "--tasks", "3m", "--resamples", 200)
    assert both.exit_code == 0, both.output
    text = Path(both.output.strip()).with_name("report.md").read_text()
    assert "qmix is imported from marl-eval (x.json). Its engine is unknown" in text


def test_import_options_are_checked(path: Path) -> None:
    cases = (("--bounds", "1", "two numbers"), ("--bounds", "2,1", "below"), ("--tag", "x", "SOURCE"))
    for option, value, words in cases:
        failed = call("import", path, "--format", "csv", "--name", "n", option, value)
        assert isinstance(failed.exception, UserError)
        assert words in str(failed.exception)
