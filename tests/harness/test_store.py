import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from harness.errors import UserError
from harness.store import TABLES, TrialFolder, folders, load, read_table, write_atomic
from harness.types import Trial

COLUMNS = ("env_steps", "metric", "value")


def trial(results: Path, seed: int = 0, algorithm: str = "qmix") -> Trial:
    return Trial("e", "s", "t", algorithm, seed, {}, str(results))


def filled(results: Path, seed: int = 0, algorithm: str = "qmix") -> TrialFolder:
    folder = TrialFolder.of(trial(results, seed, algorithm))
    folder.update(experiment="e", suite="s", task="t", algorithm=algorithm, seed=seed, status="complete", engine="x 1")
    folder.append("metrics.csv", COLUMNS, [(0, "loss", 0.5 + seed), (10, "loss", 0.25)])
    folder.append("evaluations.csv", ("env_steps", "episode", "return"), [(0, 0, 1.0), (0, 1, 3.0)])
    return folder


# -- writing --------------------------------------------------------------------------------------------------------


def test_where_a_trial_lies(tmp_path: Path) -> None:
    assert TrialFolder.of(trial(tmp_path, 3)).path == tmp_path / "e/s/t/qmix/seed_3"


def test_the_record_is_merged_and_has_a_version(tmp_path: Path) -> None:
    folder = TrialFolder(tmp_path / "x")
    assert folder.record() is None
    folder.update(a=1, b=[1, 2])
    folder.update(b=None, c="é")
    assert folder.record() == {"version": 1, "a": 1, "b": None, "c": "é"}


def test_floats_are_written_exactly_and_read_back(tmp_path: Path) -> None:
    values = [0.1, 1 / 3, 1e-300, 123456789.123456789, -0.0, 2.0**-1074]
    folder = TrialFolder(tmp_path)
    folder.append("metrics.csv", COLUMNS, [(k, "m", v) for k, v in enumerate(values)])
    table = read_table(tmp_path / "metrics.csv")
    assert table is not None
    assert table["value"].tolist() == values


def test_the_header_is_written_once(tmp_path: Path) -> None:
    folder = TrialFolder(tmp_path)
    for k in range(3):
        folder.append("metrics.csv", COLUMNS, [(k, "m", 1)])
    assert (tmp_path / "metrics.csv").read_text() == "env_steps,metric,value\n0,m,1\n1,m,1\n2,m,1\n"


def test_replacing_is_atomic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "trial.json"
    write_atomic(path, b"old")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_atomic(path, b"new and longer")
    assert path.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["trial.json"]  # nothing half-written is left


def test_rewinding_cuts_to_where_a_checkpoint_stood(tmp_path: Path) -> None:
    folder = filled(tmp_path)
    before, text = folder.positions(), (folder.path / "metrics.csv").read_bytes()
    assert set(before) == set(TABLES)
    folder.append("metrics.csv", COLUMNS, [(20, "loss", 0.1)])
    folder.append("final.csv", ("env_steps", "episode", "return"), [(0, 0, 1.0)])
    folder.rewind(before)
    assert (folder.path / "metrics.csv").read_bytes() == text
    assert (folder.path / "final.csv").read_bytes() == b""
    folder.append("final.csv", ("env_steps", "episode", "return"), [(7, 0, 1.0)])
    assert (folder.path / "final.csv").read_text().splitlines()[0] == "env_steps,episode,return"


def test_rewinding_refuses_what_was_lost(tmp_path: Path) -> None:
    folder = filled(tmp_path)
    before = folder.positions()
    path = folder.path / "metrics.csv"
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(ValueError, match=r"metrics\.csv: \d+ bytes, \d+ were written"):
        folder.rewind(before)
    path.unlink()
    with pytest.raises(ValueError, match=r"metrics\.csv: missing"):
        folder.rewind(before)


# -- reading --------------------------------------------------------------------------------------------------------


