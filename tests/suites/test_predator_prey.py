import math
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from harness.errors import UserError
from harness.suite import Suite, VecEnv
from suites.predator_prey import (
    CANDIDATES,
    EPISODE_LIMIT,
    Physics,
    PredatorPrey,
    PredatorPreyEnv,
    World,
    chase,
)

CPU = torch.device("cpu")
DATA = Path(__file__).parents[1] / "data"
TASKS = ("3a", "6a", "9a")


def golden(task: str) -> dict[str, Tensor]:
    """Recorded episodes of the original, float64: [E,T(+1),...]; even ones chase with noise, odd ones are random."""
    with np.load(DATA / f"predator_prey_{task}.npz") as data:
        return {name: torch.tensor(data[name]) for name in data.files}


def xy_first(x: Tensor) -> Tensor:
    return x.movedim(-1, 0)


def small(
    pos: list[list[float]], vel: list[list[float]] | None = None, landmark: tuple[float, float] = (9, 9)
) -> World:
    """One world of two predators, one prey and one landmark."""
    places = torch.tensor([pos], dtype=torch.float64)
    speeds = torch.zeros_like(places) if vel is None else torch.tensor([vel], dtype=torch.float64)
    rock = torch.tensor([[landmark]], dtype=torch.float64)
    return small_physics().world(xy_first(places), xy_first(speeds), xy_first(rock))


def small_physics() -> Physics:
    return Physics(predators=2, prey=1, landmarks=1, device=CPU)


def still(world: World) -> tuple[Tensor, Tensor]:
    """No action, and candidates that are all the prey's own place."""
    return torch.zeros(2, 1, 2), torch.zeros(2, 1, 1, CANDIDATES)


def returns(task: str, episodes: int, scripted: bool, seed: int = 0) -> Tensor:
    suite = PredatorPrey()
    env, physics = suite.make(task, episodes, CPU), suite.physics(task, CPU)
    rng = torch.Generator().manual_seed(seed)
    env.reset(seed)
    total = torch.zeros(episodes)
    for _ in range(EPISODE_LIMIT):
        uniform = 2 * torch.rand(episodes, physics.predators, 2, generator=rng) - 1
        total += env.step(chase(physics, env.world) if scripted else uniform).reward
    return total


# --- the original, step for step --------------------------------------------------------------------------------


@pytest.mark.parametrize("task", TASKS)
def test_every_recorded_step_is_reproduced(task: str) -> None:
    data, physics = golden(task), PredatorPrey().physics(task, CPU)
    before, after = slice(None, -1), slice(1, None)
    steps = data["reward"].shape[1]

    def flat(name: str, when: slice = slice(None)) -> Tensor:
        return xy_first(data[name][:, when].flatten(0, 1))

    rocks = xy_first(data["landmark_pos"].repeat_interleave(steps, 0))
    world = physics.world(flat("agent_pos", before), flat("agent_vel", before), rocks)
    following, prey = physics.step(world, flat("predator_action"), flat("prey_candidate"))

    exactly = {"rtol": 0, "atol": 1e-9}
    torch.testing.assert_close(following.pos, flat("agent_pos", after), **exactly)
    torch.testing.assert_close(following.vel, flat("agent_vel", after), **exactly)
    torch.testing.assert_close(prey, flat("prey_action"), **exactly)
    assert physics.reward(following).equal(data["reward"].flatten().float())
    for moment, when in ((world, before), (following, after)):
        recorded = data["obs"][:, when].flatten(0, 1).float()
        torch.testing.assert_close(physics.observe(moment), recorded, rtol=0, atol=1e-6)
    assert data["reward"].sum() > 0  # the recording holds catches


@pytest.mark.parametrize("task", TASKS)
def test_whole_recorded_episodes_are_reproduced_from_their_start(task: str) -> None:
    data, physics = golden(task), PredatorPrey().physics(task, CPU)
    rocks = xy_first(data["landmark_pos"])
    world = physics.world(xy_first(data["agent_pos"][:, 0]), xy_first(data["agent_vel"][:, 0]), rocks)
    for t in range(EPISODE_LIMIT):
        action, candidates = xy_first(data["predator_action"][:, t]), xy_first(data["prey_candidate"][:, t])
        world, _ = physics.step(world, action, candidates)
        torch.testing.assert_close(world.pos, xy_first(data["agent_pos"][:, t + 1]), rtol=0, atol=1e-9)
        assert physics.reward(world).equal(data["reward"][:, t].float())
        torch.testing.assert_close(physics.observe(world), data["obs"][:, t + 1].float(), rtol=0, atol=1e-6)


