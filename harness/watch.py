"""Greedy episodes of a trial's saved team, as pictures in data: what ``harness replay`` draws.

With the trial's best networks and seed 0 they are the first episodes of its ``final.csv``, number for number: the same
environments, as many of them, and the same seeds.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from harness import saved
from harness.cdm.own import Unmeasurable
from harness.cdm.play import Player, greedily
from harness.cdm.read import Reader
from harness.collect import episodes
from harness.errors import UserError
from harness.scene import Frame, Grid, Recording, Scene, probabilities, spread
from harness.store import TrialFolder
from harness.suite import VecEnv
from harness.types import Batch, Discrete, Spec, Step

ROUNDS_A_SEED = 1_000_000
"""Of the final evaluation's stream: rounds of one ``--seed`` never reach the next one's."""
DISCS = "orange discs and the numbers at the edges: each agent's probabilities, as the method's policy has them"
CROSS = "orange cross: one standard deviation of each agent's policy around its mean"


@dataclass(frozen=True)
class Watched:
    """Episodes of one trial and what to say of them."""

    about: dict[str, Any]
    """suite, task, algorithm, seed, checkpoint, env_steps, engine, trained_on, metric, experiment."""
    recordings: tuple[Recording, ...]


def watch(folder: TrialFolder, count: int = 3, which: str = "best", seed: int = 0) -> Watched:
    """``count`` greedy episodes of the networks in best.pt (``which`` "best") or checkpoint.pt ("last").

    Raises ``UserError`` when the trial cannot be opened, has no such networks, or its environments no ``scene``.
    """
    torch.set_num_threads(1)  # as trials run: the same episodes to the bit
    trial = saved.opened(folder)
    try:
        team = next(saved.teams(trial, which), None)
        if team is None:
            name = "best.pt" if which == "best" else "checkpoint.pt"
            raise UserError(f"{folder.path}: no saved networks ({name}); a trial writes them while it trains")
        file, player, _ = team
        made = _play(trial, player, count, seed)
    finally:
        trial.env.close()
    record = folder.record() or {}
    about = {
        "experiment": trial.trial.experiment, "suite": trial.trial.suite, "task": trial.trial.task,
        "algorithm": trial.trial.algorithm, "seed": trial.trial.seed, "checkpoint": file,
        "env_steps": player.env_steps, "engine": trial.suite.engine_version(), "trained_on": record.get("engine"),
        "metric": record.get("metric", "return"),
    }  # fmt: skip
    return Watched(about, made)


def _undrawn(trial: saved.Saved) -> UserError:
    return UserError(
        f"suite {trial.trial.suite}, task {trial.trial.task}: its environments do not say how they look, which replay "
        "needs (the optional method scene of VecEnv, harness/suite.py)"
    )


def _play(trial: saved.Saved, player: Player, count: int, seed: int) -> tuple[Recording, ...]:
    envs, found = trial.env.num_envs, list[Recording]()
    for k in range(-(-count // envs)):
        camera = Camera(trial.env, min(envs, count - len(found)), _undrawn(trial))
        round_seed = trial.seeds.integer("final_env", seed * ROUNDS_A_SEED + k)
        _, batch = episodes(camera, greedily(player), round_seed)
        assert batch is not None
        found += _with_policies(camera.recordings(len(found)), player, batch, trial.env.spec)
    return tuple(found)


class Camera:
    """A ``VecEnv`` that takes a frame of its first ``shown`` environments at every moment, and changes nothing.

    Raises ``undrawn`` at the first frame when the environments do not say how they look.
    """

    def __init__(self, env: VecEnv, shown: int, undrawn: UserError) -> None:
        self.spec, self.num_envs = env.spec, env.num_envs
        self._env, self._undrawn = env, undrawn
        self._shown = range(shown)

    def reset(self, seed: int) -> Step:
        """Begin anew: what was filmed before is of a void round."""
        self._last = self._env.reset(seed)
        self._frames: list[list[Frame]] = [[] for _ in self._shown]
        self._ends: dict[int, tuple[bool, dict[str, float]]] = {}
        return self._last

    def step(self, action: Tensor) -> Step:
        """Film the moment with what is chosen in it; of an episode that ends, the last moment too."""
        running = [k for k in self._shown if k not in self._ends]
        for k in running:
            self._film(k, action)
        self._last = self._env.step(action)
        for k in running:
            if bool(self._last.terminated[k] | self._last.truncated[k]):
                self._film(k, action)
                outcome = {name: float(value[k]) for name, value in self._last.outcome.items()}
                self._ends[k] = bool(self._last.terminated[k]), outcome
        return self._last

    def close(self) -> None:
        """The environments are another's to close."""

    def recordings(self, first: int) -> list[Recording]:
        """The episodes, numbered from ``first`` on."""
        return [Recording(first + k, tuple(self._frames[k]), *self._ends[k]) for k in self._shown]

    def _film(self, k: int, action: Tensor) -> None:
        look = getattr(self._env, "scene", None)
        scene: Scene | None = None if look is None else look(k, action[k].detach().cpu())
        if scene is None:
            raise self._undrawn
        frames, reward = self._frames[k], float(self._last.reward[k])
        before = frames[-1].total if frames else 0.0
        frames.append(Frame(len(frames), reward, before + reward, scene))


def _with_policies(made: list[Recording], player: Player, batch: Batch, spec: Spec) -> list[Recording]:
    """The joint policy drawn on every heat map of joint actions; as they are where there is none, or no policy."""
    if not any(_joint(frame.scene) for recording in made for frame in recording.frames):
        return made
    steps = batch.mask.shape[1]
    everywhere = torch.arange(batch.mask.numel(), device=batch.mask.device)
    reader = Reader(player.algorithm, player.net, batch, everywhere, spec)
    try:
        if isinstance(spec.action, Discrete):
            table = torch.stack(reader.policies(), 1).unflatten(0, (-1, steps))  # [B,T,N,A]
        else:
            table = torch.stack(reader.gaussian(), -1).unflatten(0, (-1, steps))  # [B,T,N,U,2]
    except Unmeasurable:
        return made

    def drawn(k: int, frame: Frame) -> Frame:
        t = min(frame.step, len(made[k].frames) - 2)  # the last moment shows what was played in the one before
        return dataclasses.replace(frame, scene=_overlaid(frame.scene, table[k, t]))

    return [
        dataclasses.replace(recording, frames=tuple(drawn(k, frame) for frame in recording.frames))
        for k, recording in enumerate(made)
    ]


def _joint(scene: Scene) -> Grid | None:
    """The heat map of joint actions in it."""
    return next((shape for shape in scene.shapes if isinstance(shape, Grid) and shape.agents), None)


def _overlaid(scene: Scene, policy: Tensor) -> Scene:
    """``policy`` [N,A] probabilities or [N,U,2] means and deviations."""
    grid = _joint(scene)
    if grid is None or grid.agents is None:
        return scene
    i, j = grid.agents
    if policy.dim() == 2:
        shapes, note = probabilities(grid, policy[i].tolist(), policy[j].tolist()), DISCS
    else:
        (x, dx), (y, dy) = policy[i, 0].tolist(), policy[j, 0].tolist()
        if not all(math.isfinite(v) for v in (x, y, dx, dy)):
            return scene
        shapes, note = spread(grid, (x, y), (dx, dy)), CROSS
    return dataclasses.replace(scene, shapes=(*scene.shapes, *shapes), notes=(*scene.notes, note))
