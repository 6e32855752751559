import dataclasses

import pytest
import torch
from torch import Tensor

from harness.errors import UserError
from harness.suite import Suite, VecEnv
from suites.matrix import Matrix
from suites.matrix.env import MatrixEnv

CPU = torch.device("cpu")
ALL = tuple(Matrix().tasks())
DISCRETE = tuple(name for name in ALL if name != "continuous")


def made(task: str, num_envs: int = 4, **settings: object) -> MatrixEnv:
    return Matrix(**settings).make(task, num_envs, CPU)  # type: ignore[arg-type]


def any_action(env: MatrixEnv, seed: int = 0) -> Tensor:
    rng = torch.Generator().manual_seed(seed)
    shape = (env.num_envs, env.spec.n_agents)
    if env.spec.action.kind == "continuous":
        return torch.rand((*shape, 1), generator=rng) * 2 - 1
    return torch.randint(env.spec.action.dim, shape, generator=rng)


def optima(task: str) -> dict[int, list[tuple[float, ...]]]:
    found: dict[int, list[tuple[float, ...]]] = {}
    for e in Matrix().equilibria(task):
        if e.optimal:
            found.setdefault(e.state, []).append(e.action)
    return found


def shadowed(task: str) -> list[tuple[float, ...]]:
    return [e.action for e in Matrix().equilibria(task) if not e.optimal]


def test_it_is_a_suite_with_the_three_budgets_and_the_five_methods() -> None:
    suite = Matrix()
    assert isinstance(suite, Suite)
    assert set(suite.budgets) == {"smoke", "quick", "paper"}
    assert suite.algorithms == ("mcem", "vdn", "qmix", "facmac", "ippo")
    assert set(suite.default_tasks) < set(suite.tasks())
    assert {f"coordination_{n}" for n in range(2, 11)} < set(suite.tasks())
    with pytest.raises(dataclasses.FrozenInstanceError):
        suite.tolerance = 0.1  # type: ignore[misc]


# --- payoffs, as published --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("task", "rows"),
    [
        ("climbing", [[11, -30, 0], [-30, 7, 0], [0, 6, 5]]),
        ("penalty_0", [[0, 0, 10], [0, 2, 0], [10, 0, 0]]),
        ("penalty_25", [[-25, 0, 10], [0, 2, 0], [10, 0, -25]]),
        ("penalty_50", [[-50, 0, 10], [0, 2, 0], [10, 0, -50]]),
        ("penalty_75", [[-75, 0, 10], [0, 2, 0], [10, 0, -75]]),
        ("penalty_100", [[-100, 0, 10], [0, 2, 0], [10, 0, -100]]),
        ("qtran", [[8, -12, -12], [-12, 0, 0], [-12, 0, 0]]),
        ("additive", [[2, 3, 4], [4, 5, 6], [6, 7, 8]]),
        ("monotone", [[1, 2, 3], [2, 4, 6], [3, 6, 9]]),
    ],
)
def test_payoffs_are_the_published_tables(task: str, rows: list[list[int]]) -> None:
    payoff = Matrix().payoff(task)
    assert payoff.dtype == torch.float32
    assert payoff.tolist() == [rows]
    assert Matrix().transition(task).eq(-1).all()
    # what an environment pays is the same table, rows being agent 0's actions
    env = made(task, 9)
    env.reset(0)
    step = env.step(torch.cartesian_prod(torch.arange(3), torch.arange(3)))
    assert step.reward.tolist() == [r for row in rows for r in row]


def test_climbing_for_three_agents() -> None:
    payoff = Matrix().payoff("climbing_3")
    assert payoff.shape == (1, 3, 3, 3)
    p = payoff[0]
    assert [p[0, 0, 0], p[1, 1, 1], p[2, 2, 2]] == [11, 7, 5]
    assert [p[0, 1, 0], p[1, 1, 0], p[0, 1, 2], p[2, 0, 1]] == [-30] * 4
    assert [p[0, 2, 2], p[0, 0, 2], p[2, 0, 2], p[1, 2, 1], p[1, 1, 2]] == [0] * 5
    assert [p[2, 1, 2], p[2, 2, 1], p[2, 1, 1]] == [5.5, 5.5, 6]


def test_two_step_game() -> None:
    suite = Matrix()
    assert suite.payoff("two_step").tolist() == [[[0, 0], [0, 0]], [[7, 7], [7, 7]], [[0, 1], [1, 8]]]
    assert suite.transition("two_step").tolist() == [[[1, 1], [2, 2]], [[-1, -1], [-1, -1]], [[-1, -1], [-1, -1]]]
    assert suite.joint_values("two_step").tolist() == [[[7, 7], [8, 8]], [[7, 7], [7, 7]], [[0, 1], [1, 8]]]