@pytest.mark.parametrize("task", TASKS)
def test_starts_and_candidates_are_drawn_as_in_the_recording(task: str) -> None:
    data, physics = golden(task), PredatorPrey().physics(task, CPU)
    rng = torch.Generator().manual_seed(0)
    world = physics.initial(2000, rng)
    assert world.vel.eq(0).all()
    assert data["agent_vel"][:, 0].eq(0).all()
    # uniform in the box: variance side^2 / 12
    assert 0.99 < world.pos.abs().max() <= 1
    assert float(world.pos.var()) == pytest.approx(1 / 3, abs=0.01)
    assert data["agent_pos"][:, 0].abs().max() <= 1
    assert 0.89 < world.landmark.abs().max() <= 0.9
    assert float(world.landmark.var()) == pytest.approx(0.81 / 3, abs=0.01)
    assert data["landmark_pos"].abs().max() <= 0.9
    # uniform in the disc: the squared radius is uniform in [0,1]
    drawn = physics.sample(200, rng)
    assert drawn.shape == (2, 200, physics.prey, CANDIDATES)
    assert drawn.dtype == torch.float32
    for points in (xy_first(data["prey_candidate"]).flatten(1), drawn.flatten(1)):
        square = points.square().sum(0)
        assert square.max() <= 1 + 1e-6
        tenths = torch.histc(square, 10, 0, 1) / square.numel()
        assert tenths.sub(0.1).abs().max() < 0.01
        angle = torch.atan2(points[1], points[0])
        assert (torch.histc(angle, 8, -math.pi, math.pi) / angle.numel()).sub(0.125).abs().max() < 0.01


# --- the prey ---------------------------------------------------------------------------------------------------


def candidates_of(*points: tuple[float, float]) -> Tensor:
    """The given targets, and the last one again up to the full number."""
    filled = [*points, *[points[-1]] * (CANDIDATES - len(points))]
    return xy_first(torch.tensor([[filled]]))


def fled(world: World, *points: tuple[float, float]) -> list[float]:
    return small_physics().flee(world, candidates_of(*points)).flatten().tolist()


def test_prey_flees_the_predator_that_is_nearest_now() -> None:
    world = small([[-0.5, 0], [0.9, 0], [0, 0]])  # the one at -.5 is nearest
    assert fled(world, (0.0, 0.5), (0.5, 0.0), (-0.2, 0.0)) == [0.5, 0.0]


def test_prey_never_moves_into_a_predator_even_a_far_one() -> None:
    world = small([[-0.5, 0], [0.9, 0], [0, 0]])
    # (.9,0) is farthest from the nearest predator, but there the other one stands; .79 is within .125 of it too
    assert fled(world, (0.9, 0.0), (0.79, 0.0), (0.0, 0.25)) == [0.0, 0.25]
    assert fled(world, (0.75, 0.0), (0.0, 0.25)) == [0.75, 0.0]


def test_prey_without_a_way_out_stands_still() -> None:
    world = small([[-0.1, 0], [0.1, 0], [0, 0]])
    assert fled(world, (0.0, 0.0), (0.1, 0.05), (-0.1, -0.05)) == [0, 0]


# --- physics by hand --------------------------------------------------------------------------------------------


def test_free_flight_by_hand() -> None:
    world = small([[0, 0], [3, 3], [-3, 0]], [[0.4, 0], [0, 0], [0, 0]])
    action = torch.tensor([[[1.0, 0.0]], [[0.0, -1.0]]])  # [2,E,P]: x of both, then y
    following, _ = small_physics().step(world, action, candidates_of((-0.6, 0.8)))
    # predator 0: .75 * .4 + 3 * .1 = .6; predator 1: -.3 in y; the prey's force is its offset, not scaled
    torch.testing.assert_close(following.vel[:, 0, 0], torch.tensor([0.6, 0.0], dtype=torch.float64))
    torch.testing.assert_close(following.pos[:, 0, 0], torch.tensor([0.06, 0.0], dtype=torch.float64))
    torch.testing.assert_close(following.vel[:, 0, 1], torch.tensor([0.0, -0.3], dtype=torch.float64))
    torch.testing.assert_close(following.vel[:, 0, 2].float(), torch.tensor([-0.06, 0.08]))
    torch.testing.assert_close(following.pos[:, 0, 2].float(), torch.tensor([-3.006, 0.008]))


