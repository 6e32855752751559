"""Every registered method through whole trials on the suites that cost nothing."""

import csv
import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import pytest

from harness import registry
from harness.store import TrialFolder, load
from harness.trial import run
from harness.types import Progress, Trial
from tests.support.episodes import method_kinds, small

PLACES = {
    "discrete": [("matrix", "climbing_3", 60), ("matrix", "coordination_4", 60)],
    "continuous": [("predator_prey", "3a", 100)],
}


def cases() -> list[Any]:
    found = []
    for parameter in method_kinds():
        name, kind = parameter.values
        found += [pytest.param(name, kind, *place, marks=parameter.marks) for place in PLACES[kind]]
    return found


@pytest.mark.parametrize(("name", "kind", "suite", "task", "env_steps"), cases())
def test_a_whole_trial(tmp_path: Path, name: str, kind: str, suite: str, task: str, env_steps: int) -> None:
    made = registry.suite(suite)()
    budget = dataclasses.replace(
        made.budgets["smoke"], env_steps=env_steps, eval_every=env_steps // 2, eval_episodes=3, final_episodes=5
    )
    settings = {
        "algorithm": dataclasses.asdict(small(name, kind)),  # type: ignore[call-overload]
        "suite": dataclasses.asdict(made),
        "budget": dataclasses.asdict(budget),
        "engine": made.engine_version(),
    }
    json.dumps(settings)  # any executor can send it
    trial, told = Trial("contract", suite, task, name, 1, settings, str(tmp_path)), []
    assert run(trial, told.append, lambda: False) == "complete"

    folder = TrialFolder.of(trial)
    record = folder.record()
    assert record is not None
    assert record["status"] == "complete"
    assert record["env_steps"] >= env_steps
    assert record["updates"] > 0
    assert set(record["parameters"]) >= {n for loss in small(name, kind).losses() for n in loss.trains}
    results = load(tmp_path)
    assert not results.damaged
    assert results.evaluations.groupby("env_steps").size().to_dict() == {0: 3, env_steps // 2: 3, env_steps: 3}
    assert len(results.final) == 5
    values = [float(r["value"]) for r in csv.DictReader((folder.path / "metrics.csv").open())]
    assert all(math.isfinite(v) for v in values)
    assert results.evaluations["return"].notna().all()
    assert isinstance(told[-1], Progress)
    assert (told[0].phase, told[-1].phase) == ("starting", "done")
    assert told[-1].env_steps == told[-1].total == env_steps
