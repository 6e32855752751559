import dataclasses
import sys
from pathlib import Path

import pytest
import torch

from harness.replay import Replay, bytes_needed, longest_first, shorten, split
from harness.types import Batch, Discrete, Spec
from tests.support.episodes import CONTINUOUS, CPU, DISCRETE, batch_of, padded

KINDS = pytest.mark.parametrize("spec", [DISCRETE, CONTINUOUS], ids=["discrete", "continuous"])


def equal(a: Batch, b: Batch) -> None:
    for name, x in a.tensors().items():
        y = b.tensors()[name]
        if x is None:
            assert y is None
            continue
        assert y is not None
        assert x.dtype == y.dtype, name
        assert torch.equal(x, y), name


def episode(spec: Spec, length: int, seed: int, ends: bool = True) -> Batch:
    return batch_of(spec, [length], [ends], seed)


def joined(parts: list[Batch]) -> Batch:
    longest = max(p.mask.shape[1] for p in parts)
    parts = [padded(p, longest - p.mask.shape[1]) for p in parts]
    fields = {k: torch.cat([p.tensors()[k] for p in parts]) for k, v in parts[0].tensors().items() if v is not None}  # type: ignore[misc]
    return Batch(**({"avail": None} | fields))  # type: ignore[arg-type]


# -- what goes in comes out -----------------------------------------------------------------------------------------


@KINDS
def test_what_goes_in_comes_out_with_the_types_that_losses_read(spec: Spec) -> None:
    replay, batch = Replay(spec, 10, CPU), batch_of(spec, [3, 7, 1, 5], [True, False, True, True])
    replay.add(batch)
    assert len(replay) == 4
    equal(replay.take(torch.arange(4)), batch)


@KINDS
def test_a_sample_is_cut_to_its_longest(spec: Spec) -> None:
    replay = Replay(spec, 10, CPU)
    replay.add(batch_of(spec, [3, 7, 1, 5], [True, False, True, True]))
    assert replay.take(torch.tensor([0, 2])).mask.shape == (2, 3)
    assert replay.take(torch.tensor([2])).obs.shape[1] == 2
    sample = replay.sample(4, torch.Generator().manual_seed(0))
    assert sorted(sample.mask.sum(1).tolist()) == [1, 3, 5, 7]  # without replacement


@KINDS
def test_episodes_stored_at_different_times_are_padded_alike(spec: Spec) -> None:
    """Padding is legal, whichever episode was the longest when each of them was stored."""
    first, second = batch_of(spec, [2, 1], [True, False]), batch_of(spec, [7, 4], [False, True], seed=1)
    replay = Replay(spec, 10, CPU)
    replay.add(first)
    replay.add(second)
    equal(replay.take(torch.arange(4)), joined([first, second]))


@KINDS
def test_the_ring_keeps_the_last_and_nothing_of_longer_ones_before(spec: Spec) -> None:
    replay, kept = Replay(spec, 3, CPU), []
    for k, length in enumerate([7, 7, 7, 2, 1, 7, 3, 2]):
        one = episode(spec, length, k, ends=k % 2 == 0)
        kept.append(one)
        replay.add(one)
    assert (len(replay), replay.added) == (3, 8)
    slots = torch.tensor([k % 3 for k in (5, 6, 7)])
    equal(replay.take(slots), joined(kept[5:]))
    equal(replay.take(slots[1:]), joined(kept[6:]))


@KINDS
def test_a_round_that_wraps_round_the_end(spec: Spec) -> None:
    replay, first, second = (
        Replay(spec, 5, CPU),
        batch_of(spec, [7] * 4, [True] * 4),
        batch_of(spec, [2, 3, 1], [True] * 3, 1),
    )
    replay.add(first)
    replay.add(second)
    equal(replay.take(torch.tensor([4, 0, 1])), second)
    equal(replay.take(torch.tensor([2, 3])), first.map(lambda x: x[2:]))


@KINDS
def test_a_round_larger_than_the_ring_leaves_its_last_episodes(spec: Spec) -> None:
    replay, batch = Replay(spec, 3, CPU), batch_of(spec, [4, 5, 6, 7, 1, 2, 3, 4], [True] * 8)
    replay.add(batch)
    assert (len(replay), replay.added) == (3, 8)
    equal(replay.take(torch.tensor([5 % 3, 6 % 3, 7 % 3])), shorten(batch.map(lambda x: x[5:])))


def test_many_actions_keep_their_numbers() -> None:
    for n in (256, 257, 40_000):
        spec = dataclasses.replace(DISCRETE, action=Discrete(n))
        batch = batch_of(spec, [2], [True])
        batch.action[0, 0] = n - 1
        assert batch.avail is not None
        batch.avail[0, 0, :, n - 1] = True
        replay = Replay(spec, 2, CPU)
        replay.add(batch)
        equal(replay.take(torch.tensor([0])), batch)


def test_sampling_is_uniform_and_reads_its_own_generator_alone() -> None:
    replay = Replay(DISCRETE, 8, CPU)
    replay.add(batch_of(DISCRETE, [*list(range(1, 8)), 7], [True] * 8))
    rng, before = torch.Generator().manual_seed(0), torch.get_rng_state()
    lengths = torch.cat([replay.sample(2, rng).mask.sum(1) for _ in range(2_000)])
    share = lengths.long().bincount(minlength=8) / 4_000
    assert share[1:7].tolist() == pytest.approx([1 / 8] * 6, abs=0.02)
    assert float(share[7]) == pytest.approx(2 / 8, abs=0.03)
    assert torch.equal(before, torch.get_rng_state())


# -- memory ---------------------------------------------------------------------------------------------------------