def continuous_reward(x: float, y: float) -> float:
    state, action = torch.zeros(1, dtype=torch.int64), torch.tensor([[[x], [y]]])
    return float(Matrix().reward("continuous", state, action))


@pytest.mark.parametrize(
    ("x", "y", "value"),
    [
        (0.0, 0.0, 0.0),
        (1.0, 1.0, 2.8),
        (0.5, 0.5, -0.05 + 1 + 1),
        (0.5, 0.505, -0.1 * (0.25 + 0.255025) + 0.1 + 1.005),  # beside the spike: the floor of .1
        (0.5, 0.50001, -0.1 * (0.25 + 0.25001) + 0.5 + 1.00001),  # half the spike at 1e-5
        (0.5, 0.52, -0.1 * (0.25 + 0.2704)),  # off the ridge
        (-0.5, -0.5, -0.05),  # no bonus below zero
        (-1.0, 1.0, -0.2),
        (3.0, 1.0, 2.8),  # clipped to the box
    ],
)
def test_continuous_reward(x: float, y: float, value: float) -> None:
    # 1e-5 is a few float32 steps at .5, so the spike's flank is only that sharp
    assert continuous_reward(x, y) == pytest.approx(value, abs=3e-3 if y == 0.50001 else 1e-5)


def test_continuous_random_bound_is_the_integral() -> None:
    u = (torch.arange(4000, dtype=torch.float64) + 0.5) / 4000
    rng = torch.Generator().manual_seed(0)
    actions = torch.rand(400_000, 2, 1, dtype=torch.float64, generator=rng) * 2 - 1
    sampled = Matrix().reward("continuous", torch.zeros(len(actions), dtype=torch.int64), actions).double()
    low = Matrix().tasks()["continuous"].bounds[0]
    assert low == pytest.approx(float(sampled.mean()), abs=4 * float(sampled.std()) / len(actions) ** 0.5)
    # exactly: -.2 E[x^2] + 1/4 (strip (1 + .1) + what the spike adds above .1), E[x + y] = 1 on the strip
    spike = 2 * 1e-5 * (torch.log(torch.tensor(10.0, dtype=torch.float64)) - 0.9)
    exact = -0.2 * float((2 * u - 1).square().mean()) + (0.0199 * 1.1 + float(spike)) / 4
    assert low == pytest.approx(exact, abs=1e-5)


# --- coordination -----------------------------------------------------------------------------------------------


def test_coordination_pays_a_full_match_and_fines_partial_ones() -> None:
    suite = Matrix(coordination_penalty=0.25, coordination_states=3, coordination_actions=4)
    secret = {e.state: e.action for e in suite.equilibria("coordination_3") if e.optimal}
    assert sorted(secret) == [0, 1, 2]
    state = torch.arange(3)
    right = torch.tensor([secret[s] for s in range(3)])
    for agents_wrong, value in [((), 1.0), ((0,), -0.5), ((1, 2), -0.25), ((0, 1, 2), 0.0)]:
        action = right.clone()
        for agent in agents_wrong:
            action[:, agent] = (action[:, agent] + 1) % 4
        assert suite.reward("coordination_3", state, action).tolist() == [value] * 3


@pytest.mark.parametrize("n", range(2, 11))
def test_coordination_truth_for_every_n(n: int) -> None:
    task = f"coordination_{n}"
    suite = Matrix()
    payoff = suite.payoff(task)
    assert payoff.shape == (2, *[3] * n)
    assert suite.optimum(task) == 1
    assert (payoff == 1).flatten(1).sum(1).tolist() == [1, 1]
    assert float(payoff.min()) == pytest.approx(-0.1 * (n - 1))
    assert suite.tasks()[task].bounds[0] == pytest.approx(float(payoff.double().mean()), abs=1e-6)
    found = suite.equilibria(task)
    assert [e.value for e in found if e.optimal] == [1, 1]
    # the shadowed ones: nobody is right, so each of N agents has A - 1 wrong actions
    wrong = [e for e in found if not e.optimal]
    assert len(wrong) == 2 * 2**n
    assert {e.value for e in wrong} == {0}


def test_coordination_states_have_different_secrets_that_never_change() -> None:
    assert optima("coordination_2") == {0: [(2, 0)], 1: [(0, 2)]}
    assert optima("coordination_5") == {0: [(2, 0, 1, 2, 1)], 1: [(2, 2, 2, 0, 2)]}
    for n in range(2, 11):
        found = optima(f"coordination_{n}")
        assert found[0] != found[1]


def test_coordination_draws_its_states_from_the_seed() -> None:
    env = made("coordination_4", 400)
    first = env.reset(3).state.clone()
    assert first.sum(0).min() > 150  # both states about equally often: 200 +- 5 standard deviations of 10
    assert first.equal(env.reset(3).state)
    assert not first.equal(env.reset(4).state)
    assert first[:, None].expand(-1, 4, -1).equal(env.reset(3).obs)


