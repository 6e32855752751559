"""The state of E environments as numpy arrays over one block of memory, shared between processes or not."""

from __future__ import annotations

import mmap
from typing import Any, NamedTuple

import numpy as np

from suites.adapters.single import Array, Layout, Moment


class Views(NamedTuple):
    """Arrays over the memory of all E environments."""

    obs: Array  # [E,N,O] float32
    state: Array  # [E,G] float32
    avail: Array  # [E,N,A] bool; A = 0 where actions are continuous
    alive: Array  # [E,N] bool
    reward: Array  # [E] float32
    terminated: Array  # [E] bool
    truncated: Array  # [E] bool
    outcome: Array  # [E,K] float32
    action: Array  # [E,N] int64 | [E,N,U] float32


def _fields(layout: Layout, num_envs: int) -> list[tuple[tuple[int, ...], Any]]:
    n, e = layout.n_agents, num_envs
    action = ((e, n), np.int64) if layout.n_actions else ((e, n, layout.size), np.float32)
    return [
        ((e, n, layout.obs_dim), np.float32),
        ((e, layout.state_dim), np.float32),
        ((e, n, layout.n_actions), np.bool_),
        ((e, n), np.bool_),
        ((e,), np.float32),
        ((e,), np.bool_),
        ((e,), np.bool_),
        ((e, len(layout.outcomes)), np.float32),
        action,
    ]


def _offsets(layout: Layout, num_envs: int) -> list[int]:
    """Where each field begins, on cache lines; the last entry is the size of all."""
    ends = [0]
    for shape, dtype in _fields(layout, num_envs):
        size = int(np.prod(shape)) * np.dtype(dtype).itemsize
        ends.append(ends[-1] + -(-size // 64) * 64)
    return ends


def shared_bytes(layout: Layout, num_envs: int) -> int:
    """Size of the memory."""
    return _offsets(layout, num_envs)[-1] + 64


def views(memory: mmap.mmap | bytearray, layout: Layout, num_envs: int) -> Views:
    """The memory as arrays; nothing is copied."""
    starts = _offsets(layout, num_envs)
    arrays = [
        np.frombuffer(memory, dtype, int(np.prod(shape)), start).reshape(shape)
        for (shape, dtype), start in zip(_fields(layout, num_envs), starts)
    ]
    return Views(*arrays)


def write(shared: Views, index: int, moment: Moment) -> None:
    """Put ``moment`` where environment ``index`` is seen."""
    shared.obs[index] = moment.obs
    shared.state[index] = moment.state
    if moment.avail is not None:
        shared.avail[index] = moment.avail
    shared.alive[index] = moment.alive
    shared.reward[index] = moment.reward
    shared.terminated[index] = moment.terminated
    shared.truncated[index] = moment.truncated
    shared.outcome[index] = moment.outcome
