"""Tables: one object, four ways out (HTML, Markdown, LaTeX with booktabs, CSV)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

NOT_ESTIMABLE = "not estimable"


@dataclass(frozen=True)
class Cell:
    """What stands in one place of a table."""

    text: str
    strong: bool = False
    """Set bold: the best of its group."""
    mark: bool = False
    """Differs from the others in a way that the reader must see; marked with a dagger on paper."""


@dataclass(frozen=True)
class Table:
    """Text for readers, ``data`` for machines."""

    name: str
    """Of its files."""
    title: str
    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    data: pd.DataFrame
    labels: int = 1
    """Leading columns that name the row; the others are set right."""

    def markdown(self) -> str:
        """GitHub's table syntax, title and caption around it."""
        lines = [f"**{self.title}**", "", _row(self.columns)]
        lines.append(_row(["---"] * self.labels + ["---:"] * (len(self.columns) - self.labels)))
        for row in self.rows:
            lines.append(_row([_markdown(c) for c in row]))
        return "\n".join([*lines, "", self.caption, ""])

    def latex(self) -> str:
        """A table environment; needs the package booktabs."""
        layout = "l" * self.labels + "r" * (len(self.columns) - self.labels)
        lines = [r"% needs \usepackage{booktabs}", r"\begin{table}[t]", r"\centering"]
        lines += [rf"\caption{{{escape(self.title)}. {escape(self.caption)}}}", rf"\label{{tab:{self.name}}}"]
        lines += [rf"\begin{{tabular}}{{{layout}}}", r"\toprule"]
        lines.append(" & ".join(escape(c) for c in self.columns) + r" \\")
        lines.append(r"\midrule")
        previous = ""
        for row in self.rows:
            if self.labels > 1 and previous and row[0].text != previous:
                lines.append(r"\addlinespace")
            lines.append(" & ".join(_latex(c) for c in row) + r" \\")
            previous = row[0].text
        return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", r"\end{table}", ""])

    def save(self, folder: Path) -> None:
        """CSV, LaTeX and Markdown."""
        folder.mkdir(parents=True, exist_ok=True)
        self.data.to_csv(folder / f"{self.name}.csv", index=False)
        (folder / f"{self.name}.tex").write_text(self.latex())
        (folder / f"{self.name}.md").write_text(self.markdown())


def cells(texts: Sequence[object]) -> tuple[Cell, ...]:
    """A plain row."""
    return tuple(t if isinstance(t, Cell) else Cell(str(t)) for t in texts)


def _row(texts: Sequence[str]) -> str:
    return "| " + " | ".join(texts) + " |"


def _markdown(cell: Cell) -> str:
    text = cell.text.replace("|", "\\|").replace("\n", " ") + (" †" if cell.mark else "")
    return f"**{text}**" if cell.strong and text else text


def _latex(cell: Cell) -> str:
    text = escape(cell.text) + (r"$^\dagger$" if cell.mark else "")
    return rf"\textbf{{{text}}}" if cell.strong else text


_SPECIAL = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "–": "--", "<": r"\textless{}", ">": r"\textgreater{}",
    "−": r"$-$", "≥": r"$\geq$", "τ": r"$\tau$", "×": r"$\times$", "\n": " ", "†": r"$^\dagger$",
}  # fmt: skip


def escape(text: str) -> str:
    """``text`` for LaTeX."""
    return "".join(_SPECIAL.get(c, c) for c in text)
