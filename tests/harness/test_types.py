import dataclasses
import math

import pytest
import torch

from harness.types import Trial
from tests.support.episodes import CONTINUOUS, DISCRETE, batch_of, spec_of, spoiled


@pytest.mark.parametrize("kind", ["discrete", "continuous"])
@pytest.mark.parametrize("garbage", [math.nan, 1e6, math.inf])
def test_clean_leaves_nothing_of_what_did_not_happen(kind: str, garbage: float) -> None:
    batch = batch_of(spec_of(kind), [4, 7, 1], [True, False, True])
    cleaned = spoiled(batch, garbage).clean()
    for name, x in batch.tensors().items():
        y = cleaned.tensors()[name]
        assert (x is None and y is None) or torch.equal(x, y), name  # type: ignore[arg-type]


def test_clean_changes_nothing_that_happened() -> None:
    batch = batch_of(DISCRETE, [4, 7, 1], [True, False, True], seed=2)
    assert batch.obs[batch.alive].abs().min() > 0
    raw = spoiled(batch, 7.0)
    cleaned, step = raw.clean(), batch.mask > 0
    assert torch.equal(cleaned.obs[batch.alive], raw.obs[batch.alive])
    assert torch.equal(cleaned.state[batch.valid], raw.state[batch.valid])
    for name in ("action", "log_prob", "reward", "terminated"):
        assert torch.equal(getattr(cleaned, name)[step], getattr(raw, name)[step]), name


def test_padding_is_legal_and_zero_and_nobody_lives_in_it() -> None:
    batch = spoiled(batch_of(DISCRETE, [2, 5], [True, True]), math.nan).clean()
    assert batch.avail is not None
    beyond = ~batch.valid
    assert beyond.sum() == 3
    assert batch.avail[beyond].all()
    assert not batch.alive[beyond].any()
    assert not batch.obs[beyond].any()
    assert not batch.state[beyond].any()


def test_valid_holds_the_moment_after_the_last_action() -> None:
    batch = batch_of(CONTINUOUS, [2, 3], [True, False])
    assert batch.valid.tolist() == [[True, True, True, False], [True, True, True, True]]


def test_map_reaches_every_tensor_and_what_was_prepared() -> None:
    batch = dataclasses.replace(batch_of(CONTINUOUS, [2, 3], [True, False]), extra={"x": torch.arange(2.0)})
    second = batch.map(lambda x: x[1:])
    assert second.avail is None
    assert second.extra["x"].tolist() == [1.0]
    assert all(len(x) == 1 for x in second.tensors().values() if x is not None)


def test_a_trial_is_known_by_its_folder() -> None:
    assert Trial("e", "s", "t", "qmix@pymarl2", 3, {}).key == "e/s/t/qmix@pymarl2/seed_3"
