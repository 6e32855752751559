"""Complete, atomic state of a running trial.

``checkpoint.pt`` holds networks, targets, optimisers, every generator, counters, running means and the size of every
table. The replay's episodes lie beside it in ``replay/<last>.pt``: each checkpoint adds only those played since the one
before, and whole parts go when the ring has overwritten them. A part is named after the number of episodes played when
it was written, which no earlier part can bear: nothing that the previous checkpoint needs is ever written over.
Which parts the previous one names is said in ``checkpoint.pt`` alone and remembered by the process that wrote or read
it: saving reads nothing.
Everything is read with ``weights_only``: no code runs.
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import torch

from harness.replay import Replay
from harness.store import write_atomic

VERSION = 1
NAME = "checkpoint.pt"


def _write(path: Path, state: Any) -> None:
    data = io.BytesIO()
    torch.save(state, data)
    write_atomic(path, data.getvalue())


def _read(path: Path, device: torch.device | str = "cpu") -> Any:
    try:
        return torch.load(path, map_location=device, weights_only=True)
    except FileNotFoundError:
        raise
    except Exception as error:  # torch raises many kinds for a damaged file
        what = str(error).splitlines()[0] if str(error) else ""
        raise ValueError(f"{path}: damaged checkpoint ({type(error).__name__}: {what})") from error


Parts = list[list[int]]
"""[first, end) episodes of the replay parts that a checkpoint names, in order."""


def save(folder: Path, state: dict[str, Any], replay: Replay | None, parts: Parts) -> Parts:
    """Write everything; a kill at any moment leaves the previous checkpoint whole.

    ``parts`` are those that the previous checkpoint of ``folder`` names: what its ``save`` returned, or ``"parts"`` of
    the state that ``load`` gave; none where there is no checkpoint. Returns those that this one names.
    """
    room = folder / "replay"
    if replay is not None:
        parts = [part for part in parts if part[1] > replay.added - replay.capacity]
        start = max([end for _, end in parts], default=0)
        if replay.added > start:
            _write(_part(folder, replay.added), replay.since(start))
            parts.append([start, replay.added])
    _write(folder / NAME, {"version": VERSION, "parts": parts, **state})
    kept = {_part(folder, end) for _, end in parts}
    for path in room.iterdir() if room.exists() else ():  # parts that nothing names, and what a kill left half-written
        if path not in kept:
            path.unlink()
    return parts


def _part(folder: Path, end: int) -> Path:
    return folder / "replay" / f"{end}.pt"


def load(folder: Path, replay: Replay | None, device: torch.device) -> dict[str, Any] | None:
    """The last checkpoint's state, with ``replay`` refilled; None where there is none. ValueError when damaged.

    ``state["parts"]`` is what the next ``save`` wants to know.
    """
    try:
        state: dict[str, Any] = _read(folder / NAME, device)
    except FileNotFoundError:
        return None
    if state.get("version") != VERSION:
        raise ValueError(f"{folder / NAME}: version {state.get('version')}, this harness reads {VERSION}")
    if replay is not None:
        for _, end in state["parts"]:
            path = _part(folder, end)
            try:
                replay.restore(_read(path))
            except FileNotFoundError as error:
                raise ValueError(f"{path}: missing, the checkpoint needs it") from error
            if replay.added != end:
                raise ValueError(f"{path}: ends at episode {replay.added}, not {end}")
    return state


def save_networks(path: Path, networks: dict[str, Any], **about: Any) -> None:
    """Networks alone, e.g. those of the best evaluation, with a few facts beside them."""
    _write(path, {"version": VERSION, "networks": networks, **about})


def load_networks(path: Path, device: torch.device | str = "cpu") -> dict[str, Any]:
    """What ``save_networks`` wrote: {"networks": state dict, facts...}. ValueError when damaged."""
    found: dict[str, Any] = _read(path, device)
    return found
