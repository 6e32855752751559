"""suite x task x method x seed -> trials still to do, with what is known of their memory and time."""

from __future__ import annotations

import json
import os
import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from harness import lock, replay, variant
from harness.config import Experiment
from harness.errors import UserError
from harness.store import TrialFolder, folders
from harness.types import Trial

NEUTRAL = {("budget", "seeds"), ("budget", "checkpoint_every"), ("suite", "engine")}
"""Settings that trials of one experiment may differ in: they change no number, or (an engine asked for, where "auto"
may stand) another setting says the same exactly."""

EXTRAS = {"corrupt": "none", "cdm": False}
"""Settings that a trial has only where they were asked for, with what they are elsewhere."""

MEMORY_SHARE = 0.8
"""Of the machine's memory that the replays may take when the user names no limit."""


@dataclass(frozen=True)
class Item:
    """One trial of the plan."""

    trial: Trial
    status: str
    """"new" | "complete" | "failed" | "interrupted" | "running" (in another process) | "damaged"."""
    replay_bytes: int | None
    """Of a full replay; None where the suite tells no sizes without being started."""
    seconds: float | None
    """Wall time of a whole trial like it, where one is complete in these results."""

    @property
    def done(self) -> bool:
        """Nothing is left to do for it."""
        return self.status == "complete"


@dataclass(frozen=True)
class Plan:
    """What an experiment takes."""

    experiment: Experiment
    items: tuple[Item, ...]
    slots: tuple[str, ...]
    """One device a trial that may run at once: ("cpu", "cpu") or ("cuda:0", "cuda:1")."""

    @property
    def todo(self) -> tuple[Item, ...]:
        """Trials not complete."""
        return tuple(i for i in self.items if not i.done)

    @property
    def memory(self) -> int | None:
        """Replay bytes of the largest trials that run at once; None where unknown."""
        sizes = [i.replay_bytes for i in self.todo]
        if any(s is None for s in sizes):
            return None
        return sum(sorted((s for s in sizes if s is not None), reverse=True)[: len(self.slots)])

    @property
    def seconds(self) -> float | None:
        """Wall time of what is to do, all slots busy; None where a trial's time is not known yet."""
        times = [i.seconds for i in self.todo]
        known = [t for t in times if t is not None]
        if len(known) < len(times) or not known:
            return None
        return max(sum(known) / len(self.slots), max(known))


def make(experiment: Experiment) -> Plan:
    """The plan of ``experiment``. Raises ``UserError`` where results of other settings stand in its place, or where the
    replays would not fit into memory."""
    options = experiment.options
    slots = devices(options.device, options.workers, options.trials_per_gpu)
    trials = experiment.trials(slots[0].partition(":")[0])
    root = Path(options.results)
    records = dict(_records(root))
    _same_settings(trials, {p: r for p, r in records.items() if r is not None}, root / experiment.name)
    items = tuple(
        Item(t, status(TrialFolder.of(t)), _replay_bytes(experiment, t), _seconds(t, records.values())) for t in trials
    )
    plan = Plan(experiment, items, slots[: max(1, len([i for i in items if not i.done]))])
    _fits(plan, memory_limit(options.max_memory))
    return plan


# -- devices and memory -------------------------------------------------------------------------------------------


def devices(device: str, workers: int | None, trials_per_gpu: int) -> tuple[str, ...]:
    """A device for each trial that runs at once. ``UserError`` when a GPU is asked for and there is none."""
    gpus = 0
    if device != "cpu":
        import torch

        gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if device == "cuda" and not gpus:
            raise UserError("device=cuda: torch finds no GPU here; device=auto takes the CPU then")
    if gpus:
        count = workers or gpus * trials_per_gpu
        return tuple(f"cuda:{k % gpus}" for k in range(count))
    return ("cpu",) * (workers or len(os.sched_getaffinity(0)))


def memory_limit(text: str) -> int:
    """Bytes of ``8GB``, ``500MB``; the machine's share without a text. Raises ``UserError``."""
    if not text:
        return int(MEMORY_SHARE * replay.room(torch.device("cpu")))
    match = re.fullmatch(r"([0-9.]+)\s*([KMGT]?)i?B?", text, re.IGNORECASE)
    try:
        return int(float(match[1]) * 1024 ** " KMGT".index(match[2].upper() or " ")) if match else int(text)
    except ValueError:
        raise UserError(f"max_memory={text}: expected a size such as 8GB, got {text!r}") from None


def _replay_bytes(experiment: Experiment, trial: Trial) -> int | None:
    """Episodes held times their size, where the suite tells a task's sizes without starting it."""
    tell = getattr(experiment.suite, "spec", None)
    if tell is None:
        return None
    fields = trial.settings["algorithm"]
    if "buffer_episodes" not in fields:
        return 0  # on policy: one round of episodes
    spec = tell(trial.task)
    return None if spec is None else replay.bytes_needed(spec, int(fields["buffer_episodes"]))