# --- ground truth -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("task", "best", "at", "shadows"),
    [
        ("climbing", 11, {0: [(0, 0)]}, [(1, 1)]),
        ("climbing_3", 11, {0: [(0, 0, 0)]}, [(1, 1, 1)]),
        ("penalty_0", 10, {0: [(0, 2), (2, 0)]}, [(1, 1)]),
        ("penalty_100", 10, {0: [(0, 2), (2, 0)]}, [(1, 1)]),
        ("qtran", 8, {0: [(0, 0)]}, [(1, 1), (1, 2), (2, 1), (2, 2)]),
        ("additive", 8, {0: [(2, 2)]}, []),
        ("monotone", 9, {0: [(2, 2)]}, []),
        ("two_step", 8, {0: [(1, 0), (1, 1)], 1: [(0, 0), (0, 1), (1, 0), (1, 1)], 2: [(1, 1)]}, []),
        ("continuous", 2.8, {0: [(1.0, 1.0)]}, [(0.0, 0.0)]),
    ],
)
def test_optimum_and_equilibria(
    task: str, best: float, at: dict[int, list[tuple[float, ...]]], shadows: list[tuple[float, ...]]
) -> None:
    assert Matrix().optimum(task) == best
    assert optima(task) == at
    assert shadowed(task) == shadows


def test_continuous_equilibria_stand_against_every_deviation() -> None:
    grid = torch.linspace(-1, 1, 20_001)
    for c in (0.0, 0.3, 1.0):
        stay = continuous_reward(c, c)
        action = torch.stack([grid, torch.full_like(grid, c)], 1)[..., None]
        away = Matrix().reward("continuous", torch.zeros(len(grid), dtype=torch.int64), action)
        assert float(away.max()) <= stay + 1e-6


@pytest.mark.parametrize("task", DISCRETE)
def test_bounds_are_random_play_and_the_optimum(task: str) -> None:
    suite = Matrix()
    low, high = suite.tasks()[task].bounds
    assert low < high
    assert suite.tasks()[task].score(suite.optimum(task)) == pytest.approx(1)
    if suite.spec(task).episode_limit == 1:
        assert low == pytest.approx(float(suite.payoff(task).double().mean()), abs=1e-6)
        assert high == pytest.approx(float(suite.payoff(task).max()))


def test_two_step_random_bound_is_the_tree_s_mean() -> None:
    assert Matrix().tasks()["two_step"].bounds == (0.5 * 7 + 0.5 * 2.5, 8)


def test_every_state_shows_each_state_once() -> None:
    step = Matrix().every_state("two_step")
    assert step.state.equal(torch.eye(3))
    assert step.obs.shape == (3, 2, 3)
    assert step.avail is not None
    assert step.avail.shape == (3, 2, 2)


# --- the contract of an environment -----------------------------------------------------------------------------


@pytest.mark.parametrize("task", ALL)
def test_shapes_and_kinds(task: str) -> None:
    suite = Matrix()
    env = suite.make(task, 5, CPU)
    assert isinstance(env, VecEnv)
    assert env.spec == suite.spec(task)
    assert env.spec.action.kind == suite.tasks()[task].action
    n, states = env.spec.n_agents, env.spec.state_dim
    for step in (env.reset(1), env.step(any_action(env))):
        assert step.obs.shape == (5, n, env.spec.obs_dim)
        assert step.state.shape == (5, states)
        assert step.obs.dtype == step.state.dtype == step.reward.dtype == torch.float32
        assert step.alive.shape == (5, n)
        assert step.alive.all()
        assert step.reward.shape == step.terminated.shape == step.truncated.shape == (5,)
        assert step.terminated.dtype == step.truncated.dtype == torch.bool
        assert set(step.outcome) == {"optimal"}
        assert step.outcome["optimal"].dtype == torch.float32
        if env.spec.action.kind == "discrete":
            assert step.avail is not None
            assert step.avail.shape == (5, n, env.spec.action.dim)
            assert step.avail.all()
        else:
            assert step.avail is None
    env.close()
    env.close()


@pytest.mark.parametrize("task", [t for t in ALL if t != "two_step"])
def test_one_step_games_end_truly_after_one_step_and_then_idle(task: str) -> None:
    env = made(task)
    start = env.reset(0)
    assert not start.terminated.any()
    assert start.reward.eq(0).all()
    end = env.step(any_action(env))
    assert end.terminated.all()
    assert not end.truncated.any()
    after = env.step(any_action(env, 1))
    assert after.terminated.all()
    assert after.reward.eq(0).all()
    assert after.obs.equal(end.obs)
    assert after.outcome["optimal"].equal(end.outcome["optimal"])
    again = env.reset(0)
    assert not again.terminated.any()
    assert again.obs.equal(start.obs)
    assert again.outcome["optimal"].eq(0).all()


