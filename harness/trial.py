"""One trial's loop: collect, store, evaluate, learn, checkpoint."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, NoReturn

import torch
from torch import nn

from harness import assemble, checkpoint, evaluate, record
from harness.collect import episodes
from harness.energy import Meter
from harness.errors import Diverged, UserError
from harness.learner import Learner
from harness.record import Means, Tell, Voice
from harness.replay import longest_first
from harness.store import TrialFolder
from harness.types import Action, Step, Trial

Around = Callable[["Loop"], AbstractContextManager[Any]]


def run(trial: Trial, tell: Tell, stopping: Callable[[], bool], around: Around = nullcontext) -> str:
    """Run ``trial`` to its end, from its checkpoint where it has one: "complete", or "interrupted" when asked to stop.

    Everything it measures goes into its folder. ``tell`` hears of progress; ``stopping`` is asked between rounds;
    ``around`` its loop is watched.
    """
    torch.set_num_threads(1)
    torch.backends.cudnn.benchmark = False
    torch.backends.cudnn.deterministic = True
    loop = Loop(trial, tell)
    try:
        with around(loop):
            return loop.run(stopping)
    finally:
        loop.close()


class Loop:
    """The state of one running trial."""

    def __init__(self, trial: Trial, tell: Tell) -> None:
        self.trial = trial
        self.folder = TrialFolder.of(trial)
        self.device = torch.device(trial.device)
        self.algorithm, self.suite, self.task, self.budget = assemble.build(trial)
        self.meter = Meter(self.device)
        self.seeds = assemble.seeds_of(trial)
        self.voice = Voice(tell, self.budget.env_steps, self.task.metric)
        self.env_steps = self.rounds = self.points = self.transitions = 0
        self._say("starting")
        self.env = self.suite.make(trial.task, self.algorithm.num_envs, self.device)
        self.eval_env = assemble.evaluation_env(self.suite, trial.task, self.budget, self.device)
        seed = self.seeds.integer("parameters")
        self.learner = Learner(self.algorithm, assemble.initial_networks(self.algorithm, self.env, seed, self.device))
        self.replay = assemble.empty_replay(self.algorithm, self.env.spec, self.device)
        self.rng = assemble.generators(trial, self.seeds, self.device)
        self.corrupt = assemble.corrupting(trial, self.env.spec, self.rng.get("corruption"))
        self.diagnostics = assemble.diagnostics(trial, self.algorithm, self.suite, self.eval_env, self.seeds)
        self.means = Means()
        self.seconds = self.eval_seconds = 0.0
        self.best: dict[str, Any] = {}  # score, return, env_steps and updates of the best evaluation
        self._best_net: dict[str, Any] = {}
        self.saved_at = 0
        self._counted: dict[str, Any] = {}  # by the environments of earlier processes of this trial
        self._parts: checkpoint.Parts = []

    def close(self) -> None:
        """Free the environments."""
        for env in ("env", "eval_env"):
            if hasattr(self, env):
                getattr(self, env).close()

    # -- the loop -------------------------------------------------------------------------------------------------

    def run(self, stopping: Callable[[], bool]) -> str:
        """Everything from where the trial stands to its end. Raises ``Diverged`` when a number is no longer finite."""
        try:
            return self._run(stopping)
        except Diverged:
            raise
        except Exception as error:  # a sampler refuses NaN before anybody has looked
            self._check(error)
            raise

    def _run(self, stopping: Callable[[], bool]) -> str:
        resumed = self._resume()
        self._record(resumed)
        self.meter.charge("starting")
        if not resumed:
            self._evaluate_due()
        while self.env_steps < self.budget.env_steps:
            start = time.monotonic()
            self._collect()
            self.seconds += time.monotonic() - start
            self._evaluate_due()  # the policy in force at each point of the grid: not yet moved by this round's data
            start = time.monotonic()
            self._learn()
            self._check()
            self.seconds += time.monotonic() - start
            self.meter.tick("training")
            if self.env_steps >= self.budget.env_steps:
                self._write_metrics(self.budget.env_steps)
            self._say("training")
            if self.env_steps - self.saved_at >= self.budget.checkpoint_every:
                self._save()
            if stopping() and self.env_steps < self.budget.env_steps:
                self._save()
                self.folder.update(status="interrupted", **self._costs())
                return "interrupted"
        self._save()
        self._final()
        self.meter.charge("final")
        self.folder.update(status="complete", finished=record.now(), **self._costs())
        self._say("done")
        return "complete"

    def _collect(self) -> None:
        before = self.env_steps
        result, batch = episodes(
            self.env,
            lambda step, memory, played: self._act(step, memory, before + played),
            self.seeds.integer("train_env", self.rounds),
        )
        assert batch is not None
        self.rounds += 1
        self.env_steps += int(result.length.sum())
        self._measured({"return": result.returns.tolist()}, "training", self.env_steps)
        self.means.add({f"train/{name}": value for name, value in result.means().items()})
        if self.replay is None:
            self.batch = longest_first(batch)
        else:
            self.replay.add(batch)

    def _act(self, step: Step, memory: Any, env_steps: int) -> Action:
        """The behaviour policy, one agent of it corrupted where that was asked for."""
        self.voice.alive()
        action = self.algorithm.act(self.learner.net, step, memory, env_steps, self.rng["exploration"])
        return action if self.corrupt is None else self.corrupt(action, step, env_steps)

    def _learn(self) -> None:
        progress = min(self.env_steps / self.budget.env_steps, 1.0)
        if self.replay is None:
            self._update(self.batch, progress)
        else:
            size, updates = self.algorithm.batch_episodes, self.algorithm.updates_per_collect  # type: ignore[attr-defined]
            if len(self.replay) >= size:
                for _ in range(updates):
                    self._update(self.replay.sample(size, self.rng["replay"]), progress)
        self.learner.count(self.algorithm.num_envs)

    def _update(self, batch: Any, progress: float) -> None:
        self.voice.alive()
        metrics = self.learner.update(batch, progress, self.rng["learning"], self.rng["replay"])
        self.transitions += int(batch.mask.sum()) * self.learner.losses[0].epochs
        self.means.add(metrics)

    # -- measuring ------------------------------------------------------------------------------------------------

    def _evaluate_due(self) -> None:
        """Evaluate at every point of the grid that has been reached: 0, eval_every, ..., env_steps."""
        while True:
            point = min(self.points * self.budget.eval_every, self.budget.env_steps)
            if point > self.env_steps or self.points > math.ceil(self.budget.env_steps / self.budget.eval_every):
                return
            self.meter.charge("training")
            start = time.monotonic()
            self._evaluate(point)
            self.eval_seconds += time.monotonic() - start
            self.meter.charge("evaluation")
            if self.diagnostics is not None and self.diagnostics.due(point, self.budget.env_steps):
                self._say("evaluating")
                with _heard(self.learner.net, self.voice.alive):
                    found = self.diagnostics.at(self.learner.net, self.learner.target, point, self.points)
                self.diagnostics.record(found)  # at each point: a trial killed later has told how it measured
                self.meter.charge("cdm")
            self.points += 1

    def _evaluate(self, point: int) -> None:
        self._say("evaluating")
        index = self.points * 1_000  # rounds of one evaluation never reach the next one's seeds
        found = evaluate.run(
            self.eval_env, self.algorithm, self.learner.net, point, self.budget.eval_episodes,
            lambda k: self.seeds.integer("eval_env", index + k), self.voice.alive,
        )  # fmt: skip
        self._write("evaluations.csv", point, found)
        if point < self.budget.env_steps:  # the last point waits for the last round's learning
            self._write_metrics(point)
        columns = ("env_steps", "updates", "seconds", *self.meter.columns)
        self.folder.append("timings.csv", columns, [(point, self.learner.updates, self.seconds, *self.meter.row())])
        self._measured(found, "evaluation", point)
        score, returns = record.mean(found[self.task.metric]), record.mean(found["return"])
        self.voice.last_eval = score
        untrained = not self.best or self.best["updates"] == 0  # luck of the first weights is not what was learned
        if untrained or (score, returns) > (self.best["score"], self.best["return"]):
            self.best = {"score": score, "return": returns, "env_steps": point, "updates": self.learner.updates}
            self._best_net = copy.deepcopy(self.learner.net.state_dict())
            checkpoint.save_networks(self.folder.path / "best.pt", self._best_net, **self.best)

    def _final(self) -> None:
        """The absolute metric: the best policy by evaluation on fresh episodes (Gorsane et al. 2022)."""
        self._say("final")
        best = checkpoint.load_networks(self.folder.path / "best.pt", self.device)
        net = copy.deepcopy(self.learner.net)
        net.load_state_dict(best["networks"])
        found = evaluate.run(
            self.eval_env, self.algorithm, net, best["env_steps"], self.budget.final_episodes,
            lambda k: self.seeds.integer("final_env", k), self.voice.alive,
        )  # fmt: skip
        path = self.folder.path / "final.csv"
        path.unlink(missing_ok=True)
        self._write("final.csv", best["env_steps"], found)
        self._measured(found, "final", best["env_steps"])
        self.voice.last_eval = record.mean(found[self.task.metric])

    def _check(self, cause: Exception | None = None) -> None:
        """Raise ``Diverged`` when a loss, a gradient or a parameter is not finite; asked once a round."""
        if trouble := self.learner.trouble():
            self._diverged(f"{trouble} at env step {self.env_steps:,}", cause)

    def _measured(self, found: dict[str, list[float]], which: str, env_steps: int) -> None:
        """Raise ``Diverged`` when the return of an episode, or what it is scored by, is not finite."""
        if trouble := record.trouble(found, ("return", self.task.metric)):
            self._diverged(f"{trouble} {which} episodes at env step {env_steps:,}")

    def _diverged(self, trouble: str, cause: Exception | None = None) -> NoReturn:
        self.meter.charge("training")
        self.folder.update(**self._costs())
        raise Diverged(f"{self.trial.algorithm}: {trouble}") from cause

    def _write_metrics(self, point: int) -> None:
        """Means of what was measured in training since the last row."""
        means = {**self.means.take(), "updates": self.learner.updates}
        self.folder.append("metrics.csv", ("env_steps", "metric", "value"), [(point, k, v) for k, v in means.items()])

    def _write(self, table: str, env_steps: int, found: dict[str, list[float]]) -> None:
        self.folder.append(table, *record.episode_rows(env_steps, found))

    # -- record, checkpoint, progress -----------------------------------------------------------------------------

    def _record(self, resumed: bool) -> None:
        now, before = record.identity(self.trial, self.algorithm, self.task, self.learner), self.folder.record() or {}
        if not resumed:
            now |= {"started": record.now(), "earlier_sources": []}
        elif (was := before.get("source")) and was != now["source"]:  # half of it learned by other equations
            now["earlier_sources"] = [*before.get("earlier_sources", []), was]
        self.folder.update(**now)

    def _costs(self) -> dict[str, Any]:
        times = (self.seconds, self.eval_seconds)
        used = record.costs(self.learner, self.device, self.env_steps, self.transitions, times)
        measured = {} if self.diagnostics is None else {"cdm_seconds": self.diagnostics.seconds}
        return {**used, **self._counts(), **self.meter.record(), "best": self.best or None, **measured}

    def _counts(self) -> dict[str, Any]:
        """Restarts and defects of the environments, since the trial began."""
        envs = {"environment": self.env, "evaluation_environment": self.eval_env}
        return {name: record.counts(env, self._counted.get(name, {})) for name, env in envs.items()}

    def _save(self) -> None:
        self.saved_at = self.env_steps
        self.meter.charge("training")
        state = {
            "learner": self.learner.state_dict(),
            "rng": {name: rng.get_state() for name, rng in self.rng.items()},
            "means": self.means.state_dict(),
            "counters": [self.env_steps, self.rounds, self.points, self.transitions],
            "clocks": [self.seconds, self.eval_seconds, self.diagnostics.seconds if self.diagnostics else 0.0],
            "meter": self.meter.state_dict(),
            "counts": self._counts(),
            "best": self.best,
            "best_net": self._best_net,
            "positions": self.folder.positions(),
        }
        self._parts = checkpoint.save(self.folder.path, state, self.replay, self._parts)
        self.meter.charge("checkpoint")

    def _resume(self) -> bool:
        """Continue from the checkpoint; without one begin anew, and drop rows that an earlier start left."""
        state = checkpoint.load(self.folder.path, self.replay, self.device)
        if state is None:
            self.folder.rewind({})
            return False
        self._parts = state["parts"]
        self.folder.rewind(state["positions"])
        try:
            self.learner.load_state_dict(state["learner"])
        except (RuntimeError, KeyError, ValueError) as error:
            raise UserError(
                f"the checkpoint does not fit the networks that {self.trial.algorithm} makes now: its source has "
                f"changed; take another name=, or delete {self.folder.path} to begin it anew"
            ) from error
        for name, rng in self.rng.items():
            rng.set_state(state["rng"][name].cpu())
        self.means.load_state_dict(state["means"])
        self.env_steps, self.rounds, self.points, self.transitions = state["counters"]
        self.seconds, self.eval_seconds, *measuring = state["clocks"]
        if self.diagnostics is not None:
            self.diagnostics.seconds = sum(measuring)
        self.meter.load_state_dict(state.get("meter"))
        self._counted = state.get("counts", {})
        self.best = state["best"]
        if best_net := state.get("best_net"):  # best.pt may hold one found after this checkpoint, and lost with it
            self._best_net = best_net
            checkpoint.save_networks(self.folder.path / "best.pt", best_net, **self.best)
        self.saved_at = self.env_steps
        self.voice.heard(self.env_steps)
        return True

    def _say(self, phase: str) -> None:
        self.voice.say(phase, self.env_steps)


@contextmanager
def _heard(net: nn.ModuleDict, alive: Callable[[], None]) -> Iterator[None]:
    """``alive`` is called whenever one of the networks is used inside."""
    handles = [child.register_forward_pre_hook(lambda *_: alive()) for child in net.children()]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
