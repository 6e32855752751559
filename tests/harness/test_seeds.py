import random
from collections import Counter

import numpy as np
import torch

from harness.seeds import ROLES, Seeds, reseed

IDENTITY = "smac/3m/qmix"


def test_no_two_trials_roles_or_indices_share_a_seed() -> None:
    """Found elsewhere: workers that share a seed; seed 0's environment 1 equal to seed 1's environment 0."""
    found = Counter(
        Seeds(identity, seed).integer(role, index)  # type: ignore[arg-type]
        for identity in (IDENTITY, "smac/3m/vdn", "smac/2s3z/qmix", "matrix/3m/qmix")
        for seed in (0, 1, 2, 3, 10, 2**32, 2**32 + 1)
        for role in ROLES
        for index in [*range(60), 1_000, 1_001, 2_000, 10**6, 2**31, 2**32]
    )
    assert max(found.values()) == 1
    assert len(found) == 4 * 7 * len(ROLES) * 66


def test_seeds_are_63_bits_wide_and_use_all_of_them() -> None:
    values = [Seeds(IDENTITY, k).integer("train_env", 5) for k in range(500)]
    assert all(0 <= v < 2**63 for v in values)
    for bit in range(63):
        share = sum(v >> bit & 1 for v in values) / len(values)
        assert 0.38 < share < 0.62, bit


def test_any_index_at_any_time_in_any_order() -> None:
    a, b = Seeds(IDENTITY, 3), Seeds(IDENTITY, 3)
    forwards = [a.integer("eval_env", k) for k in range(20)]
    for role in ROLES:  # others' use between changes nothing
        b.generator(role)  # type: ignore[arg-type]
    assert [b.integer("eval_env", k) for k in reversed(range(20))] == forwards[::-1]


def test_seeds_are_the_same_for_ever() -> None:
    """A change here would make every committed result impossible to repeat."""
    words = np.frombuffer(__import__("hashlib").sha256(IDENTITY.encode()).digest(), dtype="<u4").tolist()
    sequence = np.random.SeedSequence([7, *words], spawn_key=(ROLES.index("train_env"), 12))
    assert Seeds(IDENTITY, 7).integer("train_env", 12) == int(sequence.generate_state(1, np.uint64)[0]) >> 1
    assert ROLES[:7] == ("parameters", "exploration", "replay", "learning", "train_env", "eval_env", "final_env")


def test_global_generators_are_neither_read_nor_moved() -> None:
    first = Seeds(IDENTITY, 0).generator("exploration")
    torch.manual_seed(99)
    np.random.seed(99)  # noqa: NPY002
    random.seed(99)
    states = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tobytes()  # type: ignore[index]  # noqa: NPY002
    second = Seeds(IDENTITY, 0).generator("exploration")
    assert torch.equal(torch.rand(5, generator=first), torch.rand(5, generator=second))
    assert torch.equal(states[0], torch.get_rng_state())
    assert states[1] == random.getstate()
    assert states[2] == np.random.get_state()[1].tobytes()  # type: ignore[index]  # noqa: NPY002


def test_roles_draw_different_numbers() -> None:
    draws = {role: tuple(torch.rand(4, generator=Seeds(IDENTITY, 0).generator(role)).tolist()) for role in ROLES}  # type: ignore[arg-type]
    assert len(set(draws.values())) == len(ROLES)


def test_a_generator_begins_from_every_bit_of_its_seed() -> None:
    """Torch's own ``manual_seed`` drops the upper half on the CPU: these 63 seeds would share one stream."""
    seeds = [5, *(5 + 2**k for k in range(32, 63))]
    draws = {tuple(torch.rand(4, generator=reseed(torch.Generator(), s)).tolist()) for s in seeds}
    assert len(draws) == len(seeds)


def test_reseeding_forgets_what_was_drawn_before() -> None:
    used = torch.Generator()
    torch.randn(7, generator=used)  # an odd number leaves half a pair of normals behind
    torch.randn(1, generator=used, dtype=torch.float64)
    fresh = reseed(torch.Generator(), 11)
    assert torch.equal(reseed(used, 11).get_state(), fresh.get_state())
    assert torch.equal(torch.randn(9, generator=used), torch.randn(9, generator=fresh))


def test_reseeded_words_are_numpys_twister() -> None:
    """The same integers as numpy's generator gives from the same seed sequence: nothing of the state was missed."""
    rng = reseed(torch.Generator(), 2**62 + 3)
    theirs = np.random.MT19937(np.random.SeedSequence(2**62 + 3)).random_raw(6)[1:].astype(np.int64)  # it ends a block
    ours = torch.randint(0, 2**20, (5,), generator=rng)
    assert ours.tolist() == (theirs % 2**20).tolist()