def test_speed_limits() -> None:
    world = small([[0, 0], [5, 5], [-5, 0]], [[3, 4], [0, 0], [0, -5]])
    following, _ = small_physics().step(world, *still(world))
    torch.testing.assert_close(following.vel[:, 0, 0], torch.tensor([0.6, 0.8], dtype=torch.float64))
    torch.testing.assert_close(following.vel[:, 0, 2], torch.tensor([0.0, -1.3], dtype=torch.float64))
    assert following.vel[:, 0, 1].abs().max() < 1e-100  # at rest: no 0/0; far contacts are e^-700


def test_contact_pushes_apart_along_the_line_of_centres() -> None:
    world = small([[0, 0], [0.1, 0], [5, 5]])  # two predators overlap by .05
    following, _ = small_physics().step(world, *still(world))
    push = 1e2 * 1e-3 * math.log1p(math.exp(50))  # 5 to nine digits
    torch.testing.assert_close(following.vel[0, 0, :2], torch.tensor([-push, push], dtype=torch.float64) * 0.1)
    assert following.vel[1, 0, :2].abs().max() < 1e-100


def test_obstacles_push_and_stay() -> None:
    world = small([[0.27, 0], [5, 5], [-5, 5]], landmark=(0, 0))  # overlaps by .075 + .2 - .27
    following, _ = small_physics().step(world, *still(world))
    assert float(following.vel[0, 0, 0]) == pytest.approx(0.1 * 1e2 * 1e-3 * math.log1p(math.exp(5)))
    assert following.landmark.equal(world.landmark)


def test_bodies_at_one_place_do_not_make_nan() -> None:
    world = small([[0, 0], [0, 0], [0, 0]], landmark=(0, 0))
    following, _ = small_physics().step(world, *still(world))
    assert following.pos.isfinite().all()


def test_reward_is_ten_for_every_overlapping_pair() -> None:
    physics = small_physics()
    assert physics.reward(small([[0.1, 0], [-0.1, 0], [0, 0]])).tolist() == [20]
    assert physics.reward(small([[0.1, 0], [-0.126, 0], [0, 0]])).tolist() == [10]
    assert physics.reward(small([[0.1, 0], [0.15, 0], [1, 1]])).tolist() == [0]  # predators among themselves


def test_observation_layout_and_view_radius() -> None:
    world = small([[0, 0], [1.5, 0], [0, 1.501]], [[0.1, 0.2], [0.3, 0.4], [0.5, 0.6]], landmark=(-1, 0))
    first, second = small_physics().observe(world)[0]
    # velocity, position, landmark, other predator, prey (beyond the radius for the first), prey's velocity
    torch.testing.assert_close(first, torch.tensor([0.1, 0.2, 0, 0, -1, 0, 1.5, 0, 0, 0, 0, 0]))
    torch.testing.assert_close(second, torch.tensor([0.3, 0.4, 1.5, 0, 0, 0, -1.5, 0, 0, 0, 0, 0]))
    near = small_physics().observe(small([[0, 0], [1, 0], [0, 1]], [[0, 0], [0, 0], [0.5, 0.6]]))[0]
    torch.testing.assert_close(near[0, -4:], torch.tensor([0, 1, 0.5, 0.6]))


# --- bounds -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("scripted", [False, True])
def test_declared_bounds_agree_with_this_environment(task: str, scripted: bool) -> None:
    total = returns(task, 400, scripted)
    declared = PredatorPrey().tasks()[task].bounds[int(scripted)]
    # the declared value is a mean of 100 episodes of the original, ours of 400
    error = float(total.std()) * math.sqrt(1 / 100 + 1 / 400)
    assert abs(float(total.mean()) - declared) < 3 * error


