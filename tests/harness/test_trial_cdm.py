"""A trial with ``cdm=on`` or ``corrupt=``: what they measure or change, and what they must leave alone."""

import csv
import dataclasses
import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from harness import registry
from harness.config import parse
from harness.errors import UserError
from harness.plan import make
from harness.store import TrialFolder
from harness.trial import Loop, run
from harness.types import Progress, Trial
from tests.support.trials import finish, identical, state, stop_after, tables, tiny

METHODS = pytest.mark.parametrize(
    ("name", "kind"),
    [
        (name, kind)
        for name, kind in (("vdn", "discrete"), ("ippo", "discrete"), ("mcem", "discrete"), ("mcem", "continuous"))
        if name in registry.algorithms() and kind in registry.algorithm(name).actions
    ],
)
SPELL = "agent:1,from:24,to:72,policy:uniform"


def with_(trial: Trial, **settings: Any) -> Trial:
    return dataclasses.replace(trial, settings={**trial.settings, **settings})


def record(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "trial.json").read_text())
    return found


def cdm_rows(folder: Path) -> list[tuple[int, str]]:
    with (folder / "cdm.csv").open() as file:
        return [(int(row["env_steps"]), row["metric"]) for row in csv.DictReader(file)]


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], Path]:
    """The folder of an undisturbed trial with ``cdm=on``, run once a method."""
    return cache(lambda name, kind: finish(with_(tiny(tmp_path_factory.mktemp("on"), name, kind), cdm=True)))


# -- cdm=on -----------------------------------------------------------------------------------------------------------


@METHODS
def test_measuring_changes_nothing_that_is_trained_or_evaluated(
    tmp_path: Path, name: str, kind: str, measured: Callable[[str, str], Path]
) -> None:
    on, off = measured(name, kind), finish(tiny(tmp_path, name, kind))
    assert tables(on) == tables(off)
    identical(state(on), state(off))
    assert not (off / "cdm.csv").exists()
    assert "cdm_seconds" not in record(off)
    assert "cdm" not in record(off)


@METHODS
def test_every_evaluation_is_measured_once_at_a_cost_of_its_own(
    name: str, kind: str, measured: Callable[[str, str], Path]
) -> None:
    folder = measured(name, kind)
    rows, found = cdm_rows(folder), record(folder)
    assert sorted({steps for steps, _ in rows}) == [0, 40, 80, 120]
    assert len(rows) == len(set(rows))
    groups = {"degradation", "cost", "own"} | ({"joint"} if name != "ippo" else set())
    assert {m.partition("/")[0] for s, m in rows if s == 120} >= groups
    assert found["cdm_seconds"] > 0
    assert found["cdm"]["seconds"] == found["cdm_seconds"]
    assert found["wall_seconds"] == found["train_seconds"] + found["eval_seconds"]
    assert found["settings"]["cdm"] is True


def test_measured_at_the_last_evaluation_alone_it_says_what_every_evaluation_says_of_it(
    tmp_path: Path, measured: Callable[[str, str], Path]
) -> None:
    folder, every = finish(with_(tiny(tmp_path, "vdn"), cdm="final")), measured("vdn", "discrete")
    lines = (every / "cdm.csv").read_text().splitlines()
    assert (folder / "cdm.csv").read_text().splitlines() == [lines[0], *(x for x in lines if x.startswith("120,"))]
    assert tables(folder) == tables(every)
    identical(state(folder), state(every))
    assert record(folder)["cdm"]["about"] == record(every)["cdm"]["about"]


