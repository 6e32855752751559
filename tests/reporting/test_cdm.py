"""The CDM section on made-up diagnostics."""

import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

from harness.analysis.study import Options, study
from harness.cdm.definitions import COLUMNS as FILE_COLUMNS
from harness.cdm.definitions import EPSILONS
from harness.reporting import cdm
from harness.store import TrialFolder

METHODS = ("ippo", "mcem", "qmix", "vdn")


@pytest.fixture(scope="module")
def made(synthetic, tmp_path_factory):
    """Four methods, two tasks, six seeds; mcem has the least CDM, ippo no joint value."""
    methods = {m: (0.5 + 0.1 * i, 0.3) for i, m in enumerate(METHODS)}
    root = tmp_path_factory.mktemp("cdm")
    plan = synthetic.Made(root, tasks=("a", "b"), methods=methods, seeds=range(6), points=3, final_episodes=8)
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
    return study([path], Options(resamples=1000))


@pytest.fixture(scope="module")
def section(made):
    return cdm.section(made)


def named(parts, name):
    return next(p for p in parts if p.name == name)


def test_one_number_a_seed():
    rows = [("a", "m", "x", 0, 1, 4.0), ("a", "m", "x", 0, 0, 2.0), ("a", "m", "x", 1, 0, 8.0)]
    table = pd.DataFrame(rows, columns=["task", "metric", "algorithm", "seed", "env_steps", "value"])
    assert cdm.last(table)["value"].tolist() == [4.0, 8.0]
    assert cdm.averaged(table)["value"].tolist() == [3.0, 8.0]


def test_section_has_every_part(section):
    assert [d.name for d in section.drawings] == ["cdm_games", "cdm_perturbation", "cdm_training", "cdm_success"]
    assert [t.name for t in section.tables] == ["cdm_answers", "cdm_games", "cdm", "cdm_ends", "cdm_missing"]
    for drawing in section.drawings:
        assert all(svg.startswith("<svg") for svg in drawing.svgs())
    for drawing in section.drawings[1:]:
        assert drawing.data["value"].notna().all()


def test_the_perturbation_curve_is_the_mean_over_seeds(section):
    data = named(section.drawings, "cdm_perturbation").data
    mine = data[(data["task"].str.endswith("a")) & (data["algorithm"] == "vdn") & (data["estimator"] == "own")]
    assert mine["value"].tolist() == pytest.approx([1 - 0.6 * k / 5 for k in range(6)])
    assert set(data["estimator"]) == {"own"}  # joint has no cosine here
    assert (data["seeds"] == 6).all()


def test_main_table_has_values_intervals_and_gaps(section):
    table = named(section.tables, "cdm")
    rows = {(r[0].text, r[1].text): [c.text for c in r[2:]] for r in table.rows}
    assert rows["a", "ippo"][table.columns.index("T/(T+O), Q_tot") - 2] == "–"
    share = rows["a", "mcem"][0]
    assert share.startswith("0.125 [0.1")
    one = table.data[(table.data["algorithm"] == "mcem") & (table.data["metric"] == "own/teammate_share")].iloc[0]
    assert one["mean"] == pytest.approx(0.125)
    assert one["low"] < 0.125 < one["high"]


def test_overgeneralisation_counts_seeds_with_wilsons_interval(section):
    table = named(section.tables, "cdm_ends")
    rows = {r[1].text: [c.text for c in r[2:]] for r in table.rows}
    # Wilson for 3 of 6 by hand: centre .5, half 1.96/(1+.64) sqrt(.25/6 + 3.84/144) = .312
    assert rows["ippo"] == ["3/6 [0.19, 0.81]", "3/6 [0.19, 0.81]"]
    assert rows["mcem"][0].startswith("6/6 [0.61, 1.00]")
    assert {r[0].text for r in table.rows} == {"a"}


def test_what_is_missing_is_listed_with_its_reason(section):
    table = named(section.tables, "cdm_missing")
    assert [[c.text for c in r] for r in table.rows] == [
        ["a", "ippo", "igm, joint", "it has no joint_value"],
        ["b", "ippo", "igm, joint", "it has no joint_value"],
    ]


def test_sentences_name_the_ends_and_the_cost(section):
    said = section.sentences
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


def test_mismatch_beside_success_task_by_task(section):
    drawing = named(section.drawings, "cdm_games")
    assert [p.title for p in drawing.panels] == ["a", "a"]  # share and cosine; b's optimum is not known
    row = drawing.data.set_index("algorithm").loc["qmix"]
    assert (row["optimal"], row["seeds"], row["share"]) == (5, 6, pytest.approx(5 / 6))
    assert row["own_teammate_share"] == pytest.approx(0.325)
    assert row["own_teammate_share_low"] < 0.325 < row["own_teammate_share_high"]
    assert row["own_cosine@0.5"] == pytest.approx(1 - 0.3 * 3 / 5)
    table = named(section.tables, "cdm_games")
    assert [c.text for c in table.rows[0]][:3] == ["a", "ippo", "3/6 [0.19, 0.81]"]
    assert table.columns == ("Task", "Method", "At the optimum", "Teammate share", "Cosine at ε=0.5")


def test_the_answer_is_computed_and_said(section):
    answers = {tuple(c.text for c in r[:2]): [c.text for c in r[2:]] for r in named(section.tables, "cdm_answers").rows}
    rho, answer = answers["teammate share", "a"]
    assert rho.startswith("−1.00 [−1.00, ")
    # 6, 5, 4 and 3 of 6 seeds: resampled, the order of neighbours often turns, that of the ends hardly ever
    assert answer == "yes"
    assert section.sentences[0].startswith("Does low mismatch (a low teammate share) go with success? ")
    assert any(
        s == "On a mcem has least mismatch (teammate share 0.125) and 6 of 6 seeds at the optimum; most seeds there: "
        "mcem (6 of 6)."
        for s in section.sentences
    )


def test_a_winner_with_more_mismatch_is_named(made):
    from harness.reporting import cdm_games

    ones, none = np.ones(4), np.zeros(4)
    shares = {m: {"own/teammate_share": np.full(4, x)} for m, x in zip("abcd", (0.0, 0.3, 0.6, 0.9), strict=True)}
    fill = {"own/cosine@0.5": np.full(4, np.nan)}
    found = [cdm_games.Mark("s/t", m, ones if m == "d" else none, shares[m] | fill) for m in "abcd"]
    orders = cdm_games.orders(made, found)
    assert orders["s/t", "own/cosine@0.5"] is None
    said = cdm_games.sentences(found, orders)
    # ranks of share 1 2 3 4, of success 2 2 2 4: rho = 6 / sqrt(20 * 12)... positive, and no resample differs
    assert said[0].startswith("Does low mismatch (a low teammate share) go with success? No, the opposite: ")
    assert said[1] == (
        "On t a has least mismatch (teammate share 0) and 0 of 4 seeds at the optimum; most seeds there: d (4 of 4)."
    )


def test_nothing_diagnosed_nothing_shown(synthetic, tmp_path):
    path = synthetic.write(synthetic.Made(tmp_path, seeds=range(3), points=3, methods={"vdn": (0.5, 0.3)}))
    assert cdm.section(study([path])) == ((), (), ())


def test_reading_diagnostics_does_not_import_torch():
    code = "import sys, harness.reporting.cdm; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
