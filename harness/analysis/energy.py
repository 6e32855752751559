"""Energy of trials as they recorded it: what of it was measured, and why the rest was not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import pandas as pd

if TYPE_CHECKING:
    from harness.analysis.scores import Run

NOT = "not measured"
"""How a reason begins where a number is missing."""
WHOLE, CPU_ALONE, GPU_ALONE = "CPU packages, and GPUs where used", "CPU packages without the GPU", "GPU alone"
"""What a sum of joules consists of. Sums of different ones are never compared."""


def scope(record: Mapping[str, Any]) -> str:
    """One of the above; "" where nothing was measured."""
    found = record.get("energy_joules") or {}
    measured = {kind for kind, value in found.items() if not isinstance(value, str)}
    if measured == set(found):
        return WHOLE if found else ""
    return {frozenset({"cpu"}): CPU_ALONE, frozenset({"gpu"}): GPU_ALONE}.get(frozenset(measured), "")


def joules(timings: pd.DataFrame | None, record: Mapping[str, Any]) -> pd.DataFrame | None:
    """``timings`` with a column ``joules``, the sum of what was measured; None where nothing was."""
    kinds = {WHOLE: tuple(record.get("energy_joules") or ()), CPU_ALONE: ("cpu",), GPU_ALONE: ("gpu",)}
    columns = [f"{kind}_joules" for kind in kinds.get(scope(record), ())]
    if timings is None or not columns or any(c not in timings for c in columns):
        return None
    return timings.assign(joules=timings[columns].astype(float).sum(axis=1, skipna=False))


def told(runs: Iterable[Run]) -> str:
    """What a reader must know of the energies, in sentences; "" where all runs have all of it."""
    reasons: dict[str, int] = {}
    scopes: dict[str, int] = {}
    shared = count = 0
    for run in runs:
        count += 1
        found = run.record.get("energy_joules")
        for kind, value in (found or {}).items():
            if isinstance(value, str):
                reason = f"{kind.upper()}: {value.removeprefix(f'{NOT}: ')}"
                reasons[reason] = reasons.get(reason, 0) + 1
        if not found:
            why = "imported results tell none" if run.record.get("imported") else "made before it was recorded"
            reasons[why] = reasons.get(why, 0) + 1
        kept = scope(run.record)
        scopes[kept] = scopes.get(kept, 0) + 1
        shared += run.record.get("gpu_processes", 1) > 1
    parts = []
    if reasons:
        each = "; ".join(f"{why} ({n} of {count} trials)" for why, n in sorted(reasons.items()))
        parts.append(f"Energy was {NOT if set(scopes) == {''} else 'measured in part'}: {each}.")
    if shared:
        parts.append(f"{shared} of {count} trials shared their GPU; its energy is split evenly over its processes.")
    return " ".join(parts)
