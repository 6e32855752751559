"""What is left out, or done in parts, changes nothing."""

import pytest
import torch

from algorithms.mcem import MCEM
from algorithms.parts import critics
from algorithms.parts.cem import RecurrentUtility
from algorithms.parts.continuous import encode_history, maximising
from tests.support.episodes import CONTINUOUS, DISCRETE, batch_of, networks, small, spec_of


@pytest.mark.parametrize("episodes", [1, 7, 9])
def test_blocks_are_all_there_is_in_order(monkeypatch: pytest.MonkeyPatch, episodes: int) -> None:
    monkeypatch.setattr(critics, "BLOCK", 30)
    action = torch.arange(episodes * 10.0).view(episodes, 10)
    parts = critics.blocks(action, 10)
    assert [len(action[b]) for b in parts] == [3] * (episodes // 3) + [episodes % 3] * (episodes % 3 > 0)
    assert torch.equal(torch.cat([action[b] for b in parts]), action)
    assert len(critics.blocks(action, 1000)) == episodes  # one at a time at least
    assert len(critics.blocks(action.to("meta"), 10)) == 1  # whole where it is not the CPU's


@pytest.mark.parametrize("kind", ["discrete", "continuous"])
@pytest.mark.parametrize("mixer", ["monotonic", "linear"])
def test_elites_are_those_of_all_candidates_at_once(monkeypatch: pytest.MonkeyPatch, kind: str, mixer: str) -> None:
    spec, algorithm = spec_of(kind), small("mcem", kind)
    assert isinstance(algorithm, MCEM)
    object.__setattr__(algorithm, "mixer", mixer)
    net, batch = networks(algorithm, spec), batch_of(spec, [7, 4, 2], [True, False, True])
    found = []
    for block in (1, 10**9):
        monkeypatch.setattr(critics, "BLOCK", block)
        with torch.no_grad():
            found.append(algorithm.select(net, net, batch, torch.Generator().manual_seed(3)).extra)
    for name in ("elite", "gap"):
        torch.testing.assert_close(found[0][name], found[1][name], rtol=1e-5, atol=1e-6)


def test_the_maximum_of_a_utility_is_the_same_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    net, batch = RecurrentUtility(CONTINUOUS, 8), batch_of(CONTINUOUS, [5, 3], [True, False])
    found = []
    for block in (1, 10**9):
        monkeypatch.setattr(critics, "BLOCK", block)
        with torch.no_grad():
            encoded = encode_history(net, batch)
            cem = {"samples": 16, "elites": 3, "iterations": 2}
            found.append(maximising(net, encoded, torch.Generator().manual_seed(1), cem))
    torch.testing.assert_close(found[0], found[1], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("moments", [7, 8])
def test_moments_that_never_came_are_left_out_and_nothing_else_changes(moments: int) -> None:
    batch, lengths = batch_of(DISCRETE, [7, 4, 2], [True, False, True]), torch.tensor([7, 4, 2])
    critic = critics.ActionsOut(DISCRETE, 16)
    obs, state = batch.obs[:, :moments], batch.state[:, :moments]
    there = torch.arange(moments) <= lengths.unsqueeze(1)
    found, gradients = [], []
    for given in (None, lengths):
        q = critic.encode(obs, state, given)
        critic.zero_grad()
        (q[there] ** 2).sum().backward()
        found.append(q.detach())
        gradients.append([p.grad.clone() for p in critic.parameters() if p.grad is not None])
    torch.testing.assert_close(found[0][there], found[1][there])
    assert not found[1][~there].any()
    for whole, part in zip(*gradients, strict=True):
        torch.testing.assert_close(whole, part)
    assert torch.equal(critic.encode(obs, state, torch.tensor([7, 7, 7])), found[0])
