"""Results of other systems, written into results/ as trials marked ``imported``, so that the guards see them.

What the other system did not record is missing, never made up: no settings, no parameters, no final evaluation where
it had none. Its engine is "unknown" until the user says which it was.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from harness.analysis.tensorboard import scalars
from harness.errors import UserError, unknown
from harness.store import TrialFolder

Episodes = dict[str, list[float]]
"""Metric -> a value an episode (one value where only their mean was recorded)."""
METRICS = {
    "battle_won": "won", "win_rate": "won", "won": "won", "battle_won_mean": "won", "won_episode": "won",
    "return": "return", "return_mean": "return", "mean_episode_return": "return", "episode_return": "return",
}  # fmt: skip
"""Names that other systems give to what is called won and return here."""


@dataclass
class Foreign:
    """One run of another system."""

    suite: str
    task: str
    algorithm: str
    seed: int
    evaluations: dict[int, Episodes] = field(default_factory=dict)
    """Environment steps -> episodes."""
    final: Episodes = field(default_factory=dict)
    seconds: dict[int, float] = field(default_factory=dict)


@dataclass(frozen=True)
class About:
    """What the user says of an imported file."""

    experiment: str
    suite: str = "imported"
    """Where the file does not say."""
    engine: str = "unknown"
    metric: str = ""
    """Primary metric; default: won where it is there, else return."""
    bounds: tuple[float, float] | None = None
    """Of the metric; needed for returns."""
    task: str = ""
    algorithm: str = ""
    tags: Mapping[str, str] = field(default_factory=dict)
    """Tag or column of the source -> metric here, e.g. {"eval/win_rate": "won"}."""

    def name(self, source: str) -> str | None:
        """The metric called ``source`` there; None where it is none that is known."""
        short = source.rpartition("/")[2].removeprefix("test_").removeprefix("eval_")
        return self.tags.get(source) or METRICS.get(short)


def read(path: Path, kind: str, about: About, results: Path = Path("results")) -> list[Path]:
    """Import ``path`` as ``kind`` ("marl-eval", "csv", "sacred", "tensorboard"); the folders of the new trials.

    Raises ``UserError`` where the file is not such a one, holds nothing usable, or a trial is already there.
    """
    if kind not in READERS:
        raise unknown("format", kind, READERS)
    if not path.exists():
        raise UserError(f"{path}: no such file or folder")
    runs = list(READERS[kind](path, about))
    if not any(r.evaluations or r.final for r in runs):
        raise UserError(f"{path}: no evaluation found that is called like one of {', '.join(sorted(METRICS))}; name it "
                        "with --tag SOURCE=METRIC")  # fmt: skip
    folders = [_folder(results, about, r) for r in runs]
    for folder in folders:
        if (folder.path / "trial.json").exists():
            raise UserError(f"{folder.path}: already there; import under another experiment's name")
    for folder, run in zip(folders, runs):
        _write(folder, run, about, f"{kind} ({path.name})")
    return [f.path for f in folders]


def _folder(results: Path, about: About, run: Foreign) -> TrialFolder:
    return TrialFolder(results / about.experiment / run.suite / run.task / run.algorithm / f"seed_{run.seed}")


def _write(folder: TrialFolder, run: Foreign, about: About, source: str) -> None:
    seen = {m for e in (*run.evaluations.values(), run.final) for m in e}
    metric = about.metric or ("won" if "won" in seen else "return")
    if metric not in seen:
        raise UserError(f"{run.algorithm} on {run.task}: no metric {metric!r} in {source}; there are {sorted(seen)}")
    bounds = about.bounds or ((0.0, 1.0) if metric != "return" else None)
    if bounds is None:
        raise UserError(f"{source}: returns need their bounds to be compared; say --bounds LOW,HIGH")
    columns = sorted(seen)
    header = ("env_steps", "episode", *columns)
    for step, episodes in sorted(run.evaluations.items()):
        folder.append("evaluations.csv", header, _rows(step, episodes, columns))
    last = max(run.evaluations, default=0)
    if run.final:
        folder.append("final.csv", header, _rows(last, run.final, columns))
    if run.seconds:
        rows = [(s, x) for s, x in sorted(run.seconds.items())]
        folder.append("timings.csv", ("env_steps", "seconds"), rows)
    folder.update(
        experiment=about.experiment, suite=run.suite, task=run.task, algorithm=run.algorithm, seed=run.seed,
        status="complete", engine=about.engine, imported=source, metric=metric, bounds=list(bounds), references={},
        settings={}, env_steps=last, reason=None,
    )  # fmt: skip


def _rows(step: int, episodes: Episodes, columns: Sequence[str]) -> list[tuple[Any, ...]]:
    n = max(map(len, episodes.values()))
    return [(step, k, *(_at(episodes.get(c, []), k) for c in columns)) for k in range(n)]


def _at(values: Sequence[float], k: int) -> Any:
    return float(values[k]) if k < len(values) else ""


# -- readers ---------------------------------------------------------------------------------------------------------


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_text())
    except ValueError as error:
        raise UserError(f"{path}: not JSON ({error})") from error


def _marl_eval(path: Path, about: About) -> Iterable[Foreign]:
    """JSON of marl-eval, as Mava and BenchMARL write it."""
    tree = _json(path)
    try:
        for suite, tasks in tree.items():
            for task, algorithms in tasks.items():
                for algorithm, seeds in algorithms.items():
                    for i, (name, points) in enumerate(seeds.items()):
                        yield _marl_eval_run(Foreign(suite, task, algorithm, _seed(name, i)), points, about)
    except (AttributeError, TypeError, KeyError) as error:
        raise UserError(f"{path}: not marl-eval's environment/task/algorithm/run tree ({error})") from error


def _marl_eval_run(run: Foreign, points: Mapping[str, Any], about: About) -> Foreign:
    for name, point in points.items():
        episodes = {m: list(map(float, v)) for k, v in point.items() if isinstance(v, list) and (m := about.name(k))}
        if name == "absolute_metrics":
            run.final = episodes
        elif episodes:
            step = int(point["step_count"])
            run.evaluations[step] = episodes
            if "elapsed_time" in point:
                run.seconds[step] = float(point["elapsed_time"])
    return run


def _seed(name: str, index: int) -> int:
    digits = "".join(c for c in name if c.isdigit())
    return int(digits) if digits else index


def _csv(path: Path, about: About) -> Iterable[Foreign]:
    """The tidy table of ``harness export``, or any with task, algorithm, seed, env_steps and metrics as columns."""
    try:
        table = pd.read_parquet(path) if path.suffix == ".parquet" else pd.read_csv(path)
    except (ValueError, OSError) as error:
        raise UserError(f"{path}: {error}") from error
    for needed in ("task", "algorithm", "seed", "env_steps"):
        if needed not in table:
            raise UserError(f"{path}: no column {needed!r}; there are {', '.join(map(str, table.columns))}")
    if "suite" not in table:
        table["suite"] = about.suite
    if "split" not in table:
        table["split"] = "eval"
    named = {c: about.name(str(c)) for c in table.columns}
    metrics = {c: m for c, m in named.items() if m}
    for (suite, task, algorithm, seed), part in table.groupby(["suite", "task", "algorithm", "seed"]):
        run = Foreign(str(suite), str(task), str(algorithm), int(str(seed)))
        for (split, step), rows in part.groupby(["split", "env_steps"]):
            episodes = {m: rows[c].dropna().astype(float).tolist() for c, m in metrics.items() if rows[c].notna().any()}
            if split == "final":
                run.final = episodes
            elif episodes:
                run.evaluations[int(str(step))] = episodes
        yield run


def _sacred(path: Path, about: About) -> Iterable[Foreign]:
    """Folders of Sacred's file observer, of PyMARL and EPyMARL: config.json with metrics.json or info.json."""
    configs = sorted(path.rglob("config.json"))
    if not configs:
        raise UserError(f"{path}: no config.json of Sacred below it")
    for file in configs:
        config = _json(file)
        arguments = config.get("env_args") or {}
        task = about.task or str(arguments.get("map_name") or arguments.get("key") or config.get("env") or "unknown")
        run = Foreign(about.suite, task.rpartition(":")[2], about.algorithm or str(config.get("name", "unknown")),
                      int(config.get("seed", 0)))  # fmt: skip
        for source, steps, values in _sacred_series(file.parent):
            metric = about.name(source) if source.startswith("test_") or source in about.tags else None
            if metric:
                for step, value in zip(steps, values):
                    run.evaluations.setdefault(int(step), {})[metric] = [float(value)]
        yield run


