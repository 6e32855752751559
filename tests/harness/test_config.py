"""key=value -> a checked experiment.

Case: an unknown key (epymarl#22, #62; facmac#2) is refused with the nearest match.
"""

from __future__ import annotations

import json
from types import ModuleType
from typing import Any

import pytest

from harness.config import Experiment, method, parse
from harness.errors import UserError

pytestmark = pytest.mark.usefixtures("fake_marl")


def ask(*arguments: str) -> Experiment:
    return parse(["suite=toy", *arguments])


def refused(*arguments: str) -> str:
    with pytest.raises(UserError) as error:
        parse(arguments)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_defaults_are_the_suites() -> None:
    found = ask()
    assert found.name == "toy-quick"
    assert [t.name for t in found.tasks] == ["one", "two"]
    assert found.seeds == (0, 1)
    assert found.budget.env_steps == 1000
    assert list(found.methods) == [("one", "fake"), ("two", "fake")]


def test_defaults_that_cannot_be_run_are_left_out_with_a_line() -> None:
    notes = ask().notes
    assert "engine: toy 1.0" in notes
    assert "left out: not_written_yet (not installed)" in notes
    assert "left out: fake_continuous on one, two (discrete actions)" in notes
    assert list(ask("tasks=smooth").methods) == [("smooth", "fake_continuous")]
    assert list(ask("tasks=smooth,one").methods) == [("smooth", "fake_continuous"), ("one", "fake")]


@pytest.mark.parametrize(
    ("text", "seeds"),
    [
        ("3", (0, 1, 2)),
        ("0,3,7", (0, 3, 7)),
        ("7,", (7,)),
        ("1", (0,)),
        ("5,1", (5, 1)),
        ("[7]", (7,)),
        ("[5,1]", (5, 1)),
    ],
)
def test_seeds_are_a_number_or_a_list(text: str, seeds: tuple[int, ...]) -> None:
    assert ask(f"seeds={text}").seeds == seeds


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0", "at least 1; seed 0 alone is seeds=0,"),
        ("-2", "at least 1"),
        ("0,0", "seeds: 0 is given twice"),
        ("[]", "seeds=[]: no seed in it"),
        ("1,-1", "a seed is at least 0"),
        ("1.5", "expected an integer, got '1.5'"),
        ("a,b", "each an integer"),
        (",", "no seed"),
    ],
)
def test_wrong_seeds_are_refused(text: str, message: str) -> None:
    assert message in refused("suite=toy", f"seeds={text}")


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("tsaks=one", "unknown key 'tsaks'; did you mean 'tasks'?"),
        ("tasks=,", "tasks=,: none in it"),
        ("env_step=5", "unknown key 'env_step'; did you mean 'env_steps'?"),
        ("phisics=exact", "unknown key 'phisics'; did you mean 'physics'?"),
        ("lr=1e-3", "unknown key 'lr'; did you mean 'fake.lr'?"),
        ("tasks=onn", "unknown task of toy 'onn'; did you mean 'one'?"),
        ("algorithms=fak", "unknown algorithm 'fak'; did you mean 'fake'?"),
        ("algorithms=fake@bgi", "unknown preset of fake 'bgi'; did you mean 'big'?"),
        ("budget=papper", "unknown budget of toy 'papper'; did you mean 'paper'?"),
        ("fake.lrr=1", "unknown field of fake 'lrr'; did you mean 'lr'?"),
        ("fkae.lr=1", "unknown algorithm in fkae.lr: 'fkae'; did you mean 'fake'?"),
        ("fake_continuous.gamma=.9", "fake_continuous is not among the algorithms of this run (fake)"),
        ("fake.lr=fast", "fake.lr=fast: expected a number, got 'fast'"),
        ("fake.num_envs=2.5", "fake.num_envs=2.5: expected an integer, got '2.5'"),
        ("fake.mixer=max", "fake.mixer=max: expected one of sum, product, got 'max'"),
        ("fake.num_envs=0", "fake.num_envs=0: must be at least 1"),
        ("env_steps=3.7", "env_steps=3.7: expected an integer, got '3.7'"),
        ("env_steps=0", "env_steps=0: must be at least 1"),
        ("eval_every=-5", "eval_every=-5: must be at least 1"),
        ("workers=0", "workers=0: expected an integer of at least 1 or none, got '0'"),
        ("retries=-1", "expected an integer of at least 0"),
        ("stall_timeout=0", "expected a number above 0"),
        ("device=tpu", "device=tpu: expected one of auto, cpu, cuda, got 'tpu'"),
        ("physics=real", "physics=real: expected one of auto, exact, got 'real'"),
        ("scale=big", "scale=big: expected a number"),
        ("tasks=one,two,one", "tasks: one is given twice"),
        ("algorithms=fake,fake", "algorithms: fake is given twice"),
        ("name=../x", "name=../x: a folder's name"),
        ("name=.hidden", "a folder's name"),
        ("name=reference", "name=reference: that folder holds the results that came with the repository"),
        ("tasks", "'tasks': settings are written key=value"),
        ("=3", "settings are written key=value"),
        ("tasks=", "tasks= has no value"),
    ],
)
def test_whatever_is_wrong_is_named_in_one_line(argument: str, message: str) -> None:
    chosen = [] if argument.startswith("algorithms") else ["algorithms=fake"]
    assert message in refused("suite=toy", *chosen, argument)


