import dataclasses

import pytest
import torch
import torch.nn.functional as F

from harness.networks import RecurrentAgent, going_on, happened, last_actions, mlp
from harness.types import Batch
from tests.support.episodes import CONTINUOUS, DISCRETE, batch_of, spec_of


def agent(kind: str, outputs: int = 3, seed: int = 0) -> RecurrentAgent:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return RecurrentAgent(spec_of(kind), outputs, 16)


@pytest.mark.parametrize("kind", ["discrete", "continuous"])
def test_the_whole_sequence_in_one_call_is_one_step_at_a_time(kind: str) -> None:
    net, batch = agent(kind), batch_of(spec_of(kind), [7, 7], [True, False])
    before = last_actions(batch)
    with torch.no_grad():
        together, end = net(batch.obs, before)
        hidden = None
        for t in range(8):
            one, hidden = net(batch.obs[:, t : t + 1], before[:, t : t + 1] if t else None, hidden)
            torch.testing.assert_close(one[:, 0], together[:, t], rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(hidden, end, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", ["discrete", "continuous"])
def test_the_look_ups_are_the_products_with_one_hot_vectors(kind: str) -> None:
    """As published: observation, last action and agent index in one vector, through linear, ReLU, GRU, linear."""
    spec, net = spec_of(kind), agent(kind)
    batch = batch_of(spec, [7, 7], [True, False])
    before = last_actions(batch)
    if kind == "discrete":
        action = F.one_hot(before.clamp(min=0), spec.action.dim).float() * (before >= 0)[..., None]
    else:
        action = before
    index = torch.eye(spec.n_agents).expand(2, 8, -1, -1)
    with torch.no_grad():
        x = F.relu(net.embed(torch.cat([batch.obs, action, index], -1)))  # [B,T,N,H]
        for b in range(2):
            for i in range(spec.n_agents):
                h = torch.zeros(1, 16)
                cell = torch.nn.GRUCell(16, 16)
                cell.load_state_dict({k.removesuffix("_l0"): v for k, v in net.gru.state_dict().items()})
                for t in range(8):
                    h = cell(x[b, t, i][None], h)
                    expected = net.head(h)[0]
                    torch.testing.assert_close(net(batch.obs, before)[0][b, t, i], expected, rtol=1e-4, atol=1e-6)


def test_the_hidden_state_is_zero_at_the_first_step_and_no_action_came_before() -> None:
    for spec in (DISCRETE, CONTINUOUS):
        net, batch = agent(spec.action.kind), batch_of(spec, [3, 2], [True, True])
        before = last_actions(batch)
        with torch.no_grad():
            first = net(batch.obs[:, :1], None, torch.zeros(1, 2 * spec.n_agents, 16))[0]
            assert torch.equal(net(batch.obs[:, :1], before[:, :1])[0], first)
            assert torch.equal(net(batch.obs[:, :1], None)[0], first)


def test_last_actions_are_one_moment_late() -> None:
    batch = batch_of(DISCRETE, [4, 4], [True, False])
    before = last_actions(batch)
    assert before.shape == (2, 5, 3)
    assert (before[:, 0] == -1).all()
    assert torch.equal(before[:, 1:], batch.action)
    smooth = batch_of(CONTINUOUS, [4, 4], [True, False])
    assert not last_actions(smooth)[:, 0].any()
    assert torch.equal(last_actions(smooth)[:, 1:], smooth.action)


@pytest.mark.parametrize("kind", ["discrete", "continuous"])
def test_an_agents_output_depends_on_its_own_past_and_present_alone(kind: str) -> None:
    net, batch = agent(kind), batch_of(spec_of(kind), [6, 6], [True, False])
    obs, before = batch.obs.clone(), last_actions(batch)
    with torch.no_grad():
        out = net(obs, before)[0]
        obs[:, 3, 1] += 1.0  # agent 1, moment 3
        changed = net(obs, before)[0]
        before = before.clone()
        before[:, 4, 2] = (before[:, 4, 2] + 1) % 4 if kind == "discrete" else before[:, 4, 2] + 1.0
        later = net(batch.obs, before)[0]
    same = torch.ones(7, 3, dtype=torch.bool)
    same[3:, 1] = False
    assert torch.equal(out[:, same], changed[:, same])
    assert (out[:, ~same] != changed[:, ~same]).any(-1).all()
    same = torch.ones(7, 3, dtype=torch.bool)
    same[4:, 2] = False
    assert torch.equal(out[:, same], later[:, same])
    assert (out[:, ~same] != later[:, ~same]).any(-1).all()


def test_episodes_of_a_batch_are_strangers_to_each_other() -> None:
    net, batch = agent("discrete"), batch_of(DISCRETE, [6, 6, 6], [True, False, True])
    before = last_actions(batch)
    with torch.no_grad():
        together = net(batch.obs, before)[0]
        alone = net(batch.obs[1:2], before[1:2])[0]
    torch.testing.assert_close(together[1:2], alone, rtol=1e-5, atol=1e-6)


def test_agents_that_see_the_same_differ_by_their_index() -> None:
    net = agent("discrete")
    with torch.no_grad():
        out = net(torch.ones(1, 1, 3, 5), None)[0][0, 0]
    assert (out[0] != out[1]).any()
    assert (out[1] != out[2]).any()


def test_mlp_has_relu_between_its_layers_and_none_after() -> None:
    kinds = [type(layer).__name__ for layer in mlp((2, 3, 4, 1))]
    assert kinds == ["Linear", "ReLU", "Linear", "ReLU", "Linear"]


def ragged(kind: str, lengths: list[int]) -> Batch:
    batch = batch_of(spec_of(kind), lengths, [True] * len(lengths))
    return dataclasses.replace(batch, lengths=torch.tensor(lengths))


@pytest.mark.parametrize("kind", ["discrete", "continuous"])
@pytest.mark.parametrize("cut", [0, 1])
def test_leaving_out_what_did_not_happen_changes_no_output_and_no_gradient(
    kind: str, cut: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``cut`` 1: the T moments at which an action is chosen; 0: the one after the last action too."""
    monkeypatch.setattr("harness.networks.WORTH_PARTS", 0)
    net, batch = agent(kind), ragged(kind, [9, 5, 5, 1])
    moments = 10 - cut
    obs, before = batch.obs[:, :moments], last_actions(batch)[:, :moments]
    happened = torch.arange(moments) <= batch.lengths[:, None]
    weight = torch.randn(4, moments, 3, 3, generator=torch.Generator().manual_seed(1)) * happened[..., None, None]
    found = []
    for lengths in (None, batch.lengths):
        out, _ = net(obs, before, lengths=lengths)
        found.append((out, torch.autograd.grad((out * weight).sum(), list(net.parameters()))))
    (full, slow), (packed, quick) = found
    torch.testing.assert_close(packed[happened], full[happened], rtol=1e-5, atol=1e-6)
    assert not packed[~happened].any()
    for a, b in zip(slow, quick, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)


def test_the_work_left_out_is_the_padding() -> None:
    """Every moment that happened is in a part, and no part holds an episode that ended before it began."""
    lengths = torch.tensor([40, 31, 30, 22, 22, 20, 9, 3])
    assert going_on(lengths, 41) == [(0, 10, 8), (10, 23, 6), (23, 31, 3), (31, 41, 2)]
    assert going_on(lengths, 40) == [(0, 10, 8), (10, 23, 6), (23, 31, 3), (31, 40, 2)]
    assert going_on(torch.tensor([7, 7, 7]), 8) == [(0, 8, 3)]
    assert going_on(torch.tensor([5]), 5) == [(0, 5, 1)]


def test_the_moments_that_happened() -> None:
    """An episode of L steps has L + 1 moments."""
    found = happened(torch.tensor([2, 0]), 3)
    assert found is not None
    assert [x.tolist() for x in found] == [[0, 0, 0, 1], [0, 1, 2, 0]]
    assert happened(torch.tensor([2, 2]), 3) is None
    assert happened(torch.tensor([2, 1]), 2) is None
