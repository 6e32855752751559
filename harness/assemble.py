"""A trial's settings -> the objects that it is made of: method, suite, environments, networks, replay, generators."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import nn

from harness import fields, registry, replay, variant
from harness.algorithm import Algorithm
from harness.errors import UserError
from harness.seeds import Seeds, reseed
from harness.store import TrialFolder
from harness.suite import Budget, Suite, Task, VecEnv
from harness.types import Action, Spec, Step, Trial

if TYPE_CHECKING:  # diagnostics are loaded by trials that ask for them
    from harness.cdm.measure import Diagnostics

EVALUATION_ENVS = 32
"""Most environments that evaluate at once; each plays the same number of episodes."""


def build(trial: Trial) -> tuple[Algorithm, Suite, Task, Budget]:
    """The objects that a trial's settings describe, every field of its declared type again. Raises ``UserError``."""
    settings, name = trial.settings, variant.base(trial.algorithm)
    algorithm: Algorithm = fields.build(registry.algorithm(name), settings["algorithm"], trial.algorithm)
    suite: Suite = fields.build(registry.suite(trial.suite), settings["suite"], trial.suite)
    return algorithm, suite, suite.tasks()[trial.task], fields.build(Budget, settings["budget"])


def evaluation_env(suite: Suite, task: str, budget: Budget, device: torch.device) -> VecEnv:
    """The environments that evaluate, apart from those that train."""
    return suite.make(task, min(budget.eval_episodes, EVALUATION_ENVS), device)


def initial_networks(algorithm: Algorithm, env: VecEnv, seed: int, device: torch.device) -> nn.ModuleDict:
    """Networks at their seeded start. Layers draw from torch's global generator, which is put back."""
    with torch.random.fork_rng(devices=[]):
        reseed(torch.default_generator, seed)
        return algorithm.networks(env.spec).to(device)


def empty_replay(algorithm: Algorithm, spec: Spec, device: torch.device) -> replay.Replay | None:
    """What the method samples from; None where it learns from each round of episodes once.

    Raises ``UserError`` where it can never fit: some environments tell their sizes only once they run, so that no plan
    could refuse it, and a plan knows the machine's memory, not the GPU's.
    """
    if algorithm.data != "replay":
        return None
    episodes: int = algorithm.buffer_episodes  # type: ignore[attr-defined]
    needed, there = replay.bytes_needed(spec, episodes), replay.room(device)
    if needed > there:
        raise UserError(
            f"a replay of {episodes:,} episodes takes up to {needed / 2**30:.1f} GiB, {device} has "
            f"{there / 2**30:.1f} GiB; try buffer_episodes={episodes * there // (2 * needed)}"
        )
    return replay.Replay(spec, episodes, device)


def seeds_of(trial: Trial) -> Seeds:
    """The trial's random streams, of suite, task, label and seed alone."""
    return Seeds(f"{trial.suite}/{trial.task}/{trial.algorithm}", trial.seed)


def generators(trial: Trial, seeds: Seeds, device: torch.device) -> dict[str, torch.Generator]:
    """A random stream for each role; the replay's is on the CPU."""
    found = {role: seeds.generator(role, device) for role in ("exploration", "learning")}
    found["replay"] = seeds.generator("replay")
    if trial.settings.get("corrupt"):
        found["corruption"] = seeds.generator("corruption", device)
    return found


Corrupt = Callable[[Action, Step, int], Action]
"""(action, step, environment steps of training so far) -> what is played."""


def corrupting(trial: Trial, spec: Spec, rng: torch.Generator | None) -> Corrupt | None:
    """What a trial with ``corrupt=`` plays in training; None for any other, whose roles have no such stream.

    Raises ``UserError`` when its task has no such agent.
    """
    if rng is None:
        return None
    from harness.cdm import corrupt

    found = corrupt.parse(trial.settings["corrupt"])
    if found is not None:
        found.check(spec)
    return lambda action, step, env_steps: corrupt.corrupted(action, step, env_steps, found, spec, rng)


def diagnostics(trial: Trial, algorithm: Algorithm, suite: Suite, env: VecEnv, seeds: Seeds) -> Diagnostics | None:
    """Of mismatch, at every evaluation or the last: in the evaluation's environments ``env``, from a random stream of
    their own.

    None where they were not asked for.
    """
    if not trial.settings.get("cdm"):
        return None
    from harness.cdm.measure import Diagnostics

    final = trial.settings["cdm"] == "final"
    return Diagnostics(TrialFolder.of(trial), algorithm, suite, trial.task, env, seeds, final=final)
