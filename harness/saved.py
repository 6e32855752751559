"""Trials already run, opened again: their environments and the teams that they saved."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from harness import assemble, checkpoint
from harness.cdm.play import Player
from harness.errors import UserError
from harness.learner import Learner
from harness.seeds import Seeds
from harness.store import TrialFolder, folders
from harness.suite import Suite, VecEnv
from harness.types import Trial


@dataclass
class Saved:
    """One trial's folder, opened."""

    folder: TrialFolder
    trial: Trial
    suite: Suite
    env: VecEnv

    @property
    def seeds(self) -> Seeds:
        """The trial's own streams."""
        return assemble.seeds_of(self.trial)


def find(path: Path) -> list[TrialFolder]:
    """Trial folders at or below ``path``. Raises ``UserError`` when there is none."""
    found = folders(path) if path.exists() else []
    if not found:
        raise UserError(f"{path}: no trials there; give a folder below results/")
    return found


def one(path: Path) -> TrialFolder:
    """The one trial at or below ``path``. Raises ``UserError`` when there is none or more."""
    found = find(path)
    if len(found) > 1:
        few = ", ".join(str(f.path) for f in found[:3])
        raise UserError(f"{path}: {len(found)} trials there, name one: {few}{', ...' * (len(found) > 3)}")
    return found[0]


def opened(folder: TrialFolder, device: str = "cpu") -> Saved:
    """The trial, with the environments that evaluate it. Raises ``UserError`` when its record says too little."""
    try:
        record = folder.record()
    except ValueError as error:
        raise UserError(str(error)) from error
    names = ("experiment", "suite", "task", "algorithm", "seed", "settings")
    if record is None or any(record.get(k) is None for k in names) or record.get("imported"):
        raise UserError(f"{folder.path}: its record names no settings to rebuild the method from")
    made = Trial(**{k: record[k] for k in names}, device=device)
    try:
        _, suite, task, budget = assemble.build(made)
    except (UserError, KeyError) as error:  # a name or a task that is no more
        raise UserError(f"{folder.path}: its settings are not those of this version: {error}") from error
    env = assemble.evaluation_env(suite, task.name, budget, torch.device(device))
    return Saved(folder, made, suite, env)


def teams(saved: Saved, which: str = "checkpoint") -> Iterator[tuple[str, Player, nn.ModuleDict]]:
    """(file, team, target networks) of the saved networks, in order of training.

    ``which``: checkpoint (all of them), last or best. ``best.pt`` holds no target networks: copies of its own stand in.
    """
    algorithm = assemble.build(saved.trial)[0]
    device, path = torch.device(saved.trial.device), saved.folder.path
    fresh = assemble.initial_networks(algorithm, saved.env, 0, device)
    found: list[tuple[str, Player, nn.ModuleDict]] = []
    try:
        if which != "last" and (path / "best.pt").exists():
            best, net = checkpoint.load_networks(path / "best.pt", device), copy.deepcopy(fresh)
            net.load_state_dict(best["networks"])
            target = nn.ModuleDict({k: copy.deepcopy(net[k]) for k in algorithm.targets().networks})
            found.append(("best.pt", Player(algorithm, net, int(best["env_steps"])), target))
        state = None if which == "best" else checkpoint.load(path, None, device)
        if state is not None:
            learner = Learner(algorithm, copy.deepcopy(fresh))
            learner.load_state_dict(state["learner"])
            found.append((checkpoint.NAME, Player(algorithm, learner.net, int(state["counters"][0])), learner.target))
    except ValueError as error:
        raise UserError(str(error)) from error
    except RuntimeError as error:  # how torch says that shapes or names differ
        what = " ".join(str(error).split())[:200]
        raise UserError(f"{path}: its saved networks are not those of its settings: {what}") from error
    yield from found
