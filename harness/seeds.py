"""Every random number of a trial comes from here: one ``SeedSequence`` a trial, one branch a role.

No role reads a global generator, and none reads another's: evaluating more often changes nothing that is trained.
"""

from __future__ import annotations

import hashlib
from typing import Literal, get_args

import numpy as np
import torch

Role = Literal[
    "parameters", "exploration", "replay", "learning", "train_env", "eval_env", "final_env", "evaluation",
    "diagnostics", "corruption",
]  # fmt: skip
"""A role's place is part of its seeds: new ones go to the end."""
ROLES: tuple[str, ...] = get_args(Role)


class Seeds:
    """The branches of one trial: no two trials, roles or indices share a stream."""

    def __init__(self, identity: str, seed: int) -> None:
        """``identity`` is "suite/task/algorithm"; results' folder and experiment do not matter."""
        digest = hashlib.sha256(identity.encode()).digest()
        self._entropy = [seed, *np.frombuffer(digest, dtype="<u4").tolist()]

    def integer(self, role: Role, index: int = 0) -> int:
        """A 63-bit seed for the ``index``-th use of ``role``: any index at any time, in any order."""
        branch = np.random.SeedSequence(self._entropy, spawn_key=(ROLES.index(role), index))
        return int(branch.generate_state(1, np.uint64)[0] >> np.uint64(1))

    def generator(self, role: Role, device: torch.device | str = "cpu", index: int = 0) -> torch.Generator:
        """A torch generator on ``device``."""
        return reseed(torch.Generator(device), self.integer(role, index))


_WORDS = slice(24, 24 + 624 * 8)
"""Where a CPU generator's saved state holds the 624 words of its Mersenne twister, as 64-bit integers."""


def reseed(rng: torch.Generator, seed: int) -> torch.Generator:
    """Begin ``rng`` anew from all 63 bits of ``seed``; returns it.

    ``manual_seed`` of a CPU generator drops all but the lowest 32 bits, so two seeds in 65,000 would be likely to
    share a stream. Here numpy fills the whole state (``MT19937`` from a ``SeedSequence``).
    """
    rng.manual_seed(seed)
    if rng.device.type == "cpu":
        state = rng.get_state()
        words: np.ndarray = np.random.MT19937(np.random.SeedSequence(seed)).state["state"]["key"]
        state[_WORDS] = torch.from_numpy(words.astype(np.uint64).view(np.uint8))
        rng.set_state(state)
    return rng
