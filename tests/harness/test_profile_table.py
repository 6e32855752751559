"""The table that ``profile=on`` prints."""

from pathlib import Path

from rich.console import Console

from harness.config import parse
from harness.executors.local import PROFILED
from harness.plan import make
from harness.profile_table import profile_table
from harness.results_table import after_run
from harness.runner import Outcome, Runner
from harness.store import TrialFolder
from harness.types import Trial
from tests.harness.test_runner import Silent


def made(results: Path, label: str, seed: int, forward: float, task: str = "climbing") -> Trial:
    """A trial with 4 s of training, ``forward`` of them in the losses."""
    trial = Trial("e", "matrix", task, label, seed, {}, str(results))
    parts = {
        "forward": {"seconds": forward, "calls": 3, "share": forward / 4},
        "act": {"seconds": 4 - forward, "calls": 9, "share": 1 - forward / 4},
    }
    told = {
        "env_steps": 400,
        "slots": {"all": 200, "idle": 50, "idle_share": 0.25},
        "training": parts,
        "evaluation": {"act": {"seconds": 61.0, "calls": 2, "share": 1.0}},
    }
    TrialFolder.of(trial).update(profile=told)
    return trial


def printed(table: object, width: int = 60) -> list[str]:
    console = Console(width=width, highlight=False)
    with console.capture() as out:
        console.print(table)
    return out.get().splitlines()


def cells(lines: list[str], row: str) -> list[str]:
    return next(line for line in lines if line.startswith(row)).removeprefix(row).split()


def test_a_row_a_part_a_column_a_method_seeds_added_up(tmp_path: Path) -> None:
    trials = [made(tmp_path, "vdn", 0, 1.0), made(tmp_path, "vdn", 1, 3.0), made(tmp_path, "qmix", 0, 3.0)]
    lines = printed(profile_table(trials))
    assert cells(lines, "forward") == ["50.0%", "75.0%"]
    assert cells(lines, "act") == ["50.0%", "25.0%"]
    assert cells(lines, "environment") == ["–", "–"]
    assert cells(lines, "idle slots") == ["25.0%", "25.0%"]
    assert cells(lines, "env steps/s") == ["100", "100"]
    assert cells(lines, "training") == ["8s", "4s"]
    assert cells(lines, "evaluation") == ["2m02s", "1m01s"]
    assert not [line for line in lines if line.startswith("diagnostics")]


def test_it_is_never_wider_than_a_narrow_terminal(tmp_path: Path) -> None:
    labels = [*(f"method{k}" for k in range(9)), "qmix@pymarl2+hidden=128", "vdn"]
    lines = printed(profile_table([made(tmp_path, label, 0, 1.0) for label in labels]), width=200)
    assert max(map(len, lines)) <= 60
    text = "\n".join(lines)
    assert all(text.count(f"method{k}") == 1 for k in range(9))
    assert text.count("25.0%") == 2 * len(labels)  # forward, idle slots


def test_trials_without_a_profile_are_counted(tmp_path: Path) -> None:
    trials = [made(tmp_path, "vdn", 0, 1.0), Trial("e", "matrix", "penalty", "vdn", 1, {}, str(tmp_path))]
    text = "\n".join(printed(profile_table(trials)))
    assert "1 trial without a profile" in text
    assert "over 2 tasks" in text
    assert "2 trials without a profile" in "\n".join(printed(profile_table([trials[1], trials[1]])))


def test_the_switch_chooses_what_children_run_and_what_is_printed(tmp_path: Path) -> None:
    asked = ["suite=matrix", "tasks=climbing", "algorithms=vdn", "seeds=1", "budget=smoke", f"results={tmp_path}"]
    on, off = make(parse([*asked, "profile=on"])), make(parse(asked))
    assert Runner(on, Silent()).target == PROFILED
    assert Runner(off, Silent()).target is None
    title = "Share of training time"
    trial = on.items[0].trial
    TrialFolder.of(trial).update(profile=TrialFolder.of(made(tmp_path, "vdn", 0, 1.0)).record()["profile"])  # type: ignore[index]
    assert title in "\n".join(printed(after_run(on, Outcome())))
    assert title not in "\n".join(printed(after_run(off, Outcome())))
