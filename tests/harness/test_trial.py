"""Trials from end to end: repeatable to the byte, whatever disturbs them."""

import csv
import dataclasses
import itertools
import json
import math
import random
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from harness import checkpoint, evaluate, record, registry, replay
from harness.assemble import build
from harness.errors import Diverged, UserError
from harness.learner import Learner
from harness.store import TrialFolder, load
from harness.trial import Loop, run
from harness.types import Progress, Trial
from tests.support.episodes import method_kinds
from tests.support.trials import finish, identical, state, stop_after, tables, tiny

Measured = dict[str, list[float]]
SOME = pytest.mark.parametrize("name", [n for n in ("vdn", "qmix", "ippo") if n in registry.algorithms()])
EACH = pytest.mark.parametrize(("name", "kind"), method_kinds())


def rows(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(path.open()))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], Path]:
    """The folder of an undisturbed trial of a method and an action kind, run once."""
    return cache(lambda name, kind: finish(tiny(tmp_path_factory.mktemp("whole"), name, kind)))


Whole = Callable[[str, str], Path]


def points(path: Path) -> list[int]:
    return sorted({int(r["env_steps"]) for r in rows(path)})


# -- the same trial, the same bytes ---------------------------------------------------------------------------------


@SOME
def test_two_runs_of_one_trial_are_identical_in_every_table_and_parameter(
    tmp_path: Path, name: str, whole: Whole
) -> None:
    a, b = whole(name, "discrete"), finish(tiny(tmp_path, name))
    assert tables(a) == tables(b)
    identical(state(a), state(b))


@SOME
def test_two_seeds_differ_from_the_start(tmp_path: Path, name: str) -> None:
    """Found elsewhere: three seeds, identical curves."""
    found = [state(finish(tiny(tmp_path / str(seed), name, seed=seed, env_steps=8))) for seed in (0, 1, 2)]
    weights = [torch.cat([x.flatten() for k, x in one.items() if "/learner/net/" in k]) for one in found]
    assert not torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[1], weights[2])


@SOME
def test_global_generators_are_neither_read_nor_moved(tmp_path: Path, name: str, whole: Whole) -> None:
    calm = whole(name, "discrete")

    def disturb(_: Progress) -> None:
        torch.manual_seed(random.randrange(2**31))
        np.random.seed(random.randrange(2**31))  # noqa: NPY002

    assert run(tiny(tmp_path / "b", name), disturb, lambda: bool(torch.rand(3).sum() < 0)) == "complete"
    stormy = TrialFolder.of(tiny(tmp_path / "b", name)).path
    assert tables(calm) == tables(stormy)
    identical(state(calm), state(stormy))

    torch.manual_seed(5)
    before = torch.get_rng_state()
    finish(tiny(tmp_path / "c", name))
    assert torch.equal(before, torch.get_rng_state())


@EACH
def test_evaluating_twice_as_often_changes_nothing_that_is_trained(
    tmp_path: Path, name: str, kind: str, whole: Whole
) -> None:
    once, twice = whole(name, kind), finish(tiny(tmp_path, name, kind, eval_every=20))
    a, b = state(once), state(twice)
    trained = [k for k in a if k.startswith(("/learner/", "/rng/"))]
    assert any("/learner/net/" in k for k in trained)
    assert any("/learner/optimisers/" in k for k in trained)
    identical({k: a[k] for k in trained}, {k: b[k] for k in trained})
    assert points(once / "evaluations.csv") == [0, 40, 80, 120]
    assert points(twice / "evaluations.csv") == [0, 20, 40, 60, 80, 100, 120]


def test_more_episodes_an_evaluation_change_nothing_that_is_trained(tmp_path: Path) -> None:
    few, many = (
        finish(tiny(tmp_path / "a", "qmix")),
        finish(tiny(tmp_path / "b", "qmix", eval_episodes=9, final_episodes=40)),
    )
    a, b = state(few), state(many)
    identical(
        {k: v for k, v in a.items() if k.startswith("/learner/")},
        {k: v for k, v in b.items() if k.startswith("/learner/")},
    )


# -- interrupted and resumed ----------------------------------------------------------------------------------------


@EACH
def test_stopped_anywhere_and_resumed_equals_never_stopped(tmp_path: Path, name: str, kind: str, whole: Whole) -> None:
    trial = tiny(tmp_path, name, kind)
    for rounds in (1, 4, 3):
        assert run(trial, lambda p: None, stop_after(rounds)) == "interrupted"
        assert json.loads((TrialFolder.of(trial).path / "trial.json").read_text())["status"] == "interrupted"
    resumed = finish(trial)
    assert tables(whole(name, kind)) == tables(resumed)
    identical(state(whole(name, kind)), state(resumed))


