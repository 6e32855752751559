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
        return torch.Generator(device).manual_seed(self.integer(role, index))
