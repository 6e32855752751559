"""The command line, from outside: exit codes, one-line errors, running again, Ctrl-C, kill -9, two runs at once.

Cases: an unknown key is refused with the nearest match (epymarl#22, #62, facmac#2); the same command again does only
what is missing (hydra#1407).
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import psutil
import pytest
from click.testing import CliRunner, Result

from harness.cli import main
from harness.config import parse
from harness.plan import make
from harness.store import TrialFolder, ask, asked

PATIENCE = 300
"""Seconds; a busy machine takes half a minute to start a process that imports torch."""

PROGRAM = "import harness.executors.local as l; l.TARGET = 'fake_marl:run'; from harness.cli import main; main()"


@pytest.fixture
def harness(fake_target: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """Call the command line in this process, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return lambda *arguments: CliRunner().invoke(main, list(arguments))


@pytest.fixture
def start(
    fake_target: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start `harness run suite=toy` in a process of its own; whatever is left is killed afterwards."""
    started: list[subprocess.Popen[str]] = []

    def go(*arguments: str, seconds: float = 0.0) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", PROGRAM, "run", "suite=toy", "algorithms=fake", "device=cpu", *arguments]
        env = {**os.environ, "FAKE_SECONDS": str(seconds)}
        pipe = subprocess.PIPE
        started.append(
            subprocess.Popen(command, cwd=tmp_path, env=env, stdout=pipe, stderr=subprocess.STDOUT, text=True)
        )
        return started[-1]

    yield go
    for process in started:
        process.kill()
        process.wait()


def wait_for(path: Path, seconds: float = 300.0) -> str:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if path.exists() and path.read_text():
            return path.read_text()
        time.sleep(0.05)
    raise AssertionError(f"{path} did not appear")


def gone(pid: int, within: float = 30.0) -> bool:
    until = time.monotonic() + within
    while time.monotonic() < until and psutil.pid_exists(pid):
        time.sleep(0.05)
    return not psutil.pid_exists(pid)


# -- errors -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("run", "suite=toy", "tsaks=one"), "harness: unknown key 'tsaks'; did you mean 'tasks'?\n"),
        (("run", "suite=toi"), "harness: unknown suite 'toi'; did you mean 'toy'?\n"),
        (("show", "fak"), "harness: unknown algorithm or suite 'fak'; did you mean 'fake'?\n"),
        (("show", "fake@bgi"), "harness: unknown preset of fake 'bgi'; did you mean 'big'?\n"),
        (("status",), "harness: no results below results; `harness run suite=smac` makes some\n"),
        (("status", "nowhere"), "harness: nowhere: no trials there; `harness run suite=smac` makes some\n"),
        (("report",), "harness: no results below results; `harness run suite=smac` makes some\n"),
    ],
)
def test_a_users_error_is_one_line_on_stderr_and_exit_code_2(
    harness: Callable[..., Result], arguments: tuple[str, ...], line: str
) -> None:
    result = harness(*arguments)
    assert result.exit_code == 2
    assert result.stderr.startswith(line)
    assert result.stderr.count("\n") == 1
    assert result.stdout == ""
    assert not Path("results").exists()


def test_wrong_usage_is_exit_code_2_too(harness: Callable[..., Result]) -> None:
    assert harness("run", "--wrong").exit_code == 2
    assert harness("list", "planets").exit_code == 2


def test_a_fault_of_the_harness_keeps_its_traceback(
    harness: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(arguments: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("harness.config.parse", broken)
    assert isinstance(harness("run", "suite=toy").exception, ZeroDivisionError)


# -- reading ------------------------------------------------------------------------------------------------------


def test_help_costs_no_heavy_import() -> None:
    code = "import sys, harness.cli; print([m for m in ('torch', 'pandas', 'jax', 'pydantic') if m in sys.modules])"
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "[]\n"


def test_help_names_every_setting(harness: Callable[..., Result]) -> None:
    text = harness("run", "--help").output
    for key in (
        "suite=",
        "tasks=",
        "seeds=",
        "budget=",
        "env_steps=",
        "eval_every=",
        "workers=",
        "max_memory=",
        "name=",
    ):
        assert f"  {key}" in text
    assert "Default: <suite>-<budget>." in " ".join(text.split())


def test_list_shows_what_is_installed(harness: Callable[..., Result]) -> None:
    assert "Fake (Nobody 2000): does what it is told." in " ".join(harness("list", "algorithms").output.split())
    assert "Tasks that need no environment." in " ".join(harness("list", "suites").output.split())
    tasks = harness("list", "tasks").output
    assert [line.split()[-3:] for line in tasks.splitlines() if " one " in line] == [["one", "discrete", "(default)"]]
    everything = harness("list").output
    assert "fake_continuous" in everything
    assert "smooth" in everything


def test_show_tells_fields_presets_and_source(harness: Callable[..., Result], fake_marl: ModuleType) -> None:
    text = harness("show", "fake").output
    assert "A second paragraph." in text
    for part in ("batch_episodes", "Episodes that the", "sum | product", "none", "fake@big", "layers=128,128 lr=0.002"):
        assert part in text
    assert Path(str(fake_marl.__file__)).name in text
    row = next(line for line in harness("show", "fake@big").output.splitlines() if line.startswith("layers"))
    assert row.split()[-1] == "128,128"
    suite = harness("show", "toy").output
    for part in ("physics", "auto | exact", "10,000", "one*", "smooth"):
        assert part in suite


def test_dry_run_prints_the_plan_and_starts_nothing(harness: Callable[..., Result]) -> None:
    result = harness("run", "suite=toy", "seeds=0,1,2,5", "workers=2", "device=cpu", "--dry-run")
    assert result.exit_code == 0
    assert "toy-quick: 8 trials, 8 to do, 2 at once" in result.output
    assert "engine: toy 1.0" in result.output
    assert "left out: not_written_yet (not installed)" in result.output
    row = next(line for line in result.output.splitlines() if line.startswith("one"))
    assert row.split() == ["one", "fake", "0-2,", "5", "4", "765", "KB", "–"]
    assert "known once such a trial is complete" in result.output
    assert not Path("results").exists()


# -- running ------------------------------------------------------------------------------------------------------


def test_running_again_does_only_what_is_missing(harness: Callable[..., Result]) -> None:
    command = (
        "run",
        "suite=toy",
        "tasks=one",
        "algorithms=fake",
        "device=cpu",
        "fake.behaviour=raise once",
        "fake.bad_seed=1",
        "retries=0",
    )
    first = harness(*command, "seeds=2")
    assert first.exit_code == 1
    assert "failed       one fake 1: ValueError: the sky is falling" in first.output
    assert "complete     one fake 0" in first.output
    assert "the same command tries the failed trials again" in first.output
    second = harness(*command, "seeds=2")
    assert second.exit_code == 0
    assert "1 trial to do (1 complete already)" in second.output
    assert "started      one fake 1" in second.output
    assert "started      one fake 0" not in second.output
    third = harness(*command, "seeds=2")
    assert third.exit_code == 0
    assert "0 trials to do (2 complete already)" in third.output
    refused = harness(*command, "seeds=2", "fake.lr=9")
    assert refused.exit_code == 2
    assert "with fake.lr=0.001, now it is 9.0" in refused.output
    table = harness("status").output
    assert "2 complete" in table
    assert "won 1.00 final" in table


def test_status_gives_the_reasons(harness: Callable[..., Result]) -> None:
    for name, seed, values in (("old", 0, {}), ("new", 0, {}), ("new", 1, {"reason": "it rained"})):
        folder = TrialFolder(Path("results") / name / "toy/one/fake" / f"seed_{seed}")
        folder.update(status="failed" if values else "running", **values)
        os.utime(folder.path / "trial.json", (1e9 + (name == "new"),) * 2)
    text = harness("status").output
    assert text.startswith("results/new\n")
    assert "it rained" in text
    assert "1 failed, 1 interrupted" in text  # nobody holds the lock of the one that says it runs
    assert "1 failed, 2 interrupted" in harness("status", "results").output


def test_status_knows_of_trials_that_nobody_has_begun(harness: Callable[..., Result]) -> None:
    """Killed early, a run would otherwise look as small as what it had begun."""
    assert harness("run", "suite=toy", "tasks=one", "algorithms=fake", "seeds=2", "name=big").exit_code == 0
    plan = make(parse(["suite=toy", "tasks=one,two", "algorithms=fake", "seeds=2", "name=big"]))
    ask([item.trial for item in plan.items])
    ask([item.trial for item in plan.items])
    assert asked(Path("results/big")) == [
        f"toy/{t}/fake/seed_{s}" for s, t in ((0, "one"), (1, "one"), (0, "two"), (1, "two"))
    ]
    for place in (), ("results",), ("results/big",):
        assert "2 complete, 2 new" in harness("status", *place).output
    text = harness("status", "results/big/toy/two").output
    assert re.search(r"two +fake +0 new", text)
    assert text.strip().endswith("2 new")
    Path("results/big/asked.json").write_text("[")
    assert harness("status").output.strip().endswith("2 complete")


def test_the_experiment_run_last_is_the_users_never_the_committed_reference(harness: Callable[..., Result]) -> None:
    """A checkout makes the reference's files as new as can be."""
    for place, when in (("reference/smac-3m", 2e9), ("older", 1e9), ("mine", 1.5e9)):
        folder = TrialFolder(Path("results") / place / "toy/one/fake/seed_0")
        folder.update(status="complete", reason="")
        os.utime(folder.path / "trial.json", (when, when))
    assert harness("status").output.startswith("results/mine\n")
    assert harness("status", "results/reference").output.startswith("results/reference\n")
    for place in ("older", "mine"):
        shutil.rmtree(Path("results") / place)
    for command in (("status",), ("report",), ("compare", "a", "b"), ("export", "--format", "csv")):
        refused = harness(*command)
        assert refused.exit_code == 2
        assert refused.stderr == (
            "harness: no results below results; `harness run suite=smac` makes some; "
            "those that came with the repository are read when named: results/reference/smac-3m\n"
        )


def test_ctrl_c_writes_checkpoints_and_the_same_command_continues(
    start: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    process = start("tasks=one", "seeds=1", seconds=600)
    folder = TrialFolder(tmp_path / "results/toy-quick/toy/one/fake/seed_0")
    child = int(wait_for(folder.path / "visits"))
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130, output
    assert "stopping" in output
    assert "interrupted" in output
    assert "Traceback" not in output
    assert gone(child)
    assert (folder.path / "checkpoint.pt").exists()
    assert (folder.record() or {})["status"] == "interrupted"
    again = start("tasks=one", "seeds=1")
    output, _ = again.communicate(timeout=PATIENCE)
    assert again.returncode == 0, output
    assert (folder.record() or {})["status"] == "complete"


def test_a_second_ctrl_c_ends_a_child_that_does_not_listen(
    start: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    process = start("tasks=one", "seeds=1", "fake.behaviour=deaf")
    folder = TrialFolder(tmp_path / "results/toy-quick/toy/one/fake/seed_0")
    child = int(wait_for(folder.path / "hanging"))
    process.send_signal(signal.SIGINT)
    time.sleep(1.5)
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130, output
    assert gone(child)
    assert (folder.record() or {})["status"] == "interrupted"


def test_no_child_outlives_a_killed_parent_and_its_trial_can_be_taken_up(
    start: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    process = start("tasks=one", "seeds=1", seconds=600)
    folder = TrialFolder(tmp_path / "results/toy-quick/toy/one/fake/seed_0")
    child = int(wait_for(folder.path / "visits"))
    process.kill()
    process.wait()
    assert gone(child)
    again = start("tasks=one", "seeds=1")
    output, _ = again.communicate(timeout=PATIENCE)
    assert again.returncode == 0, output
    assert len((folder.path / "visits").read_text().split()) == 2


def test_two_runs_at_once_share_the_work(start: Callable[..., subprocess.Popen[str]], tmp_path: Path) -> None:
    both = [start("seeds=2", "workers=1", seconds=4) for _ in range(2)]
    outputs = [p.communicate(timeout=PATIENCE)[0] for p in both]
    assert [p.returncode for p in both] == [0, 0], outputs
    begun = [output.count("started ") for output in outputs]
    assert sum(begun) == 4
    assert min(begun) >= 1
    visits = list((tmp_path / "results").rglob("visits"))
    assert [len(v.read_text().split()) for v in visits] == [1] * 4


@pytest.mark.parametrize("place", ["/proc/nowhere", "/dev/null"])
def test_a_place_that_cannot_be_written_is_told_in_one_line(harness: Callable[..., Result], place: str) -> None:
    found = harness("run", "suite=toy", "tasks=one", "algorithms=fake", "seeds=1", f"results={place}")
    assert found.exit_code == 2
    assert found.output.splitlines()[-1].startswith(f"harness: {place}")