class Killed(BaseException):
    """What no handler of ordinary errors catches."""


def kill_at(steps: int, phase: str) -> Any:
    def tell(progress: Progress) -> None:
        if progress.phase == phase and progress.env_steps >= steps:
            raise Killed

    return tell


@EACH
def test_killed_without_warning_it_goes_on_from_its_last_checkpoint(
    tmp_path: Path, name: str, kind: str, whole: Whole
) -> None:
    """Rows written after the checkpoint are not written twice, and the replay is as it was."""
    trial = tiny(tmp_path, name, kind)
    for steps, phase in ((0, "evaluating"), (40, "evaluating"), (110, "evaluating"), (120, "final")):
        with pytest.raises(Killed):
            run(trial, kill_at(steps, phase), lambda: False)
    resumed = finish(trial)
    assert tables(whole(name, kind)) == tables(resumed)
    identical(state(whole(name, kind)), state(resumed))


def test_killed_in_the_middle_of_a_line_it_is_cut(tmp_path: Path, whole: Whole) -> None:
    trial = tiny(tmp_path, "vdn")
    with pytest.raises(Killed):
        run(trial, kill_at(110, "evaluating"), lambda: False)
    folder = TrialFolder.of(trial).path
    for name in ("metrics.csv", "evaluations.csv"):
        with (folder / name).open("a") as file:
            file.write("80,3,0.2")
    assert tables(finish(trial)) == tables(whole("vdn", "discrete"))


def test_the_best_policy_is_that_of_the_checkpoint_when_a_later_one_was_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """best.pt may be newer than the checkpoint: what came after it counts for nothing until it happens again."""
    dictated, evaluated = {0: 1.0, 40: 5.0, 80: 9.0, 120: 1.0}, []

    def scripted(env: Any, algorithm: Any, net: Any, env_steps: int, count: int, seed: Any, alive: Any) -> Measured:
        evaluated.append((env_steps, torch.cat([p.flatten() for p in net.parameters()])))
        return {"return": [dictated[env_steps]] * count, "length": [2.0] * count, "optimal": [0.0] * count}

    monkeypatch.setattr(evaluate, "run", scripted)
    trial = tiny(tmp_path, "vdn", checkpoint_every=1_000)
    assert run(trial, lambda p: None, stop_after(5)) == "interrupted"
    assert [point for point, _ in evaluated] == [0, 40]
    with pytest.raises(Killed):
        run(trial, kill_at(120, "evaluating"), lambda: False)  # after the evaluation at 80, whose score is the best
    dictated[80] = 1.0  # as a device that does not repeat itself might have it the second time
    folder = finish(trial)
    assert {r["env_steps"] for r in rows(folder / "final.csv")} == {"40"}
    assert evaluated[-1][0] == 40
    assert torch.equal(evaluated[-1][1], evaluated[1][1])


def test_a_damaged_checkpoint_is_named_not_silently_begun_anew(tmp_path: Path) -> None:
    trial = tiny(tmp_path, "vdn")
    run(trial, lambda p: None, stop_after(2))
    path = TrialFolder.of(trial).path / "checkpoint.pt"
    path.write_bytes(path.read_bytes()[:300])
    with pytest.raises(ValueError, match=r"checkpoint\.pt: damaged"):
        run(trial, lambda p: None, lambda: False)


def test_a_checkpoint_holds_everything_a_method_trains(tmp_path: Path) -> None:
    """Found elsewhere: critic, its optimiser and proposal left out."""
    for parameter in method_kinds():
        if parameter.marks:
            continue
        name, kind = parameter.values
        trial = tiny(tmp_path / f"{name}_{kind}", name, kind)
        loop = Loop(trial, lambda p: None)
        run(trial, lambda p: None, stop_after(4))
        saved = checkpoint.load(TrialFolder.of(trial).path, None, torch.device("cpu"))
        assert saved is not None
        assert saved["learner"]["net"].keys() == loop.learner.net.state_dict().keys()
        assert saved["learner"]["target"].keys() == loop.learner.target.state_dict().keys()
        for loss, kept in zip(loop.learner.losses, saved["learner"]["optimisers"], strict=True):
            count = sum(1 for child in loss.trains for _ in loop.learner.net[child].parameters())
            assert len(kept["param_groups"][0]["params"]) == count, (name, loss.name)
            assert len(kept["state"]) == count, (name, loss.name)  # it has learned before it was stopped