def test_two_step_episode_by_hand() -> None:
    env = made("two_step", 4)
    assert env.reset(0).state.argmax(1).tolist() == [0, 0, 0, 0]
    middle = env.step(torch.tensor([[0, 1], [1, 0], [1, 1], [0, 0]]))
    assert middle.state.argmax(1).tolist() == [1, 2, 2, 1]
    assert middle.obs.argmax(2).tolist() == [[1, 1], [2, 2], [2, 2], [1, 1]]
    assert middle.reward.eq(0).all()
    assert not middle.terminated.any()
    end = env.step(torch.tensor([[1, 1], [1, 1], [1, 0], [0, 1]]))
    assert end.reward.tolist() == [7, 8, 1, 7]
    assert end.terminated.all()
    assert end.state.equal(middle.state)
    assert end.outcome["optimal"].tolist() == [0, 1, 0, 0]


def test_optimal_marks_the_optimum_alone() -> None:
    env = made("climbing", 3)
    env.reset(0)
    assert env.step(torch.tensor([[0, 0], [1, 1], [0, 1]])).outcome["optimal"].tolist() == [1, 0, 0]
    env = made("penalty_50", 4)
    env.reset(0)
    assert env.step(torch.tensor([[0, 2], [2, 0], [1, 1], [0, 0]])).outcome["optimal"].tolist() == [1, 1, 0, 0]


def test_optimal_in_the_continuous_game_is_within_the_tolerance() -> None:
    action = torch.tensor([[1.0, 1.0], [0.95, 0.95], [0.9, 0.9], [0.999, 1.0], [0.0, 0.0]])[..., None]
    env = made("continuous", 5)  # 95% of 2.8 is 2.66
    env.reset(0)
    step = env.step(action)
    assert step.reward.tolist() == pytest.approx([2.8, 2.7195, 2.638, 1.8992, 0], abs=1e-4)
    assert step.outcome["optimal"].tolist() == [1, 1, 0, 0, 0]
    loose = made("continuous", 5, tolerance=0.5)
    loose.reset(0)
    assert loose.step(action).outcome["optimal"].tolist() == [1, 1, 1, 1, 0]


@pytest.mark.parametrize("task", ["coordination_3", "two_step", "continuous"])
def test_episodes_depend_on_seed_and_actions_alone(task: str) -> None:
    a, b = made(task, 16), made(task, 16)
    torch.manual_seed(1)
    b.reset(99)
    b.step(any_action(b, 5))
    x = a.reset(2**62 + 1)
    torch.rand(1000)
    y = b.reset(2**62 + 1)
    before = torch.get_rng_state()
    for _ in range(a.spec.episode_limit):
        assert x.state.equal(y.state)
        assert x.reward.equal(y.reward)
        x, y = a.step(any_action(a, 7)), b.step(any_action(b, 7))
    assert x.reward.equal(y.reward)
    assert torch.get_rng_state().equal(before)  # nor is a global generator used


# --- bad input --------------------------------------------------------------------------------------------------


def test_unknown_tasks_name_the_nearest() -> None:
    with pytest.raises(UserError, match="did you mean 'climbing'"):
        Matrix().make("climbin", 1, CPU)
    with pytest.raises(UserError, match="unknown task of suite matrix 'coordination_11'"):
        Matrix().spec("coordination_11")


def test_tables_that_do_not_exist_are_refused() -> None:
    with pytest.raises(UserError, match="continuous has no table"):
        Matrix().payoff("continuous")
    with pytest.raises(UserError, match="20000000000 entries"):
        Matrix(coordination_actions=10).payoff("coordination_10")


@pytest.mark.parametrize(
    "settings",
    [{"coordination_actions": 1}, {"coordination_states": 0}, {"coordination_penalty": -0.1}, {"tolerance": 1.0}],
)
def test_settings_that_make_no_game_are_refused(settings: dict[str, float]) -> None:
    with pytest.raises(UserError, match=next(iter(settings))):
        Matrix(**settings)  # type: ignore[arg-type]


def test_wrong_actions_are_refused() -> None:
    env = made("climbing", 2)
    env.reset(0)
    with pytest.raises(UserError, match=r"shape \(2, 3\)"):
        env.step(torch.zeros(2, 3, dtype=torch.int64))
    with pytest.raises(UserError, match="int64"):
        env.step(torch.zeros(2, 2))
    env = made("continuous", 2)
    env.reset(0)
    with pytest.raises(UserError, match="float32"):
        env.step(torch.zeros(2, 2, 1, dtype=torch.int64))