def test_the_suite_must_be_said_and_known() -> None:
    assert "which suite?" in refused("tasks=one")
    assert refused("suit=toy") == "unknown key 'suit'; did you mean 'suite'?"
    assert "unknown suite 'toi'; did you mean 'toy'?" in refused("suite=toi")
    assert refused("suite=toy", "seeds=1", "seeds=2") == "seeds is given twice: seeds=1 and seeds=2"


def test_a_method_that_cannot_play_a_task_is_refused_by_name() -> None:
    message = refused("suite=toy", "algorithms=fake", "tasks=one,smooth")
    assert message == "fake plays discrete actions; smooth of toy has continuous ones"


def test_presets_then_overrides_the_nearer_wins(fake_marl: ModuleType) -> None:
    plain = fake_marl.Fake()
    kind = method("fake", action="discrete")
    assert (kind.lr, kind.batch_episodes) == (1e-3, 16)
    suite = method("fake", suite="toy", action="discrete")
    assert (suite.lr, suite.batch_episodes) == (1e-3, 24)
    named = method("fake@big", suite="toy", action="discrete")
    assert (named.lr, named.batch_episodes, named.layers) == (2e-3, 16, (128, 128))  # it takes the suite preset's place
    assert method("fake") == plain
    both = ask("algorithms=fake,fake@big", "fake.lr=1", "fake@big.lr=2", "fake.double=false", "fake.clip=5")
    assert {label: m.lr for (_, label), m in both.methods.items()} == {"fake": 1.0, "fake@big": 2.0}
    assert all(m.double is False and m.clip == 5.0 for m in both.methods.values())


def test_a_preset_of_suite_and_action_kind_goes_over_both(
    fake_marl: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    more = {**fake_marl.Fake.presets, "toy-discrete": {"batch_episodes": 40}, "toy-continuous": {"lr": 9.0}}
    monkeypatch.setattr(fake_marl.Fake, "presets", more)
    assert (method("fake", "toy", "discrete").lr, method("fake", "toy", "discrete").batch_episodes) == (1e-3, 40)
    assert method("fake", "other", "discrete").batch_episodes == 16
    assert method("fake@big", "toy", "discrete").batch_episodes == 16


def test_budgets_parts_are_overridden() -> None:
    budget = ask("budget=smoke", "env_steps=2e5", "eval_every=1e4", "eval_episodes=7", "final_episodes=9").budget
    assert (budget.env_steps, budget.eval_every, budget.eval_episodes, budget.final_episodes) == (200_000, 10_000, 7, 9)


def test_trials_hold_every_setting_as_json_seed_by_seed() -> None:
    trials = ask("seeds=2", "scale=2", "fake.layers=1,2", "results=elsewhere", "name=mine").trials("cpu")
    assert [t.key for t in trials] == [
        f"mine/toy/{task}/fake/seed_{seed}" for seed in (0, 1) for task in ("one", "two")
    ]  # fmt: skip
    trial = trials[0]
    settings: dict[str, Any] = json.loads(json.dumps(trial.settings))
    assert settings == trial.settings
    assert settings["suite"] == {"physics": "auto", "scale": 2.0}
    assert settings["engine"] == "toy 1.0"
    assert settings["algorithm"]["layers"] == [1, 2]
    assert settings["budget"]["env_steps"] == 1000
    assert trial.results == "elsewhere"


def test_a_default_task_that_a_chosen_method_cannot_play_is_left_out_and_said() -> None:
    found = parse(["suite=matrix", "algorithms=qmix", "seeds=1"])
    assert "continuous" not in {t for t, _ in found.methods}
    assert "left out: qmix on continuous (continuous actions)" in found.notes
    with pytest.raises(UserError, match="qmix plays discrete actions; continuous of matrix has continuous ones"):
        parse(["suite=matrix", "algorithms=qmix", "seeds=1", "tasks=climbing,continuous"])
    with pytest.raises(UserError, match="qmix plays discrete actions; 3a of predator_prey"):
        parse(["suite=predator_prey", "algorithms=qmix"])