# -- what is written ------------------------------------------------------------------------------------------------


@SOME
def test_there_is_a_row_for_every_episode_of_every_evaluation_on_a_fixed_grid(tmp_path: Path, name: str) -> None:
    """Found elsewhere: one point in the file, whatever had been evaluated."""
    folder = finish(tiny(tmp_path, name, env_steps=100, eval_every=30))
    found = rows(folder / "evaluations.csv")
    assert [(int(r["env_steps"]), int(r["episode"])) for r in found] == [
        (p, e) for p in (0, 30, 60, 90, 100) for e in range(4)
    ]
    assert [int(r["env_steps"]) for r in rows(folder / "timings.csv")] == [0, 30, 60, 90, 100]
    assert len(rows(folder / "final.csv")) == 6
    for r in found:
        assert float(r["length"]) == 2.0
        assert float(r["return"]) in (0.0, 1.0, 7.0, 8.0)
        assert float(r["optimal"]) == float(float(r["return"]) == 8.0)


def test_train_and_greedy_numbers_have_names_of_their_own(tmp_path: Path) -> None:
    folder = finish(tiny(tmp_path, "qmix"))
    names = {r["metric"] for r in rows(folder / "metrics.csv")}
    assert {"train/return", "train/length", "train/optimal", "updates", "td/loss", "td/grad_norm"} <= names
    assert not any(n.startswith(("eval", "final")) for n in names)
    assert all(math.isfinite(float(r["value"])) for r in rows(folder / "metrics.csv"))


def numbered(monkeypatch: pytest.MonkeyPatch) -> None:
    """The loss of the k-th update is k, from 0."""
    update = Learner.update

    def numbers(self: Learner, *arguments: Any) -> dict[str, torch.Tensor]:
        first = float(self.updates)
        return update(self, *arguments) | {"td/loss": torch.tensor(first)}

    monkeypatch.setattr(Learner, "update", numbers)


def test_every_update_is_in_a_row_of_metrics_the_last_rounds_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A round is 8 steps and 2 updates; the policy of each point is evaluated before its round is learned from."""
    numbered(monkeypatch)
    folder = finish(tiny(tmp_path, "vdn", env_steps=40, eval_every=8))
    found = {(int(r["env_steps"]), r["metric"]): float(r["value"]) for r in rows(folder / "metrics.csv")}
    assert {p: v for (p, m), v in found.items() if m == "td/loss"} == {16: 0.5, 24: 2.5, 32: 4.5, 40: 7.5}
    assert [found[p, "updates"] for p in (0, 8, 16, 24, 32, 40)] == [0, 0, 2, 4, 6, 10]
    assert [int(r["updates"]) for r in rows(folder / "timings.csv")] == [0, 0, 2, 4, 6, 8]  # of what was evaluated
    assert len(found) == len(rows(folder / "metrics.csv"))  # one row a metric and point
    assert points(folder / "metrics.csv") == points(folder / "evaluations.csv")


def test_a_trial_of_one_round_has_its_learning_in_the_last_row(tmp_path: Path) -> None:
    folder = finish(tiny(tmp_path, "ippo", env_steps=3, eval_every=1))
    found = {(int(r["env_steps"]), r["metric"]): float(r["value"]) for r in rows(folder / "metrics.csv")}
    assert {p for p, m in found if m == "actor/loss"} == {3}
    assert {p for p, m in found if m == "train/return"} == {1}
    assert found[3, "updates"] == json.loads((folder / "trial.json").read_text())["updates"] > 0


def test_a_round_longer_than_the_grid_fills_every_point_it_passed(tmp_path: Path) -> None:
    folder = finish(tiny(tmp_path, "vdn", env_steps=40, eval_every=3))
    assert points(folder / "evaluations.csv") == [*range(0, 40, 3), 40]


def test_environment_steps_are_counted_without_idle_ones(tmp_path: Path) -> None:
    record = json.loads((finish(tiny(tmp_path, "vdn", env_steps=50)) / "trial.json").read_text())
    assert record["env_steps"] == 56  # rounds of 4 episodes of 2 steps: the first count of 50 or more
    assert record["episodes"] == 28
    assert record["status"] == "complete"
    assert record["updates"] == 2 * 7
    assert record["samples_per_update"] == 4 * 2


def test_samples_per_update_are_those_that_a_gradient_step_sees(tmp_path: Path) -> None:
    """PPO's passes use the same steps again: two passes in two parts over 4 episodes of 2 steps are 4 updates of 4."""
    record = json.loads((finish(tiny(tmp_path, "ippo", env_steps=40)) / "trial.json").read_text())
    assert record["updates"] == 5 * 4
    assert record["samples_per_update"] == 4


