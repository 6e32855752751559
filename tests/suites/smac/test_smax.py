"""Battles on the embedded engine. One compiled set of four environments serves almost every test."""

import subprocess
import sys

import numpy as np
import pytest
import torch

from suites.smac import SMAC

CPU = torch.device("cpu")
E = 4
STOP, EAST = 4, 1


@pytest.fixture(scope="module")
def env():
    made = SMAC(engine="smax").make("3m", E, CPU)
    yield made
    made.close()


def random_actions(step, generator):
    return torch.multinomial(step.avail.flatten(0, 1).float(), 1, generator=generator).view(step.avail.shape[:2])


def focus_fire(step):
    """The first enemy in range, else eastwards; the dead stop."""
    shoot = step.avail[..., 5:]
    march = torch.where(step.alive, EAST, STOP)
    return torch.where(shoot.any(-1), shoot.float().argmax(-1) + 5, march)


def stop(env):
    return torch.full((env.num_envs, env.spec.n_agents), STOP)


def play(env, seed, policy):
    """Whole episodes: every ``Step``, and the actions between them."""
    steps, actions = [env.reset(seed)], []
    while not (steps[-1].terminated | steps[-1].truncated).all():
        actions.append(policy(steps[-1]))
        steps.append(env.step(actions[-1]))
    return steps, actions


def change(env, **leaves):
    """Write into the engine's own state, between two steps."""
    keys, state = env._carry
    units = state.state.replace(**leaves)
    env._carry = (keys, state.replace(state=units))


def units(env):
    return env._carry[1].state


def equal(a, b):
    return all(torch.equal(x, y) for x, y in zip((*a[:-1], a.outcome["won"]), (*b[:-1], b.outcome["won"])))


def test_shapes_types_and_first_moment(env):
    step = env.reset(0)
    for x, shape, dtype in (
        (step.obs, (E, 3, 75), torch.float32),
        (step.state, (E, 72), torch.float32),
        (step.avail, (E, 3, 8), torch.bool),
        (step.alive, (E, 3), torch.bool),
        (step.reward, (E,), torch.float32),
        (step.terminated, (E,), torch.bool),
        (step.truncated, (E,), torch.bool),
        (step.outcome["won"], (E,), torch.float32),
    ):
        assert (tuple(x.shape), x.dtype, x.is_contiguous()) == (shape, dtype, True)
    assert step.alive.all()
    assert not (step.terminated | step.truncated | step.reward.bool() | step.outcome["won"].bool()).any()
    assert step.avail[..., :5].all()
    assert len({tuple(row) for row in step.obs.flatten(1).tolist()}) == E  # no two environments begin alike


def test_state_and_observations_are_in_range_all_episode(env):
    generator = torch.Generator().manual_seed(0)
    steps, _ = play(env, 1, lambda step: random_actions(step, generator))
    state, obs = torch.stack([s.state for s in steps]), torch.stack([s.obs for s in steps])
    assert state.min() >= 0
    assert state.max() <= 1
    assert obs.abs().max() <= 1
    features = state.view(len(steps), E, -1)[..., :60].unflatten(-1, (6, 10))
    assert features[0, ..., 0].eq(1).all()  # full health
    assert features[0, ..., 1:3].sub(0.5).abs().max() < 0.32  # teams start at a quarter and three quarters, +- 2 of 32
    assert features[..., 3].max() > 0.9  # cooldown of a weapon just fired
    assert state[0, :, 60:66].tolist() == [[0, 0, 0, 1, 1, 1]] * E


def test_the_same_seed_and_actions_are_the_same_episode_whatever_came_before(env):
    first, actions = play(env, 2**62 + 7, focus_fire)
    play(env, 3, focus_fire)
    env.reset(4)
    env.step(stop(env))
    again = [env.reset(2**62 + 7), *(env.step(a) for a in actions)]
    assert all(equal(a, b) for a, b in zip(first, again, strict=True))


