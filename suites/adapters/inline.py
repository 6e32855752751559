"""E environments stepped in a loop in this process."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch
from torch import Tensor

from harness.scene import Scene
from harness.types import Spec, Step
from suites.adapters.convert import spec_of, step_of
from suites.adapters.memory import shared_bytes, views, write
from suites.adapters.single import Make, check, scene_of, seed_globals, seeds


class Inline:
    """E environments in this process, one after the other.

    Python's and numpy's global generators are seeded for the environments and given back as they were, so that the
    program around and the environments do not disturb each other.
    """

    def __init__(self, make: Make, num_envs: int, device: torch.device, name: str) -> None:
        self.num_envs, self._device, self._name = num_envs, device, name
        outside = _globals()
        self._envs = [make() for _ in range(num_envs)]
        _set_globals(outside)
        self._layout = self._envs[0].layout
        self._views = views(bytearray(shared_bytes(self._layout, num_envs)), self._layout, num_envs)
        self.spec: Spec = spec_of(self._layout)
        self._done = np.ones(num_envs, bool)
        self._steps = 0
        self._inside = outside

    def reset(self, seed: int) -> Step:
        """New episodes from ``seed``."""
        outside = _globals()
        try:
            for index, (env, own) in enumerate(zip(self._envs, seeds(seed, self.num_envs))):
                seed_globals(own)
                write(self._views, index, check(env.reset(own), self._name, 0))
            self._inside = _globals()
        finally:
            _set_globals(outside)
        self._done[:], self._steps = False, 0
        return step_of(self._views, self._layout, self._device)

    def step(self, action: Tensor) -> Step:
        """Play ``action`` [E,N] int64 | [E,N,U] float32 where the episode runs.

        Raises ``IllegalMoment`` when an environment breaks its contract.
        """
        actions = action.detach().cpu().numpy()
        self._views.reward[:] = 0
        self._steps += 1
        outside = _globals()
        try:
            _set_globals(self._inside)
            for index in np.flatnonzero(~self._done):
                moment = self._envs[index].step(actions[index])
                write(self._views, int(index), check(moment, self._name, self._steps))
            self._inside = _globals()
        finally:
            _set_globals(outside)
        self._done |= self._views.terminated | self._views.truncated
        return step_of(self._views, self._layout, self._device)

    def record(self) -> dict[str, Any]:
        """As ``Subprocess.record``: nothing is ever restarted here."""
        return {"restarts": 0, "reasons": {}}

    def scene(self, index: int, action: Tensor) -> Scene | None:
        """What environment ``index`` looks like; None where its kind does not say."""
        return scene_of(self._envs[index], action.numpy())

    def close(self) -> None:
        """Close every environment. Safe to call twice."""
        for env in self._envs:
            env.close()
        self._envs = []


def _globals() -> tuple[Any, Any]:
    return random.getstate(), np.random.get_state()  # noqa: NPY002


def _set_globals(state: tuple[Any, Any]) -> None:
    random.setstate(state[0])
    np.random.set_state(state[1])  # noqa: NPY002