def test_scores_are_zero_at_random_and_one_at_the_chase() -> None:
    task = PredatorPrey().tasks()["3a"]
    assert task.score(0.1) == 0
    assert task.score(83.0) == 1


def test_chase_by_hand() -> None:
    world = small([[0, 0], [2, 0], [0.1, -0.5]])
    torch.testing.assert_close(chase(small_physics(), world), torch.tensor([[[0.4, -1.0], [-1.0, -1.0]]]))


# --- the contract of an environment -----------------------------------------------------------------------------


def play(env: PredatorPreyEnv, seed: int, steps: int) -> list[Tensor]:
    rng = torch.Generator().manual_seed(5)
    shape = (env.num_envs, env.spec.n_agents, 2)
    seen = [env.reset(seed).obs]
    for _ in range(steps):
        step = env.step(2 * torch.rand(shape, generator=rng) - 1)
        seen += [step.obs, step.reward]
    return seen


@pytest.mark.parametrize(("task", "n", "o"), [("3a", 3, 16), ("6a", 6, 30), ("9a", 9, 44)])
def test_shapes(task: str, n: int, o: int) -> None:
    suite = PredatorPrey()
    assert isinstance(suite, Suite)
    env = suite.make(task, 5, CPU)
    assert isinstance(env, VecEnv)
    assert env.spec == suite.spec(task)
    assert (env.spec.n_agents, env.spec.obs_dim, env.spec.state_dim) == (n, o, n * o)
    assert (env.spec.action.kind, env.spec.action.dim, env.spec.episode_limit) == ("continuous", 2, 25)
    for step in (env.reset(0), env.step(torch.zeros(5, n, 2))):
        assert step.obs.shape == (5, n, o)
        assert step.state.equal(step.obs.reshape(5, n * o))
        assert step.obs.dtype == step.state.dtype == step.reward.dtype == torch.float32
        assert step.avail is None
        assert step.alive.shape == (5, n)
        assert step.alive.all()
        assert step.reward.shape == step.terminated.shape == step.truncated.shape == (5,)
        assert step.terminated.dtype == step.truncated.dtype == torch.bool
        assert step.outcome == {}
    env.close()
    env.close()


def test_the_time_limit_truncates_and_never_terminates_then_idles() -> None:
    env = PredatorPrey().make("3a", 3, CPU)
    env.reset(0)
    push = torch.ones(3, 3, 2)
    for t in range(25):
        step = env.step(push)
        assert not step.terminated.any()
        assert bool(step.truncated.all()) == bool(step.truncated.any()) == (t == 24)
    after = env.step(push)
    assert after.truncated.all()
    assert not after.terminated.any()
    assert after.reward.eq(0).all()
    assert after.obs.equal(step.obs)
    again = env.reset(0)
    assert not again.truncated.any()
    assert again.reward.eq(0).all()


def test_episodes_depend_on_seed_and_actions_alone() -> None:
    suite = PredatorPrey()
    a, b = suite.make("6a", 4, CPU), suite.make("6a", 4, CPU)
    first = play(a, 2**62 + 7, 25)
    torch.manual_seed(3)
    np.random.seed(3)  # noqa: NPY002  the global generator is what is disturbed
    play(b, 1, 11)
    state = torch.get_rng_state()
    second = play(b, 2**62 + 7, 25)
    assert torch.get_rng_state().equal(state)
    assert all(x.equal(y) for x, y in zip(first, second, strict=True))
    assert not first[0].equal(play(a, 8, 0)[0])
    assert not first[0][0].equal(first[0][1])  # nor are the parallel environments copies of one


def test_actions_beyond_the_box_count_as_full_force() -> None:
    a, b = (PredatorPrey().make("3a", 2, CPU) for _ in range(2))
    a.reset(0)
    b.reset(0)
    assert a.step(torch.full((2, 3, 2), 7.0)).obs.equal(b.step(torch.ones(2, 3, 2)).obs)


def test_bad_input_is_refused() -> None:
    with pytest.raises(UserError, match="did you mean '3a'"):
        PredatorPrey().make("3", 1, CPU)
    env = PredatorPrey().make("3a", 2, CPU)
    env.reset(0)
    with pytest.raises(UserError, match=r"\(2, 3, 5\); this task takes \(2, 3, 2\)"):
        env.step(torch.zeros(2, 3, 5))