def test_the_final_is_the_best_policy_on_fresh_episodes_never_the_maximum_of_the_evaluations(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Scores are dictated here: the best is the evaluation at 40, and its final episodes are worse than it was."""
    dictated = {0: 9.0, 40: 5.0, 80: 3.0, 120: 4.0}  # the untrained policy's luck does not count
    calls: list[tuple[int, int, int, dict[str, Any]]] = []

    def scripted(env: Any, algorithm: Any, net: Any, env_steps: int, count: int, seed: Any, alive: Any) -> Measured:
        final = count == 6
        weights = {k: v.clone() for k, v in net.state_dict().items()}
        calls.append((env_steps, count, seed(0), weights))
        value = 2.5 if final else dictated[env_steps]
        return {"return": [value] * count, "length": [2.0] * count, "optimal": [0.0] * count}

    monkeypatch.setattr(evaluate, "run", scripted)
    folder = finish(tiny(tmp_path, "vdn"))
    final = rows(folder / "final.csv")
    assert [(r["env_steps"], r["return"]) for r in final] == [("40", "2.5")] * 6
    assert [c[:2] for c in calls] == [(0, 4), (40, 4), (80, 4), (120, 4), (40, 6)]
    assert len({c[2] for c in calls}) == 5  # fresh episodes: no seed twice
    assert all(torch.equal(calls[-1][3][k], v) for k, v in calls[1][3].items())  # those weights, not the last ones
    assert any(not torch.equal(calls[-1][3][k], v) for k, v in calls[3][3].items())
    assert load(tmp_path).trials.iloc[0]["record"]["best"]["env_steps"] == 40


def test_a_policy_is_untrained_until_its_first_gradient_step_however_far_it_has_played(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A round of 512 environments passed the whole grid before anything was learned, and luck was the best policy."""
    dictated = {0: 1.0, 40: 9.0, 80: 3.0, 120: 4.0}
    learned = {0: 0, 40: 0, 80: 5, 120: 9}
    loop = Loop(tiny(tmp_path, "vdn"), lambda p: None)

    def scripted(env: Any, algorithm: Any, net: Any, env_steps: int, count: int, seed: Any, alive: Any) -> Measured:
        return {"return": [dictated[env_steps]] * count, "length": [2.0] * count, "optimal": [0.0] * count}

    monkeypatch.setattr(evaluate, "run", scripted)
    for point, updates in learned.items():
        loop.learner.updates = updates
        loop._evaluate(point)
    loop.close()
    assert loop.best == {"score": 4.0, "return": 4.0, "env_steps": 120, "updates": 9}


@pytest.mark.parametrize("phase", ["training", "evaluating", "final"])
def test_there_is_a_sign_of_life_at_every_step_of_a_long_stretch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, phase: str
) -> None:
    """Ten minutes of final episodes said nothing, and the runner stopped the trial as hung, each time it was begun."""
    now = [0.0]
    monkeypatch.setattr(record.time, "monotonic", lambda: now[0])
    told: list[tuple[float, str]] = []
    loop = Loop(tiny(tmp_path, "vdn"), lambda p: told.append((now[0], p.phase)))
    whole = loop.algorithm.act

    def slow(*args: Any) -> Any:
        now[0] += 30.0
        return whole(*args)

    monkeypatch.setattr(type(loop.algorithm), "act", lambda self, *args: slow(*args))
    loop.run(lambda: False)
    loop.close()
    moments = [t for t, _ in told]
    assert max(b - a for a, b in itertools.pairwise(moments)) <= 60.0
    assert sum(p == phase for _, p in told) > 2


def test_a_replay_that_can_never_fit_is_refused_in_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """epymarl#51: StarCraft II tells its sizes only once it runs, so that no plan can refuse it."""
    monkeypatch.setattr(replay, "room", lambda device: 1_000)
    with pytest.raises(UserError, match=r"a replay of .* takes up to .* cpu has 0.0 GiB; try buffer_episodes=\d+"):
        Loop(tiny(tmp_path, "vdn", "discrete"), lambda p: None)