def test_everything_at_or_below_a_folder(tmp_path: Path) -> None:
    for seed in (0, 1):
        filled(tmp_path, seed)
    filled(tmp_path, 0, "vdn")
    found = load(tmp_path)
    assert found.trials["trial"].tolist() == ["e/s/t/qmix/seed_0", "e/s/t/qmix/seed_1", "e/s/t/vdn/seed_0"]
    assert found.trials["seed"].tolist() == [0, 1, 0]
    assert found.trials.iloc[1]["record"]["status"] == "complete"
    assert found.metrics[found.metrics["trial"] == "e/s/t/qmix/seed_1"]["value"].tolist() == [1.5, 0.25]
    assert len(found.evaluations) == 6
    assert found.final.empty
    assert "trial" in found.final
    assert not found.damaged
    assert len(load(tmp_path / "e/s/t/vdn").trials) == 1
    assert len(folders(tmp_path)) == 3


def test_a_last_line_without_its_end_is_dropped(tmp_path: Path) -> None:
    folder = filled(tmp_path)
    with (folder.path / "metrics.csv").open("a") as file:
        file.write("20,loss,0.1")  # killed here: was it .1, or .125?
    assert load(tmp_path).metrics["env_steps"].tolist() == [0, 10]


def test_damage_is_named_and_the_rest_is_read(tmp_path: Path) -> None:
    for seed in range(4):
        filled(tmp_path, seed)
    paths = [tmp_path / f"e/s/t/qmix/seed_{k}" for k in range(4)]
    (paths[0] / "trial.json").write_text('{"version": 1, "seed"')
    (paths[1] / "metrics.csv").write_bytes(b"\x00\xff\x00\n\n\n")
    (paths[2] / "trial.json").write_text(json.dumps({"version": 99}))
    found = load(tmp_path)
    assert found.trials["seed"].tolist() == [1, 3]
    assert found.metrics["trial"].unique().tolist() == ["e/s/t/qmix/seed_3"]
    assert sorted(Path(p).name for p, _ in found.damaged) == ["metrics.csv", "seed_0", "seed_2"]
    assert "layout version 99, this harness reads 1" in dict(found.damaged)[str(paths[2])]


def test_nothing_there_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such folder"):
        load(tmp_path / "nowhere")
    with pytest.raises(UserError, match="no trials there"):
        load(tmp_path)


def test_missing_is_missing(tmp_path: Path) -> None:
    assert read_table(tmp_path / "none.csv") is None
    (tmp_path / "empty.csv").write_text("")
    assert read_table(tmp_path / "empty.csv") is None
    TrialFolder(tmp_path).append("metrics.csv", COLUMNS, [(0, "m", math.nan)])
    table = read_table(tmp_path / "metrics.csv")
    assert table is not None
    assert table["value"].isna().tolist() == [True]


def test_three_lines_of_pandas_are_enough(tmp_path: Path) -> None:
    filled(tmp_path)
    table = pd.read_csv(tmp_path / "e/s/t/qmix/seed_0/evaluations.csv")
    assert table.groupby("env_steps")["return"].mean().to_dict() == {0: 2.0}


def test_reading_results_imports_no_torch() -> None:
    code = "import sys, harness.store; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_what_was_spent_on_tuning_is_declared_beside_the_trials(tmp_path: Path) -> None:
    """The same from wherever below the experiment it is read; a method that is not named has none."""
    filled(tmp_path)
    filled(tmp_path, algorithm="vdn")
    (tmp_path / "e/tuning.json").write_text('{"qmix": "24 settings x 3 seeds"}')
    for place in (tmp_path, tmp_path / "e", tmp_path / "e/s/t/qmix"):
        found = {r["algorithm"]: r.get("tuning") for r in load(place).trials["record"]}
        assert found["qmix"] == "24 settings x 3 seeds"
        assert found.get("vdn") is None


@pytest.mark.parametrize("text", ["{", "[1]", '{"qmix": 3}'])
def test_a_damaged_declaration_of_tuning_is_refused(tmp_path: Path, text: str) -> None:
    filled(tmp_path)
    (tmp_path / "e/tuning.json").write_text(text)
    with pytest.raises(UserError, match=r"tuning\.json: "):
        load(tmp_path)