def _sacred_series(folder: Path) -> Iterable[tuple[str, list[Any], list[Any]]]:
    if (folder / "metrics.json").exists():
        for name, series in _json(folder / "metrics.json").items():
            yield name, series["steps"], series["values"]
    elif (folder / "info.json").exists():
        info = _json(folder / "info.json")
        for name, values in info.items():
            if f"{name}_T" in info:
                yield name, info[f"{name}_T"], [v["value"] if isinstance(v, dict) else v for v in values]


def _tensorboard(path: Path, about: About) -> Iterable[Foreign]:
    """Event files below ``path``, one folder a run: .../task/algorithm/seed_k, or named by the user."""
    files = sorted(p for p in path.rglob("*tfevents*") if p.is_file())
    if not files:
        raise UserError(f"{path}: no event file of TensorBoard below it")
    runs: dict[Path, Foreign] = {}
    for file in files:
        parts = file.parent.relative_to(path).parts
        seed = _seed(parts[-1], len(runs)) if parts else 0
        algorithm = about.algorithm or (parts[-2] if len(parts) > 1 else "unknown")
        task = about.task or (parts[-3] if len(parts) > 2 else "unknown")
        run = runs.setdefault(file.parent, Foreign(about.suite, task, algorithm, seed))
        for tag, step, value in scalars(file):
            metric = about.name(tag)
            if metric and (tag in about.tags or "test" in tag or "eval" in tag):
                run.evaluations.setdefault(step, {})[metric] = [value]
    return runs.values()


READERS: Mapping[str, Callable[[Path, About], Iterable[Foreign]]] = {
    "marl-eval": _marl_eval,
    "csv": _csv,
    "sacred": _sacred,
    "tensorboard": _tensorboard,
}
