from __future__ import annotations

import json
import struct
from pathlib import Path

import pandas as pd
import pytest

from harness.analysis.imports import About, read
from harness.analysis.scores import from_results
from harness.analysis.tensorboard import scalars
from harness.errors import UserError
from harness.store import load


def test_sacred_as_epymarl_writes_it(tmp_path: Path) -> None:
    for k in (1, 2):
        folder = tmp_path / "sacred" / str(k)
        folder.mkdir(parents=True)
        config = {"name": "qmix", "seed": k, "env": "sc2", "env_args": {"map_name": "3m"}}
        (folder / "config.json").write_text(json.dumps(config))
        series = {"steps": [0, 10_012], "values": [0.1, 0.5 + k / 10], "timestamps": ["", ""]}
        (folder / "metrics.json").write_text(
            json.dumps(
                {
                    "test_battle_won_mean": series,
                    "test_return_mean": {**series, "values": [3.0, 9.0]},
                    "battle_won_mean": {**series, "values": [1.0, 1.0]},
                }
            )
        )
    made = read(tmp_path / "sacred", "sacred", About("e", suite="smac"), tmp_path / "results")
    assert len(made) == 2
    scores = from_results([load(tmp_path / "results")])
    (task,) = scores.tasks
    assert (task.key, task.metric) == ("smac/3m", "won")
    runs = scores.cell("qmix", task)
    assert runs[1].values.tolist() == [0.1, 0.7]  # of testing, not of training
    assert runs[1].final is None


def test_sacred_as_pymarl_writes_it(tmp_path: Path) -> None:
    (tmp_path / "1").mkdir()
    (tmp_path / "1/config.json").write_text(json.dumps({"name": "vdn", "seed": 4, "env_args": {"map_name": "8m"}}))
    info = {"test_return_mean": [{"dtype": "float64", "value": 7.5}, 8.0], "test_return_mean_T": [0, 50]}
    (tmp_path / "1/info.json").write_text(json.dumps(info))
    with pytest.raises(UserError, match="bounds"):
        read(tmp_path, "sacred", About("e"), tmp_path / "r")
    read(tmp_path, "sacred", About("e2", bounds=(0, 20)), tmp_path / "r")
    scores = from_results([load(tmp_path / "r/e2")])
    assert scores.cell("vdn", scores.tasks[0])[0].values.tolist() == [7.5, 8.0]


def field(number: int, payload: bytes) -> bytes:
    return bytes([number << 3 | 2, len(payload)]) + payload


def event(step: int, *values: bytes) -> bytes:
    body = b"\x09" + struct.pack("<d", 1.0) + b"\x10" + bytes([step]) + field(5, b"".join(field(1, v) for v in values))
    return struct.pack("<QI", len(body), 0) + body + b"\0\0\0\0"


def simple(tag: str, value: float) -> bytes:
    return field(1, tag.encode()) + b"\x15" + struct.pack("<f", value)


def tensor(tag: str, value: float) -> bytes:
    return field(1, tag.encode()) + field(8, b"\x08\x01" + field(4, struct.pack("<f", value)))


def test_event_files(tmp_path: Path) -> None:
    file = tmp_path / "events.out.tfevents.1"
    data = event(3, simple("eval/win_rate", 0.25), simple("loss", 9.0)) + event(7, tensor("eval/win_rate", 0.5))
    file.write_bytes(data + event(9, simple("cut", 1.0))[:-9])
    assert list(scalars(file)) == [("eval/win_rate", 3, 0.25), ("loss", 3, 9.0), ("eval/win_rate", 7, 0.5)]
    file.write_bytes(struct.pack("<QI", 3, 0) + b"\xff\xff\xff" + b"\0" * 4)
    with pytest.raises(UserError, match="damaged"):
        list(scalars(file))


def test_tensorboard_folders_name_the_runs(tmp_path: Path) -> None:
    for seed in (0, 5):
        folder = tmp_path / "tb" / "3m" / "mappo" / f"seed_{seed}"
        folder.mkdir(parents=True)
        (folder / "events.out.tfevents.1").write_bytes(
            event(3, simple("eval/wr", 0.25)) + event(9, simple("eval/wr", 1))
        )
    with pytest.raises(UserError, match="--tag"):
        read(tmp_path / "tb", "tensorboard", About("t"), tmp_path / "r")
    read(tmp_path / "tb", "tensorboard", About("t", tags={"eval/wr": "won"}), tmp_path / "r")
    scores = from_results([load(tmp_path / "r")])
    assert [r.seed for r in scores.cell("mappo", scores.tasks[0])] == [0, 5]
    assert scores.cell("mappo", scores.tasks[0])[0].values.tolist() == [0.25, 1.0]


def test_a_plain_csv(tmp_path: Path) -> None:
    rows = [("3m", "qmix", s, step, 0.1 * s + step / 100) for s in (0, 1) for step in (0, 10)]
    file = tmp_path / "x.csv"
    pd.DataFrame(rows, columns=["task", "algorithm", "seed", "env_steps", "win_rate"]).to_csv(file, index=False)
    read(file, "csv", About("c", suite="smac"), tmp_path / "r")
    scores = from_results([load(tmp_path / "r")])
    assert scores.tasks[0].metric == "won"
    assert scores.cell("qmix", scores.tasks[0])[1].values.tolist() == pytest.approx([0.1, 0.2])


def test_bad_input_is_told_in_one_line(tmp_path: Path) -> None:
    about = About("x")
    with pytest.raises(UserError, match="no such file"):
        read(tmp_path / "none.json", "marl-eval", about, tmp_path)
    file = tmp_path / "x.json"
    file.write_text("{")
    with pytest.raises(UserError, match="not JSON"):
        read(file, "marl-eval", about, tmp_path)
    file.write_text('{"env": {"task": 3}}')
    with pytest.raises(UserError, match="not marl-eval"):
        read(file, "marl-eval", about, tmp_path)
    with pytest.raises(UserError, match=r"unknown format.*'sacred'"):
        read(file, "sacret", about, tmp_path)
    (tmp_path / "y.csv").write_text("a,b\n1,2\n")
    with pytest.raises(UserError, match="no column 'task'"):
        read(tmp_path / "y.csv", "csv", about, tmp_path)


def test_an_import_overwrites_nothing(tmp_path: Path) -> None:
    tree = {"smac": {"3m": {"qmix": {"run_1": {"step_0": {"step_count": 0, "won": [0, 1]}}}}}}
    file = tmp_path / "x.json"
    file.write_text(json.dumps(tree))
    read(file, "marl-eval", About("x"), tmp_path / "r")
    with pytest.raises(UserError, match="already there"):
        read(file, "marl-eval", About("x"), tmp_path / "r")