def test_environments_of_a_continued_trial_have_counted_from_its_beginning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from suites.matrix.env import MatrixEnv

    monkeypatch.setattr(MatrixEnv, "record", lambda self: {"restarts": 1}, raising=False)
    trial = tiny(tmp_path, "vdn")
    assert run(trial, lambda p: None, stop_after(2)) == "interrupted"
    kept = json.loads((finish(trial) / "trial.json").read_text())
    assert kept["environment"] == kept["evaluation_environment"] == {"restarts": 2}


def test_a_trial_that_goes_on_with_other_equations_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A method's file edited between two starts: half of the trial learned by the old one."""
    source = registry.source
    trial = tiny(tmp_path, "vdn")
    for k in (1, 2, 2, 3):
        monkeypatch.setattr(registry, "source", lambda *_, k=k: {"sha256": str(k)})
        assert run(trial, lambda p: None, stop_after(1)) == "interrupted"
    monkeypatch.setattr(registry, "source", source)
    kept = json.loads((finish(trial) / "trial.json").read_text())
    assert kept["source"]["algorithm"] == source(registry.ALGORITHMS, "vdn")
    assert [s["algorithm"]["sha256"] for s in kept["earlier_sources"]] == ["1", "2", "3"]


def test_networks_that_a_checkpoint_does_not_fit_any_more_are_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial = tiny(tmp_path, "vdn")
    assert run(trial, lambda p: None, stop_after(2)) == "interrupted"
    made = registry.algorithm("vdn")
    build_networks = made.networks
    monkeypatch.setattr(
        made, "networks", lambda self, spec: build_networks(dataclasses.replace(self, hidden=self.hidden + 1), spec)
    )
    with pytest.raises(
        UserError, match=r"that vdn makes now: its source has changed; .* delete \S+/seed_0 to begin it anew$"
    ) as it:
        finish(trial)
    assert "\n" not in str(it.value)


def test_training_evaluation_and_final_environments_are_never_seeded_alike(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found elsewhere: the evaluation environment seeded as the training one."""
    from suites.matrix.env import MatrixEnv

    used: list[int] = []
    reset = MatrixEnv.reset
    monkeypatch.setattr(MatrixEnv, "reset", lambda self, seed: (used.append(seed), reset(self, seed))[1])
    finish(tiny(tmp_path, "vdn", eval_episodes=40, final_episodes=70))
    assert len(used) == 15 + 4 * 2 + 3  # training rounds, evaluations of two rounds, three rounds of the final
    assert len(set(used)) == len(used)


# -- divergence -------------------------------------------------------------------------------------------------------


def failed(trial: Trial) -> tuple[str, Path, dict[str, Any]]:
    """Run it to its failure: the reason, the folder, the record."""
    with pytest.raises(Diverged) as error:
        run(trial, lambda p: None, lambda: False)
    folder = TrialFolder.of(trial)
    found = folder.record()
    assert found is not None
    json.loads((folder.path / "trial.json").read_text(), parse_constant=pytest.fail)  # JSON has no NaN
    return str(error.value), folder.path, found


@EACH
def test_parameters_that_are_not_finite_end_the_trial_with_a_reason(tmp_path: Path, name: str, kind: str) -> None:
    """Whatever the method would make of NaN by itself: a sampler's error, or a policy that looks like one."""
    trial = tiny(tmp_path, name, kind, env_steps=240)
    learn = Loop._learn

    def spoil(self: Loop) -> None:
        learn(self)
        if self.env_steps >= 100 and self.learner.updates:
            with torch.no_grad():
                for p in self.learner.parameters[-1]:
                    p.fill_(float("nan"))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Loop, "_learn", spoil)
        reason, folder, kept = failed(trial)
    assert re.fullmatch(rf"{name}: a parameter of network \w+ is NaN at env step 1\d\d", reason)
    assert points(folder / "evaluations.csv") == [0, 40, 80]  # what was measured stays
    assert kept["env_steps"] >= 100
    assert kept["best"]["env_steps"] in (0, 40, 80)
    assert not (folder / "final.csv").exists()


@EACH
def test_what_a_method_makes_of_nan_while_it_plays_is_not_the_reason_given(
    tmp_path: Path, name: str, kind: str
) -> None:
    """A sampler that refuses NaN, say: the parameters are what is wrong."""
    trial = tiny(tmp_path, name, kind, env_steps=240)
    collect = Loop._collect

    def spoil(self: Loop) -> None:
        if self.env_steps >= 100:
            with torch.no_grad():
                for p in self.learner.net.parameters():
                    p.fill_(float("nan"))
        collect(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Loop, "_collect", spoil)
        reason, _, kept = failed(trial)
    assert re.fullmatch(rf"{name}: (loss|the gradient|a parameter|return) .* at env step 1\d\d", reason)
    assert kept["env_steps"] >= 100
    assert kept["updates"] > 0


