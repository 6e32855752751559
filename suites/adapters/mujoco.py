"""Multi-Agent MuJoCo without its noise: the package, its physics engine and a log file all speak of old matters."""

from __future__ import annotations

import importlib
import logging
from typing import Any

from suites.adapters.packages import quiet_import

log = logging.getLogger(__name__)


def _warn(message: str) -> None:
    """What MuJoCo would append to MUJOCO_LOG.TXT in the working directory. Unstable physics stays a warning."""
    log.log(logging.DEBUG if "deprecated" in message else logging.WARNING, "MuJoCo: %s", message)


def parallel_env(**arguments: Any) -> Any:
    """Gymnasium-Robotics' ``mamujoco_v1.parallel_env``."""
    robotics = quiet_import("gymnasium_robotics.envs.multiagent_mujoco.mamujoco_v1")
    importlib.import_module("mujoco").set_mju_user_warning(_warn)
    return robotics.parallel_env(**arguments)
