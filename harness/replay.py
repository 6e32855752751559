"""A ring of whole episodes."""

from __future__ import annotations

import dataclasses
import mmap
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import torch
from torch import Tensor

from harness.types import Batch, Spec


def room(device: torch.device) -> int:
    """Bytes that a replay on ``device`` could at most take: the GPU's memory; or the machine's, or less where this
    process's control group says so."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[1])
    total: int = psutil.virtual_memory().total
    try:
        limit = int(Path("/sys/fs/cgroup/memory.max").read_text())
    except (OSError, ValueError):
        return total
    return min(total, limit)


def bytes_needed(spec: Spec, capacity: int) -> int:
    """Most bytes that a replay of ``capacity`` episodes can take (all of them at the episode limit)."""
    return sum(int(np.prod(shape)) * np.dtype(kind).itemsize for shape, kind in _layout(spec, capacity).values())


def _layout(spec: Spec, capacity: int) -> dict[str, tuple[tuple[int, ...], str]]:
    """Shape and smallest faithful type of each field; observations are stored once, T+1 moments of them."""
    c, t, n = capacity, spec.episode_limit, spec.n_agents
    layout = {
        "obs": ((c, t + 1, n, spec.obs_dim), "float32"),
        "state": ((c, t + 1, spec.state_dim), "float32"),
        "alive": ((c, t + 1, n), "bool"),
        "log_prob": ((c, t, n), "float32"),
        "reward": ((c, t), "float32"),
        "terminated": ((c, t), "bool"),
        "mask": ((c, t), "bool"),
    }
    if spec.action.kind == "discrete":
        layout["avail"] = ((c, t + 1, n, spec.action.dim), "bool")
        layout["action"] = ((c, t, n), "uint8" if spec.action.dim <= 256 else "int32")
    else:
        layout["action"] = ((c, t, n, spec.action.dim), "float32")
    return layout


def _untouched(shape: tuple[int, ...], kind: str) -> Tensor:
    """Zeros on the CPU of which only the pages that are written take memory.

    Not ``np.zeros``: NumPy asks the kernel for huge pages, and each short episode would then fill its whole slot.
    """
    size = int(np.prod(shape)) * np.dtype(kind).itemsize
    pages = mmap.mmap(-1, max(size, 1), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_NOHUGEPAGE"):  # Linux
        pages.madvise(mmap.MADV_NOHUGEPAGE)
    return torch.from_numpy(np.frombuffer(pages, kind).reshape(shape))


class Replay:
    """The last ``capacity`` episodes, sampled uniformly without replacement.

    On the CPU the pages of steps that never happened are never touched, so short episodes cost what they hold.
    """

    def __init__(self, spec: Spec, capacity: int, device: torch.device) -> None:
        self.capacity, self.device, self.limit = capacity, device, spec.episode_limit
        self.added = 0
        """Episodes ever added; slot of the k-th is k modulo capacity."""
        self.length = torch.zeros(capacity, dtype=torch.int64)
        self.store: dict[str, Tensor] = {
            name: _untouched(shape, kind) if device.type == "cpu"
            else torch.zeros(shape, dtype=getattr(torch, kind), device=device)
            for name, (shape, kind) in _layout(spec, capacity).items()
        }  # fmt: skip

    def __len__(self) -> int:
        return min(self.added, self.capacity)

    def add(self, batch: Batch) -> None:
        """Store the batch's episodes, oldest out first; of more than ``capacity`` the last."""
        if (spare := len(batch.mask) - self.capacity) > 0:
            batch = batch.map(lambda x: x[spare:])
            self.added += spare
        lengths = batch.mask.sum(1).to(torch.int64).cpu()
        count = len(lengths)
        slots = torch.arange(self.added, self.added + count) % self.capacity
        used = int(torch.maximum(lengths.max(), self.length[slots].max()))  # old tails are overwritten too
        for name, to in self.store.items():
            new = getattr(batch, name)
            steps = min(used + (to.shape[1] > self.limit), to.shape[1])
            if new.shape[1] < steps:
                new = torch.cat([new, new.new_zeros((count, steps - new.shape[1], *new.shape[2:]))], 1)
            to[slots.to(self.device), :steps] = new[:, :steps].to(to.dtype)
        self.length[slots] = lengths
        self.added += count

    def sample(self, count: int, rng: torch.Generator) -> Batch:
        """``count`` episodes, the longest first, cut to its length. ``rng`` is a CPU generator."""
        index = torch.randperm(len(self), generator=rng)[:count]
        lengths, order = self.length[index].sort(descending=True, stable=True)
        return dataclasses.replace(self.take(index[order]), lengths=lengths)

    def take(self, index: Tensor) -> Batch:
        """Episodes at the given slots, cut to the longest among them."""
        longest = int(self.length[index].max())
        where = index.to(self.device)
        fields: dict[str, Any] = {}
        for name, values in self.store.items():
            steps = longest + (values.shape[1] > self.limit)
            fields[name] = values[:, :steps][where]
        for name in ("terminated", "mask"):
            fields[name] = fields[name].float()
        if "avail" in fields:  # padding is legal, whatever lay in the slot before
            beyond = torch.arange(longest + 1, device=self.device) > self.length[index, None].to(self.device)
            fields["avail"] |= beyond[..., None, None]
        if fields["action"].dtype != torch.float32:
            fields["action"] = fields["action"].to(torch.int64)
        return Batch(**({"avail": None} | fields))

    # -- checkpoint -----------------------------------------------------------------------------------------------

    def since(self, added: int) -> dict[str, Tensor]:
        """Episodes added after the first ``added``, that are still held, as stored, cut to the longest among them."""
        start = max(added, self.added - self.capacity)
        index = torch.arange(start, self.added) % self.capacity
        longest = int(self.length[index].max()) if len(index) else 0
        state = {
            name: values[:, : longest + (values.shape[1] > self.limit)][index.to(self.device)].cpu()
            for name, values in self.store.items()
        }
        return {"length": self.length[index], "start": torch.tensor(start), **state}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Put back what ``since`` gave; parts go back in the order in which they were taken."""
        lengths = state["length"]
        start = int(state["start"])
        slots = torch.arange(start, start + len(lengths)) % self.capacity
        for name, to in self.store.items():
            values = state[name].to(self.device)
            to[slots.to(self.device)] = 0
            to[slots.to(self.device), : values.shape[1]] = values
        self.length[slots] = lengths
        self.added = start + len(lengths)


def longest_first(batch: Batch) -> Batch:
    """The same episodes in order of length, so that networks can leave out what did not happen."""
    lengths, order = batch.mask.sum(1).to(torch.int64).cpu().sort(descending=True, stable=True)
    return dataclasses.replace(batch.map(itemgetter(order.to(batch.mask.device))), lengths=lengths)


def split(batch: Batch, parts: int, rng: torch.Generator) -> list[Batch]:
    """The episodes in ``parts`` random parts of near-equal size, each cut to its longest; ``rng`` on the CPU.

    Fewer episodes than parts make a part each. Parts keep the order of the episodes.
    """
    parts = min(parts, len(batch.mask))
    if parts == 1:
        return [batch]
    found = []
    for index in torch.randperm(len(batch.mask), generator=rng).tensor_split(parts):
        index = index.sort().values
        part = shorten(batch.map(itemgetter(index.to(batch.mask.device))))
        found.append(part if batch.lengths is None else dataclasses.replace(part, lengths=batch.lengths[index]))
    return found


def shorten(batch: Batch) -> Batch:
    """The same episodes without the padding that all of them share."""
    spare = batch.mask.shape[1] - int(batch.mask.sum(1).max())
    return batch.map(lambda x: x[:, : x.shape[1] - spare] if x.dim() > 1 else x) if spare else batch