@SOME
def test_a_loss_that_is_not_finite_ends_the_trial_with_a_reason(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cls, made = registry.algorithm(name), registry.algorithm(name)().losses()[0].name
    losses = cls.losses

    def spoilt(self: Any) -> Any:
        first, *rest = losses(self)

        def of(*arguments: Any) -> Any:
            value, metrics = first.of(*arguments)
            return value * float("nan"), metrics

        return dataclasses.replace(first, of=of), *rest

    monkeypatch.setattr(cls, "losses", spoilt)
    reason, folder, kept = failed(tiny(tmp_path, name))
    assert re.fullmatch(rf"{name}: loss {made} is NaN at env step \d+", reason)
    assert kept["updates"] > 0
    assert 0 in points(folder / "evaluations.csv")


@pytest.mark.parametrize(("value", "word"), [(math.nan, "NaN"), (math.inf, "infinite"), (-math.inf, "infinite")])
@pytest.mark.parametrize("at", [0, 40, 120])
def test_an_evaluation_that_is_not_finite_ends_the_trial_with_a_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int, value: float, word: str
) -> None:
    """Found elsewhere: no best policy was kept, and the final evaluation failed to find its file."""

    def scripted(env: Any, algorithm: Any, net: Any, env_steps: int, count: int, seed: Any, alive: Any) -> Measured:
        score = [1.0] * count if env_steps < at else [1.0, value, value, *[1.0] * (count - 3)]
        return {"return": score, "length": [2.0] * count, "optimal": [0.0] * count}

    monkeypatch.setattr(evaluate, "run", scripted)
    reason, folder, kept = failed(tiny(tmp_path, "vdn"))
    assert reason == f"vdn: return is {word} in 2 of 4 evaluation episodes at env step {at}"
    assert points(folder / "evaluations.csv") == [p for p in (0, 40, 80, 120) if p <= at]
    where = {"env_steps": 0, "updates": 0} if at == 40 else {"env_steps": 40, "updates": 8}
    assert kept["best"] == (None if at == 0 else {"score": 1.0, "return": 1.0, **where})


def test_a_reward_that_is_not_finite_is_the_environments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from suites.matrix.env import MatrixEnv

    step, steps = MatrixEnv.step, [0]

    def broken(self: Any, action: Any) -> Any:
        steps[0] += 1
        after = step(self, action)
        return after._replace(reward=after.reward * float("nan")) if steps[0] == 4 else after

    monkeypatch.setattr(MatrixEnv, "step", broken)
    reason, _, _ = failed(tiny(tmp_path, "vdn"))  # two steps of evaluation, then the first training round
    assert reason == "vdn: return is NaN in 4 of 4 training episodes at env step 8"


def test_any_other_error_is_left_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: Loop) -> None:
        raise RuntimeError("a cable was pulled")

    monkeypatch.setattr(Loop, "_learn", broken)
    with pytest.raises(RuntimeError, match=r"^a cable was pulled$"):
        run(tiny(tmp_path, "vdn"), lambda p: None, lambda: False)


# -- from settings ----------------------------------------------------------------------------------------------------


def test_settings_come_back_from_json_with_the_types_that_their_fields_declare(fake_marl: Any) -> None:
    """A list would make a method unlike itself: unhashable, unequal to what was asked for."""
    settings = {"algorithm": {"layers": [1, 2], "lr": 1}, "suite": {}, "budget": {"env_steps": 8, "eval_every": 4}}
    trial = Trial("e", "toy", "one", "fake", 0, json.loads(json.dumps({**settings, "engine": "toy 1"})))
    algorithm, suite, task, budget = build(trial)
    assert algorithm == fake_marl.Fake(layers=(1, 2), lr=1.0)
    assert type(algorithm.layers) is tuple  # type: ignore[attr-defined]
    assert type(algorithm.lr) is float  # type: ignore[attr-defined]
    assert (suite.name, task.name, budget.env_steps, budget.eval_episodes) == ("toy", "one", 8, 32)
    for part, name in (("algorithm", "fake"), ("budget", "budget")):
        wrong = dataclasses.replace(trial, settings={**trial.settings, part: {"sise": 1}})
        with pytest.raises(UserError, match=f"unknown field of {name} 'sise'"):
            build(wrong)
