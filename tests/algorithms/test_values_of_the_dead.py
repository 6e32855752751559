"""Team rewards go on after an agent has died: what its value is bootstrapped from must have been learned."""

import pytest
import torch

from harness import registry
from harness.learner import Learner
from harness.types import Batch, Discrete, Spec
from tests.support.episodes import networks, small

GAMMA, T = 0.9, 8
SPEC = Spec(2, T + 1, 1, T, Discrete(2))


def dying() -> Batch:
    """One episode, reward 1 a step, with a true end; agent 1 dies after its second step."""
    alive = torch.ones(1, T + 1, 2, dtype=torch.bool)
    alive[:, 2:, 1] = False
    over = torch.zeros(1, T)
    over[0, -1] = 1.0
    return Batch(
        torch.eye(T + 1)[None, :, None].expand(1, -1, 2, -1).clone(), torch.ones(1, T + 1, 1),
        torch.ones(1, T + 1, 2, 2, dtype=torch.bool), alive, torch.zeros(1, T, 2, dtype=torch.int64),
        torch.full((1, T, 2), -0.6931472), torch.ones(1, T), over, torch.ones(1, T),
    ).clean()  # fmt: skip


@pytest.mark.learns
@pytest.mark.parametrize(("name", "lr"), [("ippo", 2e-2), ("iql", 1e-2)])
def test_an_agents_value_counts_what_the_team_earns_after_its_death(name: str, lr: float) -> None:
    if name not in registry.algorithms():
        pytest.skip("not registered")
    algorithm = small(name, gamma=GAMMA, hidden=16, lr=lr, anneal=False, minibatches=1, epochs=1, gae_lambda=0.8)
    learner, batch = Learner(algorithm, networks(algorithm, SPEC)), dying()
    rng = torch.Generator().manual_seed(0)
    for _ in range(400):
        learner.update(batch, 0.0, rng, rng)
        learner.count(2)
    with torch.no_grad():
        if name == "ippo":
            value = algorithm.values(learner.net, batch)[0, :2]  # type: ignore[attr-defined]
        else:
            value = algorithm.utilities(learner.net, batch, batch.action)[0, :2]  # type: ignore[attr-defined]
    for t in range(2):
        expected = (1 - GAMMA ** (T - t)) / (1 - GAMMA)
        assert value[t].tolist() == pytest.approx([expected] * 2, rel=0.06), t
