"""What MLflow holds is what the store holds, once, whatever happens to the server, the runner or the notes.

Cases: a tracker's failure ends a run (mlflow#1550, #2776): never; a killed run stays RUNNING and a resumed one repeats
its points (mlflow#4248, #10510): closed as KILLED or FAILED, the same run id, each step once.

Against a real ``mlflow server`` on this machine; most results are written here, as a trial would have.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from click.testing import CliRunner, Result

pytest.importorskip("mlflow")

from mlflow import MlflowClient

from harness import lock, tracking
from harness.cli import main
from harness.config import parse
from harness.errors import UserError
from harness.store import TrialFolder
from harness.trackers import companion, feed
from harness.trackers.feed import Busy, Feed, only
from harness.trackers.points import read

PATIENCE = 300.0
"""Seconds; a busy machine takes its time to import MLflow."""


class MLflowServer:
    """A real server on loopback that can be killed and started again on the same data."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port = folder, free_port()
        self.uri = f"http://127.0.0.1:{self.port}"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(self.port)]
        command += ["--backend-store-uri", f"sqlite:///{self.folder / 'server.db'}", "--workers", "1"]
        command += ["--artifacts-destination", str(self.folder / "artifacts")]
        env = {**os.environ, "MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
        with open(self.folder / "server.log", "ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, env=env, start_new_session=True)
        wait_until(self.answers, f"{self.folder / 'server.log'}")

    def answers(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, (self.folder / "server.log").read_text()[-2000:]
        try:
            with urllib.request.urlopen(f"{self.uri}/health", timeout=2) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def kill(self) -> None:
        if self.process is not None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            self.process = None


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def wait_until(true: Callable[[], Any], what: str = "it", seconds: float = PATIENCE) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if true():
            return
        time.sleep(0.1)
    raise AssertionError(f"{what}: not within {seconds} s")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MLflowServer]:
    made = MLflowServer(tmp_path_factory.mktemp("mlflow"))
    made.start()
    yield made
    made.kill()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Of an experiment with a name of its own: the server is shared."""
    return tmp_path / "results" / f"e-{tmp_path.parent.name}-{tmp_path.name}"


# -- results as a trial leaves them -----------------------------------------------------------------------------------


def stored(root: Path, seed: int = 0, status: str = "running", **values: Any) -> TrialFolder:
    folder = TrialFolder(root / "toy" / "one" / "fake" / f"seed_{seed}")
    settings = {"algorithm": {"lr": 1e-3, "layers": [64, 64]}, "suite": {"physics": "auto"}, "engine": "toy 1.0"}
    folder.update(
        experiment=root.name, suite="toy", task="one", algorithm="fake", seed=seed, settings=settings, engine="toy 1.0",
        metric="won", status=status, started="2026-01-02T03:04:05+00:00", parameters={"agent": 1234}, commit="abc",
        versions={"torch": "2"}, **values,
    )  # fmt: skip
    return folder


def loss(step: int) -> float:
    return 1 / (1 + step) + 0.1


def evaluated(folder: TrialFolder, steps: Sequence[int], whole: bool = True) -> None:
    """Rows of evaluations at ``steps``, in the order in which a trial writes them; the last without its end."""
    for step in steps:
        rows = [(step, k, float(step + k), 5, float(k % 2)) for k in range(4)]
        folder.append("evaluations.csv", ("env_steps", "episode", "return", "length", "won"), rows)
        folder.append("metrics.csv", ("env_steps", "metric", "value"), [(step, "td/loss", loss(step))])
        if whole or step != steps[-1]:
            folder.append("timings.csv", ("env_steps", "updates", "seconds"), [(step, step // 10, step / 100)])


def completed(folder: TrialFolder, at: int, won: float = 1.0) -> None:
    rows = [(at, k, 9.0, 5, won) for k in range(3)]
    folder.append("final.csv", ("env_steps", "episode", "return", "length", "won"), rows)
    folder.update(status="complete", ended=1767323045.5, env_steps=at, updates=7, train_seconds=1.5)


# -- what MLflow says -------------------------------------------------------------------------------------------------


class Seen:
    """Runs of one experiment, read with MLflow's own client."""

    def __init__(self, uri: str, name: str) -> None:
        self.client = MlflowClient(tracking_uri=uri)
        found = self.client.get_experiment_by_name(name)
        runs = self.client.search_runs([found.experiment_id]) if found else []
        self.parents = [r for r in runs if "mlflow.parentRunId" not in r.data.tags]
        self.children = {r.data.tags["harness.trial"]: r for r in runs if "mlflow.parentRunId" in r.data.tags}
        assert len(self.parents) + len(self.children) == len(runs)  # no trial has two runs

    def child(self, seed: int = 0) -> Any:
        return self.children[f"toy/one/fake/seed_{seed}"]

    def history(self, metric: str, seed: int = 0) -> list[tuple[int, float]]:
        found = self.client.get_metric_history(self.child(seed).info.run_id, metric)
        return sorted((m.step, m.value) for m in found)

    def status(self, seed: int = 0) -> str:
        return str(self.child(seed).info.status)


def test_parameters_metrics_and_status_arrive_right_and_once(server: MLflowServer, root: Path) -> None:
    folder = stored(root)
    evaluated(folder, [0, 50, 100])
    completed(folder, 100)
    failed = stored(root, 1, "failed", reason="ValueError: the sky is falling", ended=1767323000.0)
    evaluated(failed, [0])
    assert Feed(root, server.uri).step(live=False) > 0
    seen = Seen(server.uri, root.name)
    (parent,) = seen.parents
    assert parent.info.status == "FAILED"  # one of its trials
    child = seen.child()
    assert child.data.tags["mlflow.parentRunId"] == parent.info.run_id
    assert child.info.run_name == "one fake seed 0"
    assert (child.info.status, child.info.end_time) == ("FINISHED", 1767323045500)
    expected = {"algorithm.lr": "0.001", "algorithm.layers": "[64, 64]", "suite.physics": "auto", "seed": "0"}
    expected |= {"engine": "toy 1.0", "parameters.agent": "1234", "task": "one", "algorithm": "fake"}
    assert {k: child.data.params[k] for k in expected} == expected
    assert child.data.tags["versions.torch"] == "2"
    assert seen.history("td/loss") == [(s, loss(s)) for s in (0, 50, 100)]
    assert seen.history("eval/return") == [(s, s + 1.5) for s in (0, 50, 100)]
    assert seen.history("eval/won") == [(s, 0.5) for s in (0, 50, 100)]
    assert seen.history("final/won") == [(100, 1.0)]
    assert seen.history("cost/updates") == [(100, 7.0)]
    times = {m.step: m.timestamp for m in seen.client.get_metric_history(child.info.run_id, "td/loss")}
    assert times[100] - times[0] == 1000  # milliseconds of training
    assert seen.status(1) == "FAILED"
    assert seen.child(1).data.tags["reason"] == "ValueError: the sky is falling"
    assert seen.history("td/loss", 1) == [(0, loss(0))]

    # again; again with the server asked; again without the notes: nothing is repeated, no run is added
    assert Feed(root, server.uri).step(live=False) == 0
    assert Feed(root, server.uri, compare=True).step(live=False) == 0
    (root / feed.NAME).unlink()
    assert Feed(root, server.uri).step(live=False) == 0
    again = Seen(server.uri, root.name)
    assert again.child().info.run_id == child.info.run_id
    assert again.parents[0].info.run_id == parent.info.run_id
    assert again.history("td/loss") == seen.history("td/loss")


def test_a_killed_trial_is_closed_and_continues_under_the_same_run_without_repeating_a_point(
    server: MLflowServer, root: Path
) -> None:
    folder = stored(root)
    evaluated(folder, [0, 50], whole=False)
    first = Feed(root, server.uri)
    first.step(live=True)
    seen = Seen(server.uri, root.name)
    run = seen.child().info.run_id
    assert (seen.status(), seen.parents[0].info.status) == ("RUNNING", "RUNNING")
    assert seen.history("td/loss") == [(0, loss(0))]  # an evaluation half written is none yet
    folder.append("timings.csv", ("env_steps", "updates", "seconds"), [(50, 5, 0.5)])
    evaluated(folder, [100])
    assert first.step(live=True) > 0
    assert Feed(root, server.uri).step(live=False) == 0  # the runner is gone, nobody holds the trial's lock
    seen = Seen(server.uri, root.name)
    assert (seen.status(), seen.parents[0].info.status) == ("KILLED", "KILLED")
    folder.rewind({})  # resumed from an earlier checkpoint: rows are cut, and written again
    evaluated(folder, [0])
    handle = lock.acquire(folder.path)
    assert handle is not None
    second = Feed(root, server.uri)
    assert second.step(live=False) == 0
    assert Seen(server.uri, root.name).status() == "RUNNING"  # its lock is held
    evaluated(folder, [50, 100, 150])
    second.step(live=True)
    completed(folder, 150)
    os.close(handle)
    second.step(live=False)
    seen = Seen(server.uri, root.name)
    assert (seen.child().info.run_id, seen.status()) == (run, "FINISHED")
    for metric in ("td/loss", "eval/return", "eval/won"):
        assert [step for step, _ in seen.history(metric)] == [0, 50, 100, 150]


def test_an_answer_that_never_came_is_asked_for_before_anything_is_repeated(
    server: MLflowServer, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = stored(root)
    evaluated(folder, [0, 50])
    one = Feed(root, server.uri)
    log_batch = one.server.client.log_batch

    def lost(*arguments: Any, **options: Any) -> None:
        log_batch(*arguments, **options)
        if "metrics" in options:
            raise ConnectionError("connection reset")

    monkeypatch.setattr(one.server.client, "log_batch", lost)
    with pytest.raises(ConnectionError):
        one.step(live=True)
    monkeypatch.undo()
    folder.append("timings.csv", ("env_steps", "updates", "seconds"), [(50, 5, 99.0)])  # another clock: not by its time
    evaluated(folder, [100])
    assert one.step(live=True) > 0
    assert [step for step, _ in Seen(server.uri, root.name).history("td/loss")] == [0, 50, 100]


def test_a_trial_begun_anew_with_other_results_gets_a_run_of_its_own(server: MLflowServer, root: Path) -> None:
    folder = stored(root)
    evaluated(folder, [0, 50])
    Feed(root, server.uri).step(live=True)
    old = Seen(server.uri, root.name).child().info.run_id
    shutil.rmtree(folder.path)
    folder = stored(root)
    folder.append("metrics.csv", ("env_steps", "metric", "value"), [(0, "td/loss", 5.0), (50, "td/loss", 6.0)])
    completed(folder, 50)
    (root / feed.NAME).unlink()  # then the server's own values tell
    Feed(root, server.uri).step(live=False)
    seen = Seen(server.uri, root.name)
    assert seen.child().info.run_id != old
    assert seen.history("td/loss") == [(0, 5.0), (50, 6.0)]


def test_runs_deleted_in_mlflow_are_logged_anew(server: MLflowServer, root: Path) -> None:
    evaluated(stored(root), [0, 50])
    Feed(root, server.uri).step(live=False)
    seen = Seen(server.uri, root.name)
    seen.client.delete_run(seen.child().info.run_id)
    seen.client.delete_run(seen.parents[0].info.run_id)
    assert Feed(root, server.uri, compare=True).step(live=False) > 0
    seen = Seen(server.uri, root.name)
    assert [step for step, _ in seen.history("td/loss")] == [0, 50]
    assert seen.child().data.tags["mlflow.parentRunId"] == seen.parents[0].info.run_id


def test_values_and_names_that_mlflow_does_not_take_as_they_are(server: MLflowServer, root: Path) -> None:
    folder = stored(root, status="interrupted", failures=["x" * 9000])
    rows = [(0, "td/loss", math.nan), (0, "q[0]", math.inf), (0, "q:1", -math.inf), (5, "q[0]", 1.0)]
    folder.append("metrics.csv", ("env_steps", "metric", "value"), rows)
    assert Feed(root, server.uri).step(live=False) == 4
    assert Feed(root, server.uri, compare=True).step(live=False) == 0
    seen = Seen(server.uri, root.name)
    assert seen.history("q_0_")[1] == (5, 1.0)
    assert seen.history("q_0_")[0][1] > 1e308
    assert math.isnan(seen.history("td/loss")[0][1])
    assert seen.status() == "KILLED"


def test_a_damaged_trial_costs_only_itself(server: MLflowServer, root: Path) -> None:
    evaluated(stored(root), [0])
    (stored(root, 1).path / "trial.json").write_text("{")
    (stored(root, 2).path / "metrics.csv").write_text("garbage\n1\n")
    one = Feed(root, server.uri)
    one.step(live=False)
    assert sorted(Path(p).name for p in one.unreadable) == ["seed_1", "seed_2"]
    assert set(Seen(server.uri, root.name).children) == {"toy/one/fake/seed_0", "toy/one/fake/seed_2"}


def test_a_copy_of_results_gets_its_own_runs_and_a_moved_folder_keeps_them(server: MLflowServer, root: Path) -> None:
    evaluated(stored(root), [0])
    Feed(root, server.uri).step(live=False)
    run = Seen(server.uri, root.name).child().info.run_id
    copy = root.parent / "elsewhere" / root.name
    shutil.copytree(root, copy)
    assert Feed(copy, server.uri).mine["trials"] == {}
    shutil.rmtree(copy)
    shutil.move(root, copy)
    moved = Feed(copy, server.uri)
    assert moved.step(live=False) == 0
    assert moved.mine["trials"]["toy/one/fake/seed_0"]["run"] == run


def test_one_process_logs_an_experiment_at_a_time(root: Path) -> None:
    evaluated(stored(root), [0])
    with only(root):
        with pytest.raises(Busy), only(root):
            pass
        with pytest.raises(UserError, match="another process is logging this experiment"):
            tracking.track(root, "sqlite:///unused.db")


# -- the command line -------------------------------------------------------------------------------------------------


@pytest.fixture
def harness(fake_target: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    monkeypatch.chdir(tmp_path)
    return lambda *arguments: CliRunner().invoke(main, list(arguments))


def test_without_mlflow_it_says_how_to_get_it_before_anything_starts(
    harness: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    result = harness("run", "suite=toy", "tracking=mlflow")
    assert result.exit_code == 2
    line = "harness: tracking=mlflow: the package mlflow is not installed; pip install -e '.[mlflow]'\n"
    assert result.stderr == line
    assert not Path("results").exists()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("tracking=mlflow", "tracking_uri=htpp://x:1"), "did you mean 'http'?"),
        (("tracking=mlflow", "tracking_uri=localhost"), "not a URI"),
        (("tracking=mlflow", "tracking_uri=sqlite:results.db"), "three slashes"),
        (("tracking=mlfow",), "mlflow"),
        (("tracking_uri=http://x:1",), "nothing is tracked without tracking=mlflow"),
    ],
)
def test_a_wrong_tracker_is_one_line(harness: Callable[..., Result], arguments: tuple[str, ...], says: str) -> None:
    result = harness("run", "suite=toy", *arguments)
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    assert says in result.stderr


def test_tracking_is_no_part_of_a_trial(fake_marl: ModuleType) -> None:
    plain, tracked = (parse(["suite=toy", *more]).trials("cpu") for more in ((), ("tracking=mlflow",)))
    assert plain == tracked


def test_a_database_needs_no_server_and_holds_the_report(
    harness: Callable[..., Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tracking, "REPORT_SECONDS", PATIENCE)
    root = Path("results/exp")
    evaluated(folder := stored(root), [0, 50])
    completed(folder, 50)
    result = harness("track", "results/exp")
    assert result.exit_code == 0, result.output
    uri = f"sqlite:///{tmp_path / 'results/mlflow.db'}"
    assert f"exp: 14 new points -> {uri}" in result.output
    assert harness("track", "results/exp").output.startswith("exp: 0 new points")
    (tmp_path / "made").mkdir()
    (tmp_path / "made" / "report.html").write_text("<p>")
    assert tracking.log_report([root], tmp_path / "made") == ""
    seen = Seen(uri, "exp")
    (found,) = seen.client.list_artifacts(seen.parents[0].info.run_id, "report")
    assert found.path == "report/report.html"
    assert seen.history("eval/return") == [(0, 1.5), (50, 51.5)]


def test_what_is_no_folder_of_trials(harness: Callable[..., Result], tmp_path: Path) -> None:
    result = harness("track", "nowhere")
    assert (result.exit_code, result.stderr) == (
        2, "harness: nowhere: no trials there; `harness run suite=smac` makes some\n",
    )  # fmt: skip
    (tmp_path / "archive.parquet").touch()
    assert tracking.log_report([tmp_path / "archive.parquet", tmp_path], tmp_path) == ""  # a report of it is no error


def test_a_server_that_is_down_is_one_line_for_track(harness: Callable[..., Result]) -> None:
    evaluated(stored(Path("results/exp")), [0])
    result = harness("track", "results/exp", "--tracking-uri", f"http://127.0.0.1:{free_port()}")
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)


@pytest.fixture
def timed(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[float]]:
    """Seconds of each call of the runner's side of tracking."""
    seen: dict[str, list[float]] = {"poll": [], "close": []}

    def wrap(name: str) -> None:
        real = getattr(tracking.Companion, name)

        def timed_call(self: tracking.Companion) -> None:
            began = time.monotonic()
            real(self)
            seen[name].append(time.monotonic() - began)

        monkeypatch.setattr(tracking.Companion, name, timed_call)

    for name in seen:
        wrap(name)
    return seen


@pytest.mark.parametrize("kind", ["down", "mute"])
def test_a_server_that_is_down_or_never_answers_costs_the_run_nothing_and_is_caught_up(
    harness: Callable[..., Result],
    server: MLflowServer,
    kind: str,
    tmp_path: Path,
    timed: dict[str, list[float]],
) -> None:
    name = f"e-{tmp_path.name}"
    with socket.socket() as mute:
        mute.bind(("127.0.0.1", 0))
        if kind == "mute":
            mute.listen(64)  # connections are accepted by the system; nobody ever reads
        uri = f"http://127.0.0.1:{mute.getsockname()[1]}"
        command = ("run", "suite=toy", "tasks=one", "algorithms=fake", "seeds=1", "device=cpu", f"name={name}")
        result = harness(*command, "tracking=mlflow", f"tracking_uri={uri}")
    assert result.exit_code == 0, result.output
    assert "complete     one fake 0" in result.output
    assert f"`harness track results/{name}` logs the rest" in result.output
    assert max(timed["poll"]) < 0.5  # no look at the tracker takes time while trials run
    assert timed["close"][0] < companion.LAST + tracking.GRACE + 1
    result = harness("track", f"results/{name}", "--tracking-uri", server.uri)
    assert result.exit_code == 0, result.output
    seen = Seen(server.uri, name)
    assert seen.history("final/won") == [(1000, 1.0)]
    assert seen.status() == "FINISHED"


# -- beside a run -----------------------------------------------------------------------------------------------------


def test_a_killed_runner_leaves_no_process_and_its_trials_closed(server: MLflowServer, root: Path) -> None:
    evaluated(stored(root), [0])
    code = (
        "import sys, time; from pathlib import Path; from harness.tracking import Companion\n"
        "c = Companion(Path(sys.argv[1]), sys.argv[2], print); print(c._process.pid, flush=True); time.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", code, str(root), server.uri], stdout=subprocess.PIPE) as runner:
        assert runner.stdout is not None
        pid = int(runner.stdout.readline())
        wait_until(lambda: Seen(server.uri, root.name).children)
        runner.kill()
    wait_until(lambda: not Path(f"/proc/{pid}").exists(), "the companion's end", companion.LAST + 5)
    assert Seen(server.uri, root.name).status() == "KILLED"


def test_a_server_killed_in_mid_run_is_caught_up_when_it_is_back(server: MLflowServer, root: Path) -> None:
    folder = stored(root)
    evaluated(folder, [0])
    said: list[str] = []
    beside = tracking.Companion(root, server.uri, said.append)

    def looks(true: Callable[[], Any]) -> Callable[[], Any]:
        return lambda: (beside.poll(), true())[1]

    try:
        wait_until(looks(lambda: Seen(server.uri, root.name).children), "the trial's run")
        server.kill()
        evaluated(folder, [50])
        wait_until(looks(lambda: any("the trials go on" in text for text in said)), "word of the trouble")
        server.start()
        evaluated(folder, [100])
        completed(folder, 100)
        wait_until(looks(lambda: any("answers again" in text for text in said)), "word of the recovery")
    finally:
        beside.close()
    assert not any("logs the rest" in text for text in said), said
    seen = Seen(server.uri, root.name)
    assert [step for step, _ in seen.history("td/loss")] == [0, 50, 100]
    assert (seen.status(), seen.parents[0].info.status) == ("FINISHED", "FINISHED")


def test_what_is_read_of_a_trial_without_timings(root: Path) -> None:
    """Results of other systems have none: all of a trial that is over counts, nothing of one that runs."""
    folder = stored(root, status="complete")
    folder.append("evaluations.csv", ("env_steps", "episode", "return"), [(5, 0, 1.0), (5, 1, 2.0)])
    told = read(folder, root, live=False)
    assert told is not None
    assert [(p.metric, p.step, p.value) for p in told.points["evaluations.csv"]] == [("eval/return", 5, 1.5)]
    folder.update(status="running")
    told = read(folder, root, live=True)
    assert told is not None
    assert told.points["evaluations.csv"] == []
    assert json.loads(told.params["algorithm.layers"]) == [64, 64]
