"""SMAX (Rutherford et al. 2024, JaxMARL) as a vectorised environment: one compiled call a step for all environments."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from harness.errors import UserError
from harness.scene import Scene
from harness.types import Discrete, Spec, Step
from suites.adapters import jax as adapter
from suites.smac.scene import Units, battle

SMAX_MODULE = "jaxmarl.environments.smax"
OWN = 10
"""Numbers a unit has in the engine's world state: health, x, y, weapon cooldown, six type bits."""


def load() -> Any:
    """The engine's module. JAX must have been set up. Raises ``UserError`` when it is not installed."""
    try:
        return adapter.import_submodule(SMAX_MODULE)
    except ImportError as error:
        raise UserError(
            f"engine smax needs the package jaxmarl ({error}); install it with: pip install jaxmarl==0.2.0"
        ) from error


class SMAXVecEnv:
    """``num_envs`` battles of one scenario against the engine's scripted enemy.

    The episode of environment i depends on the seed, i and the actions alone. A finished battle keeps its state and
    pays nothing.
    """

    def __init__(
        self,
        scenario: str,
        num_envs: int,
        device: torch.device,
        *,
        see_enemy_actions: bool = True,
        walls_cause_death: bool = True,
        attack_mode: str = "closest",
        reward_scale: float = 1.0,
    ) -> None:
        self.num_envs = num_envs
        self.device = device
        self._jax = adapter.setup(device)
        engine = load()
        env = engine.HeuristicEnemySMAX(
            scenario=engine.map_name_to_scenario(scenario),
            see_enemy_actions=see_enemy_actions,
            walls_cause_death=walls_cause_death,
            attack_mode=attack_mode,
        )
        self.spec = Spec(
            n_agents=env.num_allies,
            obs_dim=env.obs_size,
            state_dim=env.state_size,
            episode_limit=env.max_steps,
            action=Discrete(env.num_ally_actions),
            outcomes=("won",),
        )
        self._engine = env
        self._reset, self._step = _compiled(self._jax, env, num_envs, reward_scale)
        self._carry: Any = None
        self._episodes = 0
        self._spawned_in_wall = 0

    def reset(self, seed: int) -> Step:
        """Begin ``num_envs`` new battles from ``seed``, 0 <= seed < 2**63."""
        self._carry, out, in_wall = self._reset(adapter.key(self._jax, seed))
        self._episodes += self.num_envs
        self._spawned_in_wall += int(np.asarray(in_wall).sum())
        return self._torch(out)

    def step(self, action: Tensor) -> Step:
        """Play ``action`` [E,N] int64. An attack out of range or by a dead unit does nothing, as in the engine.

        Raises ``ValueError`` for another shape and, on the CPU, for a number that is no action.
        """
        if self._carry is None:
            raise RuntimeError("reset the environments before stepping them")
        if action.shape != (self.num_envs, self.spec.n_agents):
            raise ValueError(f"actions must be [{self.num_envs},{self.spec.n_agents}], got {list(action.shape)}")
        played = adapter.to_jax(self._jax, action.to(torch.int32))
        if isinstance(played, np.ndarray) and (played.min() < 0 or played.max() >= self.spec.action.dim):
            # XLA would clamp the index and attack some other unit; on a GPU looking would cost a synchronisation
            raise ValueError(f"actions must be in 0..{self.spec.action.dim - 1}, got {played.tolist()}")
        self._carry, out = self._step(self._carry, played)
        return self._torch(out)

    def record(self) -> dict[str, int]:
        """Episodes begun so far, and how many began with a unit on or outside the wall, where it dies at once."""
        return {"episodes": self._episodes, "episodes_spawned_in_wall": self._spawned_in_wall}

    def scene(self, index: int, action: Tensor) -> Scene:
        """Battle ``index`` as it stands; ``action`` [N] is what its allies have chosen."""
        engine, units = self._engine, self._carry[1].state
        types = np.asarray(units.unit_types)[index]

        def by_type(table: Any) -> Any:
            return np.asarray(table)[types]

        seen = Units(
            position=np.asarray(units.unit_positions)[index],
            alive=np.asarray(units.unit_alive)[index],
            health=np.asarray(units.unit_health)[index] / by_type(engine.unit_type_health),
            radius=by_type(engine.unit_type_radiuses),
            reach=by_type(engine.unit_type_attack_ranges),
            order=np.asarray(units.prev_attack_actions)[index],
            kind=tuple(engine.unit_type_names[t] for t in types),
        )
        over = bool(np.asarray(units.done)[index])
        return battle(seen, engine.num_allies, (engine.map_width, engine.map_height), action.numpy(), over)

    def close(self) -> None:
        """Let go of the battles' state."""
        self._carry = None

    def _torch(self, out: tuple[Any, ...]) -> Step:
        obs, state, avail, alive, reward, terminated, truncated, won = (adapter.to_torch(x, self.device) for x in out)
        return Step(obs, state, avail, alive, reward, terminated, truncated, {"won": won})


