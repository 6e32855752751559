"""The CDM section on made-up diagnostics."""

import subprocess
import sys

import pandas as pd
import pytest

from harness.analysis.study import study
from harness.cdm.definitions import COLUMNS as FILE_COLUMNS
from harness.cdm.definitions import EPSILONS
from harness.reporting import cdm
from harness.store import TrialFolder

METHODS = ("ippo", "mcem", "qmix", "vdn")


@pytest.fixture
def made(synthetic, tmp_path):
    """Four methods, two tasks, six seeds; mcem has the least CDM, ippo no joint value."""
    methods = {m: (0.5 + 0.1 * i, 0.3) for i, m in enumerate(METHODS)}
    plan = synthetic.Made(tmp_path, tasks=("a", "b"), methods=methods, seeds=range(6), points=5)
    path = synthetic.write(plan)
    for file in sorted(path.rglob("trial.json")):
        folder = TrialFolder(file.parent)
        record = folder.record()
        i, seed = METHODS.index(record["algorithm"]), record["seed"]
        low = {0: 3, 1: 0, 2: 1, 3: 2}[i]
        rows = []
        for step in (0, 1_000_000, 2_000_000):
            values = {"own/teammate_share": 0.1 + 0.2 * low + 0.01 * seed, "own/snr": 1.0, "degradation/uniform": 2.0}
            values |= {f"own/cosine@{e}": 1 - 0.3 * low * k / 5 for k, e in enumerate(EPSILONS)}
            if i:
                values |= {"joint/teammate_share": 0.2, "joint/gap_share": 0.5, "igm/violation": 0.25}
            if record["task"] == "a":
                values |= {"ends/optimal": float(seed < 6 - low), "ends/shadowed": float(seed >= 6 - low)}
            rows += [(step, m, v) for m, v in values.items()]
        folder.append("cdm.csv", FILE_COLUMNS, rows)
        missing = {} if i else {"joint": "it has no joint_value", "igm": "it has no joint_value"}
        about = {"policy": "the method's own policy()"}
        folder.update(cdm={"missing": missing, "about": about, "seconds": 12.0})
    return study([path])


def test_one_number_a_seed():
    rows = [("a", "m", "x", 0, 1, 4.0), ("a", "m", "x", 0, 0, 2.0), ("a", "m", "x", 1, 0, 8.0)]
    table = pd.DataFrame(rows, columns=["task", "metric", "algorithm", "seed", "env_steps", "value"])
    assert cdm.last(table)["value"].tolist() == [4.0, 8.0]
    assert cdm.averaged(table)["value"].tolist() == [3.0, 8.0]


def test_section_has_every_part(made):
    found = cdm.section(made)
    assert [d.name for d in found.drawings] == ["cdm_perturbation", "cdm_training", "cdm_success"]
    assert [t.name for t in found.tables] == ["cdm", "cdm_ends", "cdm_missing"]
    for drawing in found.drawings:
        assert all(svg.startswith("<svg") for svg in drawing.svgs())
        assert drawing.data["value"].notna().all()


def test_the_perturbation_curve_is_the_mean_over_seeds(made):
    data = cdm.section(made).drawings[0].data
    mine = data[(data["task"].str.endswith("a")) & (data["algorithm"] == "vdn") & (data["estimator"] == "own")]
    assert mine["value"].tolist() == pytest.approx([1 - 0.6 * k / 5 for k in range(6)])
    assert set(data["estimator"]) == {"own"}  # joint has no cosine here
    assert (data["seeds"] == 6).all()


def test_main_table_has_values_intervals_and_gaps(made):
    table = cdm.section(made).tables[0]
    rows = {(r[0].text, r[1].text): [c.text for c in r[2:]] for r in table.rows}
    assert rows["a", "ippo"][table.columns.index("T/(T+O), Q_tot") - 2] == "–"
    share = rows["a", "mcem"][0]
    assert share.startswith("0.125 [0.1")
    one = table.data[(table.data["algorithm"] == "mcem") & (table.data["metric"] == "own/teammate_share")].iloc[0]
    assert one["mean"] == pytest.approx(0.125)
    assert one["low"] < 0.125 < one["high"]


def test_overgeneralisation_counts_seeds_with_wilsons_interval(made):
    table = cdm.section(made).tables[1]
    rows = {r[1].text: [c.text for c in r[2:]] for r in table.rows}
    # Wilson for 3 of 6 by hand: centre .5, half 1.96/(1+.64) sqrt(.25/6 + 3.84/144) = .312
    assert rows["ippo"] == ["3/6 [0.19, 0.81]", "3/6 [0.19, 0.81]"]
    assert rows["mcem"][0].startswith("6/6 [0.61, 1.00]")
    assert {r[0].text for r in table.rows} == {"a"}


def test_what_is_missing_is_listed_with_its_reason(made):
    table = cdm.section(made).tables[2]
    assert [[c.text for c in r] for r in table.rows] == [
        ["a", "ippo", "igm, joint", "it has no joint_value"],
        ["b", "ippo", "igm, joint", "it has no joint_value"],
    ]


def test_sentences_name_the_ends_and_the_cost(made):
    said = cdm.section(made).sentences
    share = next(s for s in said if s.startswith("Teammate share of the gradient's variance (own)"))
    assert "lowest mcem 0.125, highest ippo 0.725" in share
    assert any("12" in s and "a trial (median)" in s for s in said)
    assert any("Policy diagnosed for ippo, mcem, qmix and vdn" in s for s in said)


def test_low_cdm_going_with_success_is_said_only_when_it_is_so():
    rows = [{"task": f"t{k}", "metric": "own/teammate_share", "algorithm": "x", "seed": 0, "value": k / 10.0}
            for k in range(6)]  # fmt: skip
    ends = [{"task": f"t{k}", "algorithm": "x", "seeds": 10, "optimal_share": 1 - k / 10} for k in range(6)]
    (said,) = cdm.correlation(pd.DataFrame(rows), pd.DataFrame(ends))
    assert "ρ = −1.00" in said
    assert "a high value goes with failure" in said
    ends = [{**e, "optimal_share": v} for e, v in zip(ends, (0.5, 0.2, 0.4, 0.1, 0.6, 0.3), strict=True)]
    (said,) = cdm.correlation(pd.DataFrame(rows), pd.DataFrame(ends))
    assert "no clear relation" in said


def test_nothing_diagnosed_nothing_shown(synthetic, tmp_path):
    path = synthetic.write(synthetic.Made(tmp_path, seeds=range(3), points=3, methods={"vdn": (0.5, 0.3)}))
    assert cdm.section(study([path])) == ((), (), ())


def test_reading_diagnostics_does_not_import_torch():
    code = "import sys, harness.reporting.cdm; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
