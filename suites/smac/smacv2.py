"""The real StarCraft II, through the package ``smacv2``: SMAC's maps and SMACv2's races with their distributions."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Mapping
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NamedTuple

import torch

from harness.errors import UserError, unknown
from harness.suite import Task, VecEnv
from suites.adapters.starcraft import StarCraft
from suites.adapters.subprocess import Subprocess

FIXED = "smacv2.env:StarCraft2Env"
DRAWN = "smacv2.env:StarCraftCapabilityEnvWrapper"

INSTALL = "pip install git+https://github.com/oxwhirl/smacv2.git"
GAME = "https://github.com/Blizzard/s2client-proto#downloads"


class Battle(NamedTuple):
    """A map of SMAC (Samvelyan et al. 2019, table 2)."""

    allies: int
    enemies: int
    units: str


MAPS: Mapping[str, Battle] = {
    "3m": Battle(3, 3, "marines"),
    "8m": Battle(8, 8, "marines"),
    "25m": Battle(25, 25, "marines"),
    "5m_vs_6m": Battle(5, 6, "marines"),
    "8m_vs_9m": Battle(8, 9, "marines"),
    "10m_vs_11m": Battle(10, 11, "marines"),
    "27m_vs_30m": Battle(27, 30, "marines"),
    "2s3z": Battle(5, 5, "2 stalkers, 3 zealots"),
    "3s5z": Battle(8, 8, "3 stalkers, 5 zealots"),
    "3s5z_vs_3s6z": Battle(8, 9, "3 stalkers, 5 zealots against 3 stalkers, 6 zealots"),
    "1c3s5z": Battle(9, 9, "1 colossus, 3 stalkers, 5 zealots"),
    "MMM": Battle(10, 10, "1 medivac, 2 marauders, 7 marines"),
    "MMM2": Battle(10, 12, "1 medivac, 2 marauders, 7 marines against 1, 3, 8"),
    "3s_vs_3z": Battle(3, 3, "stalkers against zealots"),
    "3s_vs_4z": Battle(3, 4, "stalkers against zealots"),
    "3s_vs_5z": Battle(3, 5, "stalkers against zealots"),
    "2s_vs_1sc": Battle(2, 1, "stalkers against a spine crawler"),
    "2c_vs_64zg": Battle(2, 64, "colossi against zerglings"),
    "6h_vs_8z": Battle(6, 8, "hydralisks against zealots"),
    "corridor": Battle(6, 24, "zealots against zerglings"),
    "bane_vs_bane": Battle(24, 24, "20 zerglings, 4 banelings"),
    "so_many_baneling": Battle(7, 32, "zealots against banelings"),
}

UNITS: Mapping[str, Mapping[str, Any]] = {
    "terran": {
        "unit_types": ["marine", "marauder", "medivac"],
        "weights": [0.45, 0.45, 0.1],
        "exception_unit_types": ["medivac"],
    },
    "protoss": {"unit_types": ["stalker", "zealot", "colossus"], "weights": [0.45, 0.45, 0.1]},
    "zerg": {
        "unit_types": ["zergling", "baneling", "hydralisk"],
        "weights": [0.45, 0.1, 0.45],
        "exception_unit_types": ["baneling"],
    },
}
"""How likely each type is, and types that cannot be a whole team (Ellis et al. 2023, and the package's own configs)."""

SIZES = ((5, 5), (10, 10), (10, 11), (20, 20), (20, 23))

DRAWN_TASKS: Mapping[str, tuple[str, int, int]] = {
    f"{race}_{allies}_vs_{enemies}": (race, allies, enemies) for race in UNITS for allies, enemies in SIZES
}


def tasks() -> dict[str, Task]:
    """Every battle by name, scored by "won" in [0,1]."""
    found = {
        name: Task(name, "discrete", "won", doc=f"{battle.allies} against {battle.enemies}: {battle.units}")
        for name, battle in MAPS.items()
    }
    for name, (race, allies, enemies) in DRAWN_TASKS.items():
        types = ", ".join(UNITS[race]["unit_types"])
        found[name] = Task(name, "discrete", "won", doc=f"{allies} against {enemies}: drawn from {types}")
    return found


def make(
    task: str,
    num_envs: int,
    device: torch.device,
    *,
    step_timeout: float = 60.0,
    reset_timeout: float = 180.0,
    max_restarts: int = 20,
) -> VecEnv:
    """``num_envs`` games, each in a process of its own. A game that dies or hangs is ended and launched again, at most
    ``max_restarts`` times in all; timeouts are seconds. Raises ``UserError`` naming what is missing.
    """
    if task not in MAPS and task not in DRAWN_TASKS:
        raise unknown("StarCraft II task", task, [*MAPS, *DRAWN_TASKS])
    lacking = missing(task)
    if lacking is not None:
        raise UserError(f"engine=smacv2: {lacking}")
    path, arguments = game(task)
    return Subprocess(
        partial(StarCraft, path, arguments),
        num_envs,
        device,
        f"StarCraft II {task}",
        step_timeout=step_timeout,
        reset_timeout=reset_timeout,
        max_restarts=max_restarts,
        own_children=True,
    )


def engine_version() -> str:
    """E.g. "StarCraft II 4.10 (build 75689), smacv2 1.0.0". Raises ``UserError`` naming what is missing."""
    lacking = missing()
    if lacking is not None:
        raise UserError(f"engine=smacv2: {lacking}")
    try:
        package = version("smacv2")
    except PackageNotFoundError:
        package = "of unknown version"
    build = max(_builds(_folder()))
    known = _VERSIONS.get(build)
    return f"StarCraft II {f'{known} (build {build})' if known else f'build {build}'}, smacv2 {package}"


_VERSIONS = {69232: "4.6.2", 75689: "4.10"}
"""Builds of the two Linux packages in use: SMAC's published results are of the first, most later ones of the second."""


def missing(task: str | None = None) -> str | None:
    """What StarCraft II, or ``task``'s map, lacks on this machine and how to get it; None when nothing does."""
    if importlib.util.find_spec("smacv2") is None:
        return f"the package smacv2 is not installed; {INSTALL}"
    folder = _folder()
    where = "SC2PATH" if os.environ.get("SC2PATH") else "SC2PATH is not set and the default folder"
    if not folder.is_dir():
        return f"{where} {folder} does not exist; unpack StarCraft II for Linux ({GAME}) and set SC2PATH to it"
    if not _builds(folder):
        return f"{folder} holds no game (Versions/Base*/SC2_x64); unpack StarCraft II for Linux ({GAME}) there"
    file = None if task is None else f"{_map_file(task)}.SC2Map"
    if file is not None and not any((folder / "Maps").rglob(file)):
        return f"map {file} is not in {folder / 'Maps'}; copy the package's SMAC_Maps folder there"
    return None


def game(task: str) -> tuple[str, dict[str, Any]]:
    """("module:class", arguments) of ``task``: the papers' settings, which are the package's defaults but for these."""
    # With continuing_episode the package says in its info when the time limit ended an episode.
    if task in MAPS:
        return FIXED, {"map_name": task, "continuing_episode": True}
    race, allies, enemies = DRAWN_TASKS[task]
    capabilities = {
        "n_units": allies,
        "n_enemies": enemies,
        "team_gen": {"dist_type": "weighted_teams", "observe": True, **UNITS[race]},
        "start_positions": {"dist_type": "surrounded_and_reflect", "p": 0.5, "map_x": 32, "map_y": 32},
    }
    return DRAWN, {
        "map_name": f"10gen_{race}",
        "capability_config": capabilities,
        "continuing_episode": True,
        "obs_own_pos": True,
        "use_unit_ranges": True,
        "min_attack_range": 2,
        "conic_fov": False,
        "num_fov_actions": 12,
    }


def _map_file(task: str) -> str:
    return task if task in MAPS else "32x32_flat"


def _folder() -> Path:
    return Path(os.environ.get("SC2PATH") or "~/StarCraftII").expanduser()


def _builds(folder: Path) -> list[int]:
    found = [path.parent.name.removeprefix("Base") for path in folder.glob("Versions/Base*/SC2_x64")]
    return [int(build) for build in found if build.isdigit()]