@pytest.mark.parametrize("other", [8, 7 + 2**32, 7 + 2**62])
def test_any_bit_of_the_seed_makes_another_episode(env, other):
    assert not torch.equal(env.reset(7).obs, env.reset(other).obs)


def test_rewards_and_moments_equal_the_raw_engine_stepped_by_hand(env):
    from suites.adapters import jax as adapter
    from suites.smac import smax

    jax, engine = adapter.setup(CPU), smax.load()
    settings = {"see_enemy_actions": True, "walls_cause_death": True, "attack_mode": "closest"}
    raw = engine.HeuristicEnemySMAX(scenario=engine.map_name_to_scenario("3m"), **settings)
    steps, actions = play(env, 11, focus_fire)
    played, chosen = 2, raw.agents
    keys = jax.random.split(jax.random.fold_in(jax.random.key(11), played))
    obs, state = raw.reset(keys[1])
    key, total = keys[0], 0.0
    for t, action in enumerate(actions):
        mine = steps[t]
        assert np.allclose(np.stack([obs[a] for a in chosen]), mine.obs[played], atol=1e-5)
        avail = raw.get_avail_actions(state)
        assert np.array_equal(np.stack([avail[a] for a in chosen]).astype(bool), mine.avail[played])
        world = np.asarray(obs["world_state"])[:60].reshape(6, 10)
        assert np.allclose(world[:, 1:3] / 32, mine.state[played, :60].view(6, 10)[:, 1:3], atol=1e-5)
        key, step_key = jax.random.split(key)
        told = {a: np.int32(action[played, i]) for i, a in enumerate(chosen)}
        obs, state, reward, done, _ = raw.step_env(step_key, state, told)
        total += float(reward[chosen[0]])
        assert float(steps[t + 1].reward[played]) == pytest.approx(10 * float(reward[chosen[0]]), abs=1e-4)
        assert bool(done["__all__"]) == bool((steps[t + 1].terminated | steps[t + 1].truncated)[played])
        if done["__all__"]:
            break
    assert bool(done["__all__"])
    assert float(sum(s.reward[played] for s in steps)) == pytest.approx(10 * total, abs=1e-3)


def test_won_is_the_battles_outcome_and_a_win_returns_twenty(env):
    won = []
    for seed in range(6):
        steps, _ = play(env, seed, focus_fire)
        alive = np.asarray(units(env).unit_alive)
        outcome = alive[:, :3].any(1) & ~alive[:, 3:].any(1)
        assert steps[-1].outcome["won"].tolist() == outcome.astype(float).tolist()
        returns = sum(s.reward for s in steps)
        for i in range(E):
            assert (float(returns[i]) == pytest.approx(20, abs=1e-3)) if outcome[i] else float(returns[i]) < 10.001
        won += outcome.tolist()
    assert 0 < sum(won) < len(won)


def test_random_play_hardly_ever_wins(env):
    generator = torch.Generator().manual_seed(0)
    ends = [play(env, seed, lambda step: random_actions(step, generator))[0][-1] for seed in range(10)]
    assert torch.stack([end.outcome["won"] for end in ends]).mean() <= 0.05


def test_time_limit_is_a_truncation_and_a_battle_that_ends_then_is_not(env):
    import jax.numpy as jnp

    env.reset(0)
    health = np.array(units(env).unit_health)
    health[0, 3:] = 0  # won at the last step
    health[1, :3] = 0  # lost at the last step
    health[2, :] = 0  # nobody left
    change(env, unit_health=jnp.asarray(health), step=jnp.full(E, 99, units(env).step.dtype))
    step = env.step(stop(env))
    assert step.terminated.tolist() == [True, True, True, False]
    assert step.truncated.tolist() == [False, False, False, True]
    assert step.outcome["won"].tolist() == [1, 0, 0, 0]


def test_the_limit_is_the_specs(env):
    import jax.numpy as jnp

    env.reset(0)
    change(env, step=jnp.full(E, env.spec.episode_limit - 2, units(env).step.dtype))
    assert not env.step(stop(env)).truncated.any()
    assert env.step(stop(env)).truncated.all()