def _fits(plan: Plan, limit: int) -> None:
    if plan.memory is None or plan.memory <= limit:
        return
    worst = max(plan.todo, key=lambda i: i.replay_bytes or 0)
    alone, name = worst.replay_bytes or 1, variant.base(worst.trial.algorithm)
    fit = limit // alone
    fewer = _fewer(worst, limit)
    advice = f"try workers={fit}, or " if fit else f"try {name}.buffer_episodes={fewer}, or " if fewer else ""
    raise UserError(
        f"the replays of {len(plan.slots)} trials at once take {size(plan.memory)}, the limit is {size(limit)} "
        f"({name} on {worst.trial.task}: {size(alone)} each); {advice}raise max_memory="
    )


def _fewer(item: Item, limit: int) -> int:
    """Episodes that fit; 0 where that is less than one batch."""
    fields = item.trial.settings["algorithm"]
    fit = int(fields.get("buffer_episodes", 1)) * limit // max(1, item.replay_bytes or 1)
    return fit if fit >= int(fields.get("batch_episodes", 1)) else 0


def size(count: float) -> str:
    """Bytes in words: "1.3 GB"."""
    for unit in ("B", "KB", "MB", "GB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" or count >= 100 else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TB"


# -- what is there already ----------------------------------------------------------------------------------------


def _records(root: Path) -> Iterable[tuple[Path, dict[str, Any] | None]]:
    for folder in folders(root) if root.exists() else ():
        try:
            yield folder.path, folder.record()
        except ValueError:
            yield folder.path, None


def status(folder: TrialFolder, locked: bool = False) -> str:
    """Of a trial as the disk tells it: a record that says "running" is believed only while its lock is held.

    ``locked`` when the lock is the caller's own.
    """
    try:
        record = folder.record()
    except ValueError:
        return "damaged"
    if not locked and lock.held(folder.path):
        return "running"
    if record is None or "status" not in record:
        return "new"
    if record["status"] == "complete" and folder.changed(record.get("bytes") or {}):
        return "damaged"
    return "interrupted" if record["status"] in ("running", "pending") else str(record["status"])


def _seconds(trial: Trial, records: Iterable[Mapping[str, Any] | None]) -> float | None:
    """Median wall time of complete trials of the same task and method, scaled to this budget."""
    same = ("suite", "task", "algorithm")
    rates = [
        r["wall_s"] / r["settings"]["budget"]["env_steps"]
        for r in records
        if r and r.get("status") == "complete" and r.get("wall_s") and all(r.get(k) == getattr(trial, k) for k in same)
    ]
    return statistics.median(rates) * float(trial.settings["budget"]["env_steps"]) if rates else None


def _same_settings(trials: Sequence[Trial], records: Mapping[Path, Mapping[str, Any]], place: Path) -> None:
    """Trials of one experiment differ in nothing but what their path says: same method and task, same settings; same
    suite, same suite settings and engine."""
    here = [r for p, r in records.items() if place in p.parents and "settings" in r]
    for trial in trials[: len({(t.task, t.algorithm) for t in trials})]:
        for record in (r for r in here if r.get("suite") == trial.suite):
            same = record.get("task") == trial.task and record.get("algorithm") == trial.algorithm
            parts = ("engine", "suite", "corrupt", *(("budget", "algorithm", "cdm") if same else ()))
            for part in parts:
                old, new = (s.get(part, EXTRAS.get(part)) for s in (record["settings"], trial.settings))
                _compare(part, _word(old), _word(new), record, trial)


def _word(value: Any) -> Any:
    """A switch as the user writes it."""
    return ("off", "on")[value] if isinstance(value, bool) else value


def _compare(part: str, old: Any, new: Any, record: Mapping[str, Any], trial: Trial) -> None:
    old_flat, new_flat = _flat(part, old, trial), _flat(part, new, trial)
    for key in sorted(old_flat.keys() | new_flat.keys()):
        before, now = old_flat.get(key, "not there"), new_flat.get(key, "not there")
        if json.dumps(before) != json.dumps(now):
            raise UserError(
                f"{trial.experiment} already holds {record['algorithm']} on {record['task']} with {key}={before}, "
                f"now it is {now}; choose another name= for this experiment, or repeat the old setting"
            )


def _flat(part: str, values: Any, trial: Trial) -> dict[str, Any]:
    if not isinstance(values, Mapping):
        return {part: values}
    prefix = f"{trial.algorithm}." if part == "algorithm" else ""
    return {prefix + k: v for k, v in values.items() if (part, k) not in NEUTRAL}
