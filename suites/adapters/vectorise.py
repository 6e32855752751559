"""The choice between stepping environments in a loop and a process for each."""

from __future__ import annotations

from typing import Any, Literal

import torch

from harness.suite import VecEnv
from harness.types import Spec
from suites.adapters.convert import spec_of
from suites.adapters.inline import Inline
from suites.adapters.single import Make
from suites.adapters.subprocess import Subprocess

Stepping = Literal["inline", "process"]


def vectorise(make: Make, num_envs: int, device: torch.device, name: str, stepping: Stepping, **options: Any) -> VecEnv:
    """E environments in one process or in E; ``options`` are those of ``Subprocess`` and read only there."""
    if stepping == "inline":
        return Inline(make, num_envs, device, name)
    return Subprocess(make, num_envs, device, name, **options)


def spec(make: Make) -> Spec:
    """What methods may know of the environment that ``make`` builds; one is built here for a moment."""
    env = make()
    try:
        return spec_of(env.layout)
    finally:
        env.close()