def test_a_dead_unit_sees_nothing_and_may_only_stop(env):
    import jax.numpy as jnp

    env.reset(5)
    health = np.array(units(env).unit_health)
    health[1, 2] = 0
    change(env, unit_health=jnp.asarray(health))
    step = env.step(stop(env))
    assert step.alive.tolist() == [[True] * 3, [True, True, False], [True] * 3, [True] * 3]
    assert not step.obs[1, 2].any()
    assert step.avail[1, 2].nonzero().flatten().tolist() == [STOP]
    assert not step.terminated.any()


def test_a_finished_environment_idles_while_the_others_play(env):
    import jax.numpy as jnp

    env.reset(6)
    health = np.array(units(env).unit_health)
    health[0, 3:] = 0
    change(env, unit_health=jnp.asarray(health))
    end = env.step(stop(env))
    assert end.terminated.tolist() == [True, False, False, False]
    for _ in range(3):
        later = env.step(torch.full((E, 3), EAST))
        for x, y in zip((end.obs, end.state, end.avail, end.alive), later[:4]):
            assert torch.equal(x[0], y[0])
            assert not torch.equal(end.obs[1], later.obs[1])
        assert later.terminated[0]
        assert not later.truncated[0]
        assert later.outcome["won"][0] == 1
        assert later.reward[0] == 0
        assert later.avail.any(-1).all()


def test_nothing_is_compiled_after_the_first_step(env):
    for seed in (1, 2**40):
        play(env, seed, focus_fire)
    assert env._reset._cache_size() == 1
    assert env._step._cache_size() == 1


def test_steps_handed_out_are_not_touched_by_later_ones(env):
    first = env.reset(9)
    kept = [x.clone() for x in first[:-1]]
    second = env.step(stop(env))
    second.obs.fill_(7)  # the caller's own memory: the engine's state is elsewhere
    second.avail.fill_(False)
    third = env.step(stop(env))
    assert all(torch.equal(x, y) for x, y in zip(kept, first))
    env.reset(9)
    env.step(stop(env))
    assert equal(third, env.step(stop(env)))


@pytest.mark.parametrize("bad", [-1, 8])
def test_a_number_that_is_no_action_is_refused(env, bad):
    env.reset(0)
    with pytest.raises(ValueError, match=r"0\.\.7"):
        env.step(torch.full((E, 3), bad))


def test_misuse_is_refused(env):
    env.reset(0)
    with pytest.raises(ValueError, match=r"\[4,3\]"):
        env.step(torch.zeros(E, 4, dtype=torch.long))
    with pytest.raises(ValueError, match="seed"):
        env.reset(-1)
    env.close()
    env.close()
    with pytest.raises(RuntimeError, match="reset"):
        env.step(stop(env))


def outside(env):
    position = np.asarray(units(env).unit_positions)
    return ((position <= 0) | (position >= 32)).any((1, 2))


def test_episodes_with_a_unit_spawned_on_the_wall_are_counted():
    env = SMAC(engine="smax").make("smacv2_5_units", 16, CPU)
    marked = 0
    for seed in range(20):
        env.reset(seed)
        marked += int(outside(env).sum())
    assert env.record() == {"episodes": 320, "episodes_spawned_in_wall": marked}
    assert 0.04 < marked / 320 < 0.15


@pytest.mark.slow
def test_a_unit_spawned_on_the_wall_dies_at_once():
    env = SMAC(engine="smax").make("smacv2_5_units", 16, CPU)
    seen = 0
    for seed in range(5):
        env.reset(seed)
        where = outside(env)
        env.step(stop(env))
        assert not np.asarray(units(env).unit_alive)[where].all(1).any()
        seen += int(where.sum())
    assert seen > 0


def test_nothing_is_printed():
    code = (
        "import sys, torch; from suites.smac import SMAC; mine = sys.stdout\n"
        "env = SMAC(engine='smax').make('3m', 4, torch.device('cpu')); env.reset(0)\n"
        "assert sys.stdout is mine"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("", "")
