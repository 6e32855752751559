import pytest
import torch

from suites.adapters import jax as adapter
from suites.smac import SMAC, smax
from suites.smac.maps import EPISODE_LIMIT, MAPS

CPU = torch.device("cpu")

SIZES = {  # obs, state, actions
    "3m": (75, 72, 8),
    "8m": (205, 192, 13),
    "25m": (647, 600, 30),
    "2s3z": (127, 120, 10),
    "3s5z": (205, 192, 13),
    "3s5z_vs_3s6z": (218, 204, 14),
    "5m_vs_6m": (140, 132, 11),
    "10m_vs_11m": (270, 252, 16),
    "27m_vs_30m": (738, 684, 35),
    "3s_vs_5z": (101, 96, 10),
    "6h_vs_8z": (179, 168, 13),
    "smacv2_5_units": (127, 120, 10),
    "smacv2_10_units": (257, 240, 15),
    "smacv2_20_units": (517, 480, 25),
}


@pytest.fixture(scope="module")
def scenarios():
    adapter.setup(CPU)
    smax.load()
    return adapter.import_submodule("jaxmarl.environments.smax.smax_env").MAP_NAME_TO_SCENARIO


def test_the_table_is_the_engines(scenarios):
    assert set(MAPS) == set(scenarios)
    for name, theirs in scenarios.items():
        mine = MAPS[name]
        assert (mine.allies, mine.enemies) == (theirs.num_allies, theirs.num_enemies)
        assert mine.smacv2 == theirs.smacv2_position_generation == theirs.smacv2_unit_type_generation


@pytest.mark.parametrize("name", list(MAPS))
def test_sizes_of_every_task(name):
    spec = SMAC(engine="smax").make(name, 2, CPU).spec
    assert SMAC(engine="smax").spec(name) == spec  # what the plan estimates memory from
    assert (spec.obs_dim, spec.state_dim, spec.action.dim) == SIZES[name]
    assert (spec.n_agents, spec.episode_limit, spec.outcomes) == (MAPS[name].allies, EPISODE_LIMIT, ("won",))
