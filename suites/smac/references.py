"""Reference lines of the SMAX scenarios, measured: ``python -m suites.smac.references [TASK ...] [--episodes 256]``.

Prints, for each task, the share of battles won by random play and by the enemy's own heuristic, and the share of
episodes that begin with a unit on or outside the wall. ``maps.py`` holds the numbers printed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click
import torch
from torch import Tensor

from harness.types import Step
from suites.adapters import jax as adapter
from suites.smac import SMAC
from suites.smac.maps import MAPS
from suites.smac.smax import SMAXVecEnv, load

Policy = Callable[[Step, int], Tensor]
"""Moment and its number in the episode -> actions [E,N]."""

CPU = torch.device("cpu")
NUM_ENVS = 32


def random_policy(seed: int) -> Policy:
    """Uniform over the legal actions."""
    generator = torch.Generator().manual_seed(seed)

    def act(step: Step, t: int) -> Tensor:
        assert step.avail is not None
        drawn = torch.multinomial(step.avail.flatten(0, 1).float(), 1, generator=generator)
        return drawn.view(step.avail.shape[:2])

    return act


def scripted_policy(task: str, num_envs: int, seed: int) -> Policy:
    """The engine's heuristic, with the enemy's own settings, playing the allies from their observations."""
    jax = adapter.setup(CPU)
    engine = load()
    env = engine.HeuristicEnemySMAX(scenario=engine.map_name_to_scenario(task))
    heuristic = adapter.import_submodule("jaxmarl.environments.smax.heuristic_enemy")
    one = heuristic.create_heuristic_policy(env._env, 0)
    units = jax.vmap(one, in_axes=(0, 0, 0))
    act_all = jax.jit(jax.vmap(units))
    shape = (num_envs, env.num_allies)
    initial = jax.tree.map(
        lambda x: jax.numpy.broadcast_to(x, shape + jax.numpy.shape(x)), heuristic.get_heuristic_policy_initial_state()
    )
    memory: Any = initial
    key = adapter.key(jax, seed)

    def act(step: Step, t: int) -> Tensor:
        nonlocal memory, key
        key, drawn = jax.random.split(key)
        memory = initial if t == 0 else memory
        action, memory = act_all(jax.random.split(drawn, shape), memory, adapter.to_jax(jax, step.obs))
        # a dead unit's observation is zero, about which the heuristic says nothing sensible
        return torch.where(step.alive, adapter.to_torch(action, CPU).long(), 4)

    return act


def share_won(env: SMAXVecEnv, policy: Policy, episodes: int) -> float:
    """Share of ``episodes`` (a multiple of the environments) won."""
    won = 0.0
    for seed in range(episodes // env.num_envs):
        step = env.reset(seed)
        for t in range(env.spec.episode_limit):
            step = env.step(policy(step, t))
            if (step.terminated | step.truncated).all():
                break
        won += float(step.outcome["won"].sum())
    return won / episodes


@click.command(help=__doc__)
@click.argument("tasks", nargs=-1)
@click.option("--episodes", default=256, show_default=True, help=f"Episodes a number, a multiple of {NUM_ENVS}.")
def main(tasks: tuple[str, ...], episodes: int) -> None:
    """Measure and print."""
    for task in tasks or tuple(MAPS):
        env = SMAC(engine="smax").make(task, NUM_ENVS, CPU)
        assert isinstance(env, SMAXVecEnv)
        random = share_won(env, random_policy(0), episodes)
        scripted = share_won(env, scripted_policy(task, NUM_ENVS, 0), episodes)
        record = env.record()
        in_wall = record["episodes_spawned_in_wall"] / record["episodes"]
        click.echo(f"{task:16s} random {random:.3f}  scripted {scripted:.3f}  spawned in wall {in_wall:.3f}")
        env.close()


if __name__ == "__main__":
    main()
