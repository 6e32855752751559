"""``StarCraft2Env`` and ``StarCraftCapabilityEnvWrapper`` with battles of arithmetic.

Allies lose the agent named by the step; the battle is won when every living agent attacks (the last action) in step 3.
The file named by STANDIN_SC2 says what goes wrong, one word an episode step: "die 2", "hang reset", "mask 1", "lost 2".
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import numpy as np


class StarCraft2Env:
    def __init__(self, map_name: str, seed: int | None = None, continuing_episode: bool = False, **rest: Any) -> None:
        capabilities = rest.get("capability_config", {})
        self.arguments = {"map_name": map_name, "continuing_episode": continuing_episode, **rest}
        self.n_agents = capabilities.get("n_units", 3)
        self.n_enemies = capabilities.get("n_enemies", 3)
        self.n_actions, self.episode_limit, self.force_restarts = 6 + self.n_enemies, 5, 0
        self._continuing, self._steps, self._config = continuing_episode, 0, {}
        self._game = np.random.default_rng(seed)

    def get_env_info(self) -> dict[str, int]:
        return {
            "n_agents": self.n_agents,
            "obs_shape": 3,
            "state_shape": 4,
            "n_actions": self.n_actions,
            "episode_limit": self.episode_limit,
        }

    def reset(self, episode_config: dict[str, Any] | None = None) -> tuple[list[np.ndarray], np.ndarray]:
        self._steps, self._config = 0, episode_config or {}
        if _order("reset") == "hang":
            time.sleep(1000)
        if _order("relaunch") == "relaunch":
            self.force_restarts += 1
        return self.get_obs(), self.get_state()

    def step(self, actions: list[int]) -> tuple[float, bool, dict[str, Any]]:
        avail = self.get_avail_actions()
        assert all(avail[i][a] for i, a in enumerate(actions)), "an agent cannot perform its action"
        self._steps += 1
        order = _order(str(self._steps))
        if order == "die":
            os._exit(1)
        if order == "raise":
            raise ConnectionError("websocket is closed")
        if order == "lost":
            self.force_restarts += 1
            return 0, True, {}
        won = self._steps == 3 and all(a in (0, self.n_actions - 1) for a in actions)
        cut = self._steps >= self.episode_limit
        info: dict[str, Any] = {"battle_won": won}
        if cut and not won and self._continuing:
            info["episode_limit"] = True
        return float(sum(actions)), won or cut, info

    def get_obs(self) -> list[np.ndarray]:
        team = self._config.get("team_gen", {}).get("ally_team", ["none"] * self.n_agents)
        number = {"none": 0, "marine": 1, "marauder": 2, "medivac": 3}
        places = self._config.get("start_positions", {}).get("item", np.zeros(self.n_agents))
        return [np.array([self._steps, number.get(team[i], 9), places[i]]) for i in range(self.n_agents)]

    def get_state(self) -> np.ndarray:
        return np.array([self._steps, 1, 2, 3], np.float64)

    def get_avail_actions(self) -> list[list[int]]:
        """Agent 1 is dead from step 2 on: the no-op alone is legal for it, and for nobody else."""
        alive = [0] + [1] * (self.n_actions - 1)
        dead = [1] + [0] * (self.n_actions - 1)
        masks = [dead if i == 1 and self._steps >= 2 else alive for i in range(self.n_agents)]
        if _order(f"mask{self._steps}") == "mask":
            masks[2] = [0] * self.n_actions
        return masks

    def close(self) -> None:
        pass


class WeightedTeamsDistribution:
    def __init__(self, config: dict[str, Any]) -> None:
        self.config, self.rng = config, np.random.default_rng()

    def generate(self) -> dict[str, Any]:
        size = self.config["n_units"]
        team = list(self.rng.choice(self.config["unit_types"], size=size, p=self.config["weights"]))
        return {"team_gen": {"ally_team": team}}


class PerAgentUniformDistribution:
    def __init__(self, config: dict[str, Any]) -> None:
        self.config, self.rng = config, np.random.default_rng()

    def generate(self) -> dict[str, Any]:
        return {"start_positions": {"item": self.rng.random(self.config["n_units"])}}


class SurroundedAndReflectPositionDistribution:
    """Like the package's, it has no generator of its own but parts that have."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.reflect_distribution = PerAgentUniformDistribution(config)

    def generate(self) -> dict[str, Any]:
        return self.reflect_distribution.generate()


class StarCraftCapabilityEnvWrapper:
    def __init__(self, **arguments: Any) -> None:
        config = arguments["capability_config"]
        kinds = {
            "weighted_teams": WeightedTeamsDistribution,
            "surrounded_and_reflect": SurroundedAndReflectPositionDistribution,
        }
        self.env_key_to_distribution_map = {}
        for key in ("team_gen", "start_positions"):
            # The package writes these into what it was given.
            config[key] |= {"n_units": config["n_units"], "n_enemies": config["n_enemies"], "env_key": key}
            self.env_key_to_distribution_map[key] = kinds[config[key]["dist_type"]](config[key])
        self.env = StarCraft2Env(**arguments)

    def reset(self) -> tuple[list[np.ndarray], np.ndarray]:
        drawn: dict[str, Any] = {}
        for distribution in self.env_key_to_distribution_map.values():
            drawn |= distribution.generate()
        return self.env.reset(drawn)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.env, name)


def _order(now: str) -> str:
    """What goes wrong now; each order is obeyed by one environment, once."""
    plan = Path(os.environ.get("STANDIN_SC2", "/nonexistent"))
    if not plan.exists():
        return ""
    for order in plan.read_text().splitlines():
        what, when = order.split()
        if when == now:
            try:
                plan.with_suffix(f".{what}").touch(exist_ok=False)
            except FileExistsError:
                continue
            return what
    return ""
