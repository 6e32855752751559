"""The figure and tables of tasks that differ in one number."""

from harness.analysis.study import study
from harness.reporting import scaling
from harness.reporting.report import write


def test_figure_tables_and_their_place_in_the_report(synthetic, tmp_path):
    made = synthetic.Made(
        tmp_path, tasks=("dial_2", "dial_3", "dial_10"), methods={"a": (0.9, 0.2), "b": (0.4, 0.3)}, seeds=range(4),
        points=4, env_steps=3000, final_episodes=10, eval_episodes=4,
    )  # fmt: skip
    found = study([synthetic.write(made)])
    section = scaling.section(found)
    (drawing,) = section.drawings
    assert drawing.panels[0].title == "dial_n: score"
    assert all(svg.startswith("<svg") for svg in drawing.svgs())
    assert drawing.data["n"].tolist() == [2, 2, 3, 3, 10, 10]
    assert [t.name for t in section.tables] == ["scaling"]  # no variants
    assert [[c.text for c in row[:2]] for row in section.tables[0].rows][:2] == [["dial_2", "a"], ["dial_2", "b"]]
    page = write(found, tmp_path / "out", ("html", "md")).read_text()
    assert 'id="scaling"' in page
    assert 'href="#scaling"' in page
    for file in ("figures/scaling.pdf", "figures/scaling.csv", "tables/scaling.tex", "tables/scaling.md"):
        assert (tmp_path / "out" / file).stat().st_size > 0


def test_least_value_or_none_of_those_tried():
    from harness.analysis.scaling import Need

    need = Need("dial_n", 3, "x", "m", (10.0, 100.0), {0.5: 10.0, 0.9: None})
    table = scaling.needed([need])
    assert [c.text for c in table.rows[0]] == ["dial_n", "3", "x", "m", "10", "> 100"]
    assert table.columns[-2:] == ("For 50% of seeds", "For 90% of seeds")
    assert scaling.needed([]) is None


def test_nothing_where_no_three_tasks_differ_in_a_number(synthetic, tmp_path):
    made = synthetic.Made(tmp_path, tasks=("a", "b"), methods={"x": (0.5, 0.3)}, seeds=range(3), points=3)
    assert scaling.section(study([synthetic.write(made)])) == ((), ())
