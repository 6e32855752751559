"""What a running trial says of itself."""

from pathlib import Path
from typing import Any

import pytest
import torch

from harness import record
from harness.record import Means, Voice
from harness.store import TrialFolder
from harness.types import Progress


def test_means_are_means_and_begin_anew() -> None:
    means = Means()
    for value in (1.0, 2.0, 6.0):
        means.add({"x": torch.tensor(value)})
    means.add({"y": torch.tensor(0.1)})
    again = Means()
    again.load_state_dict(means.state_dict())
    for one in (means, again):
        assert one.take() == {"x": 3.0, "y": pytest.approx(0.1)}
        assert one.take() == {}


def test_rows_are_exact_one_an_episode(tmp_path: Path) -> None:
    found = {"return": [1.0, 0.1 + 0.2], "length": [2.0, 3.0]}
    assert record.episode_rows(40, found) == (
        ("env_steps", "episode", "return", "length"),
        [(40, 0, 1, 2), (40, 1, 0.30000000000000004, 3)],
    )
    TrialFolder(tmp_path).append("evaluations.csv", *record.episode_rows(40, found))
    text = (tmp_path / "evaluations.csv").read_text()
    assert text == "env_steps,episode,return,length\n40,0,1,2\n40,1,0.30000000000000004,3\n"


def test_what_is_not_finite_is_counted_in_words() -> None:
    nan, inf = float("nan"), float("inf")
    found = {"return": [1.0, 2.0], "won": [nan, 1.0, inf], "lost": [-inf]}
    assert record.trouble(found, ("return",)) is None
    assert record.trouble(found, ("return", "won")) == "won is NaN in 2 of 3"
    assert record.trouble(found, ("lost",)) == "lost is infinite in 1 of 1"
    assert record.trouble(found, ("drawn",)) is None


def test_a_mean_does_not_depend_on_the_order() -> None:
    assert record.mean([1e16, 1.0, -1e16]) == record.mean([1e16, -1e16, 1.0]) == 1 / 3


def test_training_is_told_at_most_every_half_second_with_its_speed(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, told = [100.0], list[Progress]()
    monkeypatch.setattr(record.time, "monotonic", lambda: clock[0])
    voice = Voice(told.append, 1_000, "won")
    voice.say("starting", 0)
    voice.say("evaluating", 0)
    for at, steps in ((100.4, 40), (100.5, 50), (100.9, 60), (101.5, 250), (101.6, 260)):
        clock[0] = at
        voice.say("training", steps)
    voice.last_eval = 0.5
    voice.say("done", 1_040)
    assert [(p.phase, p.env_steps, p.last_eval) for p in told] == [
        ("starting", 0, None), ("evaluating", 0, None), ("training", 50, None), ("training", 250, None),
        ("done", 1_000, 0.5),
    ]  # fmt: skip
    assert [p.steps_per_s for p in told] == pytest.approx([0, 0, 100, 0.7 * 100 + 0.3 * 200, 130])
    assert {(p.total, p.metric) for p in told} == {(1_000, "won")}


def test_the_speed_of_a_trial_that_continues_counts_from_where_it_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, told = [0.0], list[Progress]()
    monkeypatch.setattr(record.time, "monotonic", lambda: clock[0])
    voice = Voice(told.append, 1_000, "won")
    clock[0] = 5.0
    voice.heard(500)
    clock[0] = 6.0
    voice.say("training", 550)
    assert told[0].steps_per_s == 50


def test_a_sign_of_life_repeats_where_the_trial_stands_at_most_once_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, told = [0.0], list[Progress]()
    monkeypatch.setattr(record.time, "monotonic", lambda: clock[0])
    voice = Voice(told.append, 1_000, "won")
    for at in (0.0, 5.0):
        clock[0] = at
        voice.alive()
    assert told == []  # nothing to repeat yet
    voice.say("final", 1_000)
    for at in (5.5, 6.5, 7.0, 8.0):
        clock[0] = at
        voice.alive()
    assert told == [told[0]] * 3


def test_what_environments_counted_before_a_kill_is_added_up() -> None:
    class Env:
        def record(self) -> dict[str, Any]:
            return {"restarts": 2, "reasons": {"timeout": 1, "crash": 1}, "engine": "b"}

    before = {"restarts": 1, "reasons": {"timeout": 1}, "engine": "a", "episodes": 7}
    assert record.counts(Env(), before) == {  # type: ignore[arg-type]
        "restarts": 3, "reasons": {"timeout": 2, "crash": 1}, "engine": "b", "episodes": 7,
    }  # fmt: skip
    assert record.counts(object(), before) == before  # type: ignore[arg-type]
