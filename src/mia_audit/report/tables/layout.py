"""The layout of a printed table, which is rendered to LaTeX here and to HTML by the page's templates."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from mia_audit.sanitise import tex, tex_comment


@dataclass(frozen=True)
class Cell:
    """The text of a cell, and smaller lines below it (HTML) or beside it (LaTeX)."""

    text: str
    notes: Sequence[str] = ()

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Column:
    """A column; adjacent columns of the same `group` share a heading above their titles. Text columns are aligned to the left."""

    title: str
    group: str = ""
    number: bool = True
    wide: bool = False


@dataclass(frozen=True)
class Layout:
    """A table as it is printed: its columns, rows with a cell for each column, its caption and the notes below it."""

    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell | str]]
    caption: str = ""
    notes: Sequence[str] = ()

    @property
    def groups(self) -> list[tuple[str, int]]:
        """The headings over several columns with their widths; empty without any."""
        spans = [(name, len(list(columns))) for name, columns in groupby(self.columns, lambda column: column.group)]
        return spans if any(name for name, _ in spans) else []


def laid_out(
    columns: Sequence[tuple[Column, Callable[[Any], Cell | str]]], items: Iterable[Any], caption: str
) -> Layout:
    """Return a table with a row per item, each cell made by its column's function."""
    return Layout([column for column, _ in columns], [[cell(item) for _, cell in columns] for item in items], caption)


def text(*titles: str) -> list[Column]:
    """Return columns of text."""
    return [Column(title, number=False) for title in titles]


def latex(layout: Layout, long: bool = False) -> str:
    """Return a table as LaTeX (booktabs) without a float, so that a paper can \\input it."""
    environment = "longtable" if long else "tabular"
    alignment = "".join("r" if column.number else "l" for column in layout.columns)
    head = []
    if spans := layout.groups:
        head.append(" & ".join(rf"\multicolumn{{{span}}}{{c}}{{{tex(name)}}}" for name, span in spans) + r" \\")
        ends = [sum(span for _, span in spans[: index + 1]) for index in range(len(spans))]
        rules = [
            rf"\cmidrule(lr){{{end - span + 1}-{end}}}" for (name, span), end in zip(spans, ends, strict=True) if name
        ]
        head.append(" ".join(rules))
    head.append(" & ".join(tex(column.title) for column in layout.columns) + r" \\")
    body = [" & ".join(map(_latex_cell, row)) + r" \\" for row in layout.rows]
    width = rf"\multicolumn{{{len(layout.columns)}}}{{p{{\linewidth}}}}"
    notes = [rf"{width}{{\footnotesize {tex(note)}}} \\" for note in layout.notes]
    lines = [
        rf"% Needs \usepackage{{booktabs{',longtable' if long else ''}}}.",
        *([tex_comment(layout.caption)] if layout.caption else []),
        rf"\begin{{{environment}}}{{{alignment}}}",
        r"\toprule",
        *head,
        r"\midrule",
        *([r"\endhead"] if long else []),
        *body,
        r"\bottomrule",
        *notes,
        rf"\end{{{environment}}}",
    ]
    return "\n".join(lines) + "\n"


def _latex_cell(cell: Cell | str) -> str:
    notes = cell.notes if isinstance(cell, Cell) else ()
    return " ".join([tex(str(cell)), *(rf"{{\footnotesize {tex(note)}}}" for note in notes if note)])