def test_the_time_of_measuring_is_not_that_of_training_or_evaluating(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from harness.cdm import measure

    class Slow:
        """A measurement that takes a thousand seconds of the clock that is read."""

        def __init__(self, *_: Any, **__: Any) -> None:
            self.seconds = 0.0

        def due(self, *_: Any) -> bool:
            return True

        def at(self, *_: Any) -> None:
            late[0] += 1000.0
            self.seconds += 1000.0

        def record(self, _: Any) -> None: ...

    late = [0.0]
    import harness.trial as module

    clock = module.time.monotonic
    monkeypatch.setattr(module.time, "monotonic", lambda: clock() + late[0])
    monkeypatch.setattr(measure, "Diagnostics", Slow)
    found = record(finish(with_(tiny(tmp_path, "vdn"), cdm=True)))
    assert found["cdm_seconds"] == 4000.0
    assert found["train_seconds"] + found["eval_seconds"] < 500


class Killed(BaseException):
    """What no handler of ordinary errors catches."""


def kill_at(steps: int, phase: str) -> Callable[[Progress], None]:
    def tell(progress: Progress) -> None:
        if progress.phase == phase and progress.env_steps >= steps:
            raise Killed

    return tell


def test_killed_and_resumed_every_row_is_there_once_and_the_same(
    tmp_path: Path, measured: Callable[[str, str], Path]
) -> None:
    trial = with_(tiny(tmp_path, "vdn"), cdm=True)
    spent = []
    assert run(trial, lambda p: None, stop_after(4)) == "interrupted"
    spent.append(record(TrialFolder.of(trial).path)["cdm_seconds"])
    for steps, phase in ((80, "evaluating"), (110, "evaluating"), (120, "final")):
        with pytest.raises(Killed):
            run(trial, kill_at(steps, phase), lambda: False)
    folder, whole = finish(trial), measured("vdn", "discrete")
    assert (folder / "cdm.csv").read_bytes() == (whole / "cdm.csv").read_bytes()
    assert tables(folder) == tables(whole)
    identical(state(folder), state(whole))
    assert record(folder)["cdm_seconds"] > spent[0] > 0
    assert {k: record(folder)["cdm"][k] for k in ("missing", "about")} == {
        k: record(whole)["cdm"][k] for k in ("missing", "about")
    }


# -- corrupt= ---------------------------------------------------------------------------------------------------------


@METHODS
def test_a_bad_spell_changes_training_from_its_first_step_on(tmp_path: Path, name: str, kind: str) -> None:
    clean, harmed = (
        finish(tiny(tmp_path / "a", name, kind, eval_every=8)),
        finish(with_(tiny(tmp_path / "b", name, kind, eval_every=8), corrupt=SPELL)),
    )

    def until(folder: Path, steps: int) -> list[str]:
        lines = (folder / "metrics.csv").read_text().splitlines()[1:]
        return [line for line in lines if int(line.split(",")[0]) <= steps]

    assert until(clean, 24) == until(harmed, 24)
    assert until(clean, 120) != until(harmed, 120)
    a, b = state(clean), state(harmed)
    assert any(
        not torch.equal(a[k], b[k]) for k in a if k.startswith("/learner/net/") and isinstance(a[k], torch.Tensor)
    )


@METHODS
def test_stopped_within_its_bad_spell_and_resumed_equals_never_stopped(tmp_path: Path, name: str, kind: str) -> None:
    whole = finish(with_(tiny(tmp_path / "a", name, kind), corrupt=SPELL))
    trial = with_(tiny(tmp_path / "b", name, kind), corrupt=SPELL)
    for rounds in (3, 2, 2):
        assert run(trial, lambda p: None, stop_after(rounds)) == "interrupted"
    resumed = finish(trial)
    assert tables(whole) == tables(resumed)
    identical(state(whole), state(resumed))


def test_the_agent_plays_uniformly_within_the_spell_in_training_alone(tmp_path: Path) -> None:
    """A greedy team on the climbing game: agent 1 strays in its spell, agent 0 and the evaluations never do."""
    trial = with_(tiny(tmp_path, "vdn"), corrupt="agent:1,from:800,to:1600")
    loop = Loop(trial, lambda p: None)
    step, act = loop.env.reset(0), loop.algorithm.act
    loop.algorithm = type("Greedy", (), {"act": lambda self, net, s, m, t, rng: act(net, s, m, t, None)})()
    greedy = act(loop.learner.net, step, None, 0, None).action
    assert torch.equal(loop._act(step, None, 799).action, greedy)
    assert torch.equal(loop._act(step, None, 1600).action, greedy)
    played = torch.stack([loop._act(step, None, 800).action for _ in range(400)])
    assert torch.equal(played[:, :, 0], greedy[:, 0].expand(400, -1))
    share = torch.bincount(played[:, :, 1].flatten(), minlength=2).double() / played[:, :, 1].numel()
    assert share == pytest.approx([0.5, 0.5], abs=0.05)
    chosen = loop._act(step, None, 900)
    assert chosen.log_prob[:, 1] == pytest.approx([-0.6931472] * 4)
    loop.close()


def test_a_trial_without_them_has_settings_and_streams_as_ever(tmp_path: Path) -> None:
    loop = Loop(tiny(tmp_path, "vdn"), lambda p: None)
    assert set(loop.rng) == {"exploration", "learning", "replay"}
    assert loop.corrupt is None
    assert loop.diagnostics is None
    loop.close()


def test_an_agent_that_is_not_there_is_refused_before_anything_is_played(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="agent:2, but the task has agents 0 to 1"):
        Loop(with_(tiny(tmp_path, "vdn"), corrupt="agent:2,from:0,to:10"), lambda p: None)


# -- the command line's keys ------------------------------------------------------------------------------------------


def ask(*arguments: str) -> Any:
    return parse(["suite=matrix", "tasks=climbing", "algorithms=vdn", "seeds=1", "env_steps=20000", *arguments])


def test_the_keys_become_settings_where_they_are_asked_for() -> None:
    plain = ask("corrupt=none", "cdm=off").trials("cpu")[0].settings
    assert plain == ask().trials("cpu")[0].settings
    assert not {"corrupt", "cdm"} & plain.keys()
    found = ask("corrupt=agent:0,from:1e3,to:2e3", "cdm=on").trials("cpu")[0].settings
    assert found == {**plain, "corrupt": "agent:0,from:1000,to:2000,policy:uniform", "cdm": True}
    assert json.loads(json.dumps(found)) == found
    assert ask("cdm=final").trials("cpu")[0].settings == {**plain, "cdm": "final"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("corrupt=agent:0", "corrupt: from and to missing; like corrupt=agent:0,from:1e5,to:2e5,policy:uniform"),
        ("corrupt=agent:0,from:10,to:5", "corrupt: to:5 is not after from:10"),
        ("corrupt=agent:0,form:10,to:50", "did you mean"),
        ("corrupt=agent:2,from:0,to:50", "corrupt: agent:2, but the task has agents 0 to 1"),
        ("corrupt=agent:0,from:2e4,to:3e4", "corrupt: from:20000 is not before the end of training, env_steps=20000"),
        ("cdm=maybe", "cdm=maybe: expected one of off, on, final, got 'maybe'"),
    ],
)
def test_a_malformed_key_is_refused_in_one_line(text: str, message: str) -> None:
    with pytest.raises(UserError) as error:
        ask(text)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_one_experiment_never_mixes_them(tmp_path: Path) -> None:
    common = (f"results={tmp_path}", "name=x", "device=cpu")
    harmed = ask(*common, "corrupt=agent:0,from:1e3,to:2e3").trials("cpu")[0]
    identity = {k: getattr(harmed, k) for k in ("experiment", "suite", "task", "algorithm", "seed")}
    TrialFolder.of(harmed).update(**identity, settings=dict(harmed.settings), status="complete")
    make(ask(*common, "corrupt=agent:0,from:1000,to:2e3"))
    with pytest.raises(UserError, match="corrupt=agent:0,from:1000,to:2000,policy:uniform, now it is none"):
        make(ask(*common))
    with pytest.raises(UserError, match="cdm=off, now it is on"):
        make(ask(*common, "corrupt=agent:0,from:1e3,to:2e3", "cdm=on"))
    with pytest.raises(UserError, match="cdm=off, now it is final"):
        make(ask(*common, "corrupt=agent:0,from:1e3,to:2e3", "cdm=final"))


def test_seeds_measured_and_not_are_seeds_of_one_method_corrupted_ones_are_not() -> None:
    from harness.analysis.guards import differing

    def runs(*settings: dict[str, Any]) -> Any:
        return [SimpleNamespace(record={"settings": {"algorithm": {"lr": 0.1}, **s}}) for s in settings]

    assert differing(runs({}, {"cdm": True})) == {}
    assert differing(runs({}, {"corrupt": SPELL})) == {"corrupt": [SPELL, None]}