def _compiled(jax: Any, env: Any, num_envs: int, reward_scale: float) -> tuple[Any, Any]:
    """``reset(key) -> carry, out, in_wall`` and ``step(carry, action) -> carry, out``, compiled once each.

    The carry (keys and battle states) is donated to the next step; ``out`` never is, torch may still read it.
    """
    jnp = jax.numpy
    allies = env.num_allies
    size = jnp.array([env.map_width, env.map_height], dtype=jnp.float32)

    def observe(state: Any, reward: Any) -> tuple[Any, ...]:
        units = state.state
        obs, avail = env.get_obs(state), env.get_avail_actions(state)
        ally_left, enemy_left = units.unit_alive[:allies].any(), units.unit_alive[allies:].any()
        terminated = ~(ally_left & enemy_left)
        return (
            jnp.stack([obs[agent] for agent in env.agents]),
            _normalised(jnp, env, units),
            jnp.stack([avail[agent] for agent in env.agents]).astype(bool),
            units.unit_alive[:allies],
            jnp.asarray(reward, dtype=jnp.float32),
            terminated,
            ~terminated & (units.step >= env.max_steps),
            (ally_left & ~enemy_left).astype(jnp.float32),
        )

    def begin(key: Any) -> tuple[Any, ...]:
        key, reset_key = jax.random.split(key)
        _, state = env.reset(reset_key)
        state = adapter.strong(jax, state)
        position = state.state.unit_positions
        return (key, state), observe(state, 0.0), ((position <= 0.0) | (position >= size)).any()

    def advance(carry: Any, action: Any) -> tuple[Any, ...]:
        key, before = carry
        key, step_key = jax.random.split(key)
        chosen = {agent: action[i] for i, agent in enumerate(env.agents)}
        _, after, rewards, _, _ = env.step_env(step_key, before, chosen)
        idle = before.state.done
        state = jax.tree.map(lambda old, new: jnp.where(idle, old, new.astype(old.dtype)), before, after)
        reward = jnp.where(idle, 0.0, rewards[env.agents[0]]) * reward_scale
        return (key, state), observe(state, reward)

    def reset(key: Any) -> tuple[Any, ...]:
        keys = jax.vmap(jax.random.fold_in, in_axes=(None, 0))(key, jnp.arange(num_envs))
        return jax.vmap(begin)(keys)  # type: ignore[no-any-return]

    return jax.jit(reset), jax.jit(jax.vmap(advance), donate_argnums=0)


def _normalised(jnp: Any, env: Any, units: Any) -> Any:
    """[G] The engine's world state in [0,1]: it gives positions in map units, cooldowns in seconds and types as 0..5.

    Positions are divided by the map's size (a unit outside the map, see ``record``, stays outside [0,1]), cooldowns by
    the unit type's own and clipped to [0,1] as the engine does in observations, types by the largest.
    """
    count = env.num_allies + env.num_enemies
    raw = env._env.get_world_state(units)
    own = raw[: count * OWN].reshape(count, OWN)
    scale = jnp.array([env.map_width, env.map_height], dtype=jnp.float32)
    cooldown = own[:, 3] / env.unit_type_weapon_cooldowns[units.unit_types]
    own = own.at[:, 1:3].divide(scale).at[:, 3].set(jnp.clip(cooldown, 0.0, 1.0))
    teams, types = raw[count * OWN : count * (OWN + 1)], raw[count * (OWN + 1) :]
    return jnp.concatenate([own.reshape(-1), teams, types / (env.unit_type_bits - 1)])