@KINDS
def test_the_memory_announced_is_the_memory_held(spec: Spec) -> None:
    held = sum(x.numel() * x.element_size() for x in Replay(spec, 50, CPU).store.values())
    assert bytes_needed(spec, 50) == held
    assert bytes_needed(spec, 100) == 2 * held


def test_the_memory_of_a_known_shape() -> None:
    # an episode: 8 moments x (3 agents x 5 obs x 4 bytes + 4 state x 4 + 3 alive + 3 x 4 avail), and
    # 7 steps x (3 actions of 1 byte + 3 log probs x 4 + reward 4 + terminated 1 + mask 1)
    assert bytes_needed(DISCRETE, 1) == 8 * (60 + 16 + 3 + 12) + 7 * (3 + 12 + 4 + 1 + 1)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_short_episodes_take_the_memory_they_hold_and_not_their_slots() -> None:
    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

    spec = dataclasses.replace(DISCRETE, obs_dim=50, episode_limit=100)
    replay, batch = Replay(spec, 1000, CPU), batch_of(spec, [5] * 50, [True] * 50)
    before = resident()
    for _ in range(20):
        replay.add(batch)
    assert resident() - before < bytes_needed(spec, 1000) / 3


# -- checkpoints ----------------------------------------------------------------------------------------------------


@KINDS
@pytest.mark.parametrize("stops", [[4], [2, 5], [1, 2, 3, 9], [9], [3, 11, 12]])
def test_parts_taken_one_after_the_other_put_everything_back(spec: Spec, stops: list[int]) -> None:
    replay, again, at, added = Replay(spec, 6, CPU), Replay(spec, 6, CPU), 0, 0
    lengths = [7, 2, 1, 7, 3, 2, 1, 1, 6, 2, 7, 1]
    again.add(batch_of(spec, [7] * 5, [True] * 5, seed=99))  # rubbish that must not show through
    for stop in stops:
        for k in range(at, stop):
            replay.add(episode(spec, lengths[k], k, ends=k % 3 == 0))
        again.restore(replay.since(added))
        at, added = stop, replay.added
    assert (len(again), again.added) == (len(replay), replay.added)
    slots = torch.arange(len(replay))
    assert torch.equal(again.length[slots], replay.length[slots])
    equal(again.take(slots), replay.take(slots))
    rngs = torch.Generator().manual_seed(1), torch.Generator().manual_seed(1)
    for _ in range(5):
        equal(again.sample(3, rngs[0]), replay.sample(3, rngs[1]))
    for one in (replay, again):  # and go on alike
        one.add(episode(spec, 4, 77))
    equal(again.take(slots), replay.take(slots))


# -- minibatches ----------------------------------------------------------------------------------------------------


def numbered(count: int) -> Batch:
    batch = batch_of(DISCRETE, [1 + k % 7 for k in range(count)], [True] * count)
    return dataclasses.replace(batch, extra={"number": torch.arange(count), "more": batch.reward})


@pytest.mark.parametrize(("count", "parts"), [(8, 4), (10, 4), (7, 1), (5, 5), (3, 4), (1, 2)])
def test_minibatches_cover_each_episode_once(count: int, parts: int) -> None:
    batch = numbered(count)
    found = split(batch, parts, torch.Generator().manual_seed(0))
    assert len(found) == min(parts, count)
    sizes = [len(part.mask) for part in found]
    assert max(sizes) - min(sizes) <= 1
    numbers = torch.cat([part.extra["number"] for part in found])
    assert sorted(numbers.tolist()) == list(range(count))
    for part in found:
        where = part.extra["number"]
        steps = part.mask.shape[1]
        if parts > 1:
            assert steps == int(part.mask.sum(1).max())
        assert torch.equal(part.mask, batch.mask[where, :steps])
        assert torch.equal(part.obs, batch.obs[where, : steps + 1])


def test_each_epoch_is_shuffled_anew() -> None:
    rng = torch.Generator().manual_seed(0)
    orders = [tuple(torch.cat([p.extra["number"] for p in split(numbered(12), 3, rng)]).tolist()) for _ in range(3)]
    assert len(set(orders)) == 3


def test_shortening_takes_off_common_padding_alone() -> None:
    batch = numbered(3)
    batch = dataclasses.replace(batch, extra={"number": torch.arange(3), "per_step": batch.reward})
    short = shorten(padded(batch, 4))
    equal(short, batch)
    assert short.extra["number"].tolist() == [0, 1, 2]
    assert torch.equal(short.extra["per_step"], batch.extra["per_step"])


def test_a_sample_lies_longest_first_and_knows_its_lengths() -> None:
    replay = Replay(DISCRETE, 16, torch.device("cpu"))
    replay.add(batch_of(DISCRETE, [3, 7, 1, 7, 5], [True] * 5))
    batch = replay.sample(5, torch.Generator().manual_seed(0))
    assert batch.lengths is not None
    assert batch.lengths.tolist() == [7, 7, 5, 3, 1] == batch.mask.sum(1).tolist()
    assert batch.clean().lengths is batch.lengths
    assert batch.map(lambda x: x.flip(0)).lengths is None  # no longer their order


def test_episodes_sorted_and_split_keep_their_lengths() -> None:
    batch = longest_first(batch_of(DISCRETE, [3, 7, 1, 7, 5], [True] * 5))
    assert batch.lengths is not None
    assert batch.lengths.tolist() == [7, 7, 5, 3, 1] == batch.mask.sum(1).tolist()
    for part in split(batch, 2, torch.Generator().manual_seed(0)):
        assert part.lengths is not None
        assert part.lengths.tolist() == part.mask.sum(1).tolist() == sorted(part.lengths.tolist(), reverse=True)
        assert part.mask.shape[1] == part.lengths[0]
