"""``harness report``: results -> one folder with the report, its figures and its tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup

import harness
from harness.analysis import energy
from harness.analysis.study import Options, Study, study
from harness.errors import UserError
from harness.reporting import cdm, content, method, page, scaling, summary
from harness.reporting.drawings import drawings
from harness.reporting.figures import Drawing
from harness.reporting.style import DASHES, LIGHT, SVG_DASHES, Look, looks
from harness.reporting.tables import Table

FORMATS = ("html", "md")
KINDS = {"figures": (".png", ".pdf", ".svg", ".csv"), "tables": (".csv", ".tex", ".md")}


def build(paths: Sequence[Path], out: Path | None = None, formats: tuple[str, ...] = ("html",), **options: Any) -> Path:
    """The report of all trials at or below ``paths``; its main file.

    ``out`` is the report's folder, by default reports/<experiment>; ``formats`` are "html" and "md", the first being
    the main one; ``options`` are the fields of ``harness.analysis.study.Options``. Raises ``UserError`` for results
    that may not be pooled, and for unknown formats and options.
    """
    if not formats or any(f not in FORMATS for f in formats):
        raise UserError(f"format {', '.join(formats) or '(none)'}: known are {', '.join(FORMATS)}")
    made = study(paths, Options.of(**options))
    folder = Path("reports") / experiments(made) if out is None else Path(out)
    return write(made, folder, formats)


def write(made: Study, folder: Path, formats: Sequence[str] = ("html",)) -> Path:
    """Write ``made`` into ``folder``, replacing an earlier report there; the main file."""
    section, scaled = cdm.section(made), scaling.section(made)
    figures = {**drawings(made), **{d.name: d for d in (*scaled.drawings, *section.drawings)}}
    tables = {**content.tables(made), **{t.name: t for t in (*scaled.tables, *section.tables)}}
    _clear(folder)
    for figure in figures.values():
        figure.save(folder / "figures")
    for table in tables.values():
        table.save(folder / "tables")
    pages = {"html": html, "md": markdown}
    for kind in formats:
        (folder / f"report.{kind}").write_text(pages[kind](made, figures, tables, section), encoding="utf-8")
    return folder / f"report.{formats[0]}"


def experiments(made: Study) -> str:
    """Names of the experiments in the report, joined by +."""
    return "+".join(sorted({str(r.record.get("experiment")) for r in made.scores.all_runs()}))


def _clear(folder: Path) -> None:
    """Drop files of an earlier report: one that is not made any more must not stay beside the new ones."""
    folder.mkdir(parents=True, exist_ok=True)
    for kind in FORMATS:
        (folder / f"report.{kind}").unlink(missing_ok=True)
    for name, suffixes in KINDS.items():
        for path in (folder / name).glob("*"):
            if path.suffix in suffixes:
                path.unlink()


# -- HTML ------------------------------------------------------------------------------------------------------------


def html(made: Study, figures: Mapping[str, Drawing], tables: Mapping[str, Table], section: cdm.Section) -> str:
    """One file that opens without a network."""
    env = page.templates()
    return env.get_template("report.html.j2").render(
        title=f"Report: {experiments(made)}",
        lead=lead(made),
        css=page.source(env, "report.css"),
        summary=summary.sentences(made),
        notices=[n.text for n in made.scores.notices if n.level == "warning"],
        drawings=_Lenient({name: _view(d) for name, d in figures.items()}),
        tables=_Lenient(tables),
        cdm={
            "figures": [d.name for d in section.drawings],
            "tables": [t.name for t in section.tables],
            "sentences": section.sentences,
        },
        efficiency=[name for name, *_ in content.EFFICIENCY.values() if name in tables],
        energy=energy.told(made.scores.all_runs()),
        sections=_sections(figures, tables, bool(section.tables)),
        keys={a: k.place % len(LIGHT) for a, k in looks(made.algorithms).items()},
        how=method.sentences(made),
        foot=f"Made by harness {harness.__version__} from {len(list(made.scores.all_runs()))} trials.",
    )


class _Lenient(dict[str, Any]):
    """A figure or table that this study has no data for is absent, not an error."""

    def __missing__(self, name: str) -> None:
        return None


def _view(d: Drawing) -> dict[str, Any]:
    legend = [(name, Markup(_legend_mark(look))) for name, look in d.legend]
    svgs = [Markup(s) for s in d.svgs()]
    wide = max(p.size[0] for p in d.panels) > 4 or d.columns < 3
    return {"name": d.name, "wide": wide, "caption": d.caption, "svgs": svgs, "legend": legend}


def _legend_mark(look: Look) -> str:
    dash = SVG_DASHES[DASHES.index(look.dash)]
    colour = f"var(--m{look.place % len(LIGHT)})"
    shapes = {
        "o": '<circle cx="17" cy="7" r="3.6"/>',
        "s": '<rect x="13.6" y="3.6" width="6.8" height="6.8"/>',
        "^": '<path d="M17 2.6 21 10.4H13Z"/>',
        "v": '<path d="M17 11.4 21 3.6H13Z"/>',
        "D": '<path d="M17 2.4 21.6 7 17 11.6 12.4 7Z"/>',
        "P": '<path d="M15.4 3h3.2v2.4H21v3.2h-2.4V11h-3.2V8.6H13V5.4h2.4Z"/>',
        "X": '<path d="m13.5 4.6 1.4-1.4L17 5.4l2.1-2.2 1.4 1.4L18.4 7l2.1 2.4-1.4 1.4L17 8.6l-2.1 2.2-1.4-1.4Z"/>',
        "*": '<path d="m17 2.2 1.3 3.3 3.5.2-2.7 2.3.9 3.4-3-1.9-3 1.9.9-3.4-2.7-2.3 3.5-.2Z"/>',
    }
    dashes = f' stroke-dasharray="{dash}"' if dash else ""
    return (
        f'<svg width="34" height="14" viewBox="0 0 34 14" aria-hidden="true"><path d="M0 7H34" stroke="{colour}" '
        f'stroke-width="2"{dashes}/><g fill="{colour}">{shapes[look.marker]}</g></svg>'
    )


def lead(made: Study) -> str:
    """The line below the title."""
    finished = sorted(str(r.record["finished"])[:10] for r in made.scores.all_runs() if r.record.get("finished"))
    when = "" if not finished else finished[0] if finished[0] == finished[-1] else f"{finished[0]} to {finished[-1]}"
    suites = ", ".join(sorted({t.suite for t in made.tasks}))
    runs = len(list(made.scores.all_runs()))
    return " · ".join(x for x in (f"suite {suites}", f"{runs} trials", when) if x)


def _sections(figures: Mapping[str, Drawing], tables: Mapping[str, Table], diagnosed: bool) -> list[tuple[str, str]]:
    every = [
        ("summary", "Summary", True),
        ("curves", "Curves", "learning_curves" in figures),
        ("final", "Final scores", True),
        ("aggregate", "All tasks", "aggregate" in figures),
        ("scaling", "Scaling", "scaling" in figures),
        ("pairs", "Pairs", "pairs" in tables),
        ("efficiency", "Efficiency", any(name in tables for name, *_ in content.EFFICIENCY.values())),
        ("fairness", "Fairness", True),
        ("cdm", "CDM", diagnosed),
        ("provenance", "Provenance", True),
        ("methods", "Methods", True),
    ]
    return [(i, name) for i, name, there in every if there]


# -- Markdown --------------------------------------------------------------------------------------------------------


def markdown(made: Study, figures: Mapping[str, Drawing], tables: Mapping[str, Table], section: cdm.Section) -> str:
    """The same for a repository's page; pictures beside it in figures/."""
    lines = [f"# Report: {experiments(made)}", "", lead(made), ""]
    lines += [f"- {s}" for s in summary.sentences(made)] + [""]
    notices = [f"> - {n.text}" for n in made.scores.notices if n.level == "warning"]
    lines += ["> **Read this first**", ">", *notices, ""] if notices else []
    for d in figures.values():
        lines += [f"## {d.title}", "", f"![{d.title}](figures/{d.name}.png)", "", d.caption, ""]
    for t in tables.values():
        if t.rows:
            lines += [t.markdown()]
    if section.sentences:
        lines += ["## Centralised-decentralised mismatch", "", *(f"- {s}" for s in section.sentences), ""]
    lines += ["## How every number was made", ""] + [f"- {s}" for s in method.sentences(made)]
    return "\n".join([*lines, ""])
