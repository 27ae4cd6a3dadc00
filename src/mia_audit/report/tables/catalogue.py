"""The registry of tables, each with condition, data and layout, which is rendered to LaTeX here and to HTML by the page.

Files of tables do not import polars at the top, because the workflow imports them for the names of an audit's tables.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby, pairwise, takewhile, zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mia_audit.registry import Registry
from mia_audit.report.formatting import fixed, interval, percent, percent_interval, with_last_digits
from mia_audit.sanitise import csv, tex, tex_comment

if TYPE_CHECKING:
    import polars as pl

    from mia_audit.report.findings import Estimate, Findings, Leak
    from mia_audit.report.results import Results
    from mia_audit.report.spec import AuditedSetting, ReportedAudit


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

    def condensed(self, omit: Collection[str] = ()) -> Layout:
        """Return the table without columns of text that have the same value in all rows, which becomes a note, and without columns of `omit`."""
        texts = [[str(row[place]) for row in self.rows] for place in range(len(self.columns))]
        same = [
            not column.number and len(set(values)) == 1 < len(values)
            for column, values in zip(self.columns, texts, strict=True)
        ]
        left_out = [
            any(name and name.startswith(tuple(omit)) for name in (column.title, column.group))
            for column in self.columns
        ]
        constant = "; ".join(
            f"{column.title}: {values[0]}"
            for column, values, alike, out in zip(self.columns, texts, same, left_out, strict=True)
            if alike and not out and column.title and values[0] != "–"
        )
        kept = [place for place in range(len(self.columns)) if not same[place] and not left_out[place]]
        rows = [[row[place] for place in kept] for row in self.rows]
        notes = ([f"In all rows: {constant}."] if constant else []) + list(self.notes)
        return Layout([self.columns[place] for place in kept], rows, self.caption, notes)


def laid_out(
    columns: Sequence[tuple[Column, Callable[[Any], Cell | str]]], items: Iterable[Any], caption: str
) -> Layout:
    """Return a table with a row per item, each cell made by its column's function."""
    return Layout([column for column, _ in columns], [[cell(item) for _, cell in columns] for item in items], caption)


def text(*titles: str) -> list[Column]:
    """Return columns of text."""
    return [Column(title, number=False) for title in titles]


LINE = 340.0
"""Width of a printed table in points: the text of LaTeX's article and of Springer's LNCS has 345."""
LEGIBLE = 4
"""How many of `LETTERS` are long enough for most words; shorter ones are only for what fits with none of these."""
LINES = 40
"""Most lines of a printed table's body, which fit on a page."""
LETTERS = (24, 18, 14, 12, 10, 8, 5, 3)
"""Most letters in a line of a cell: the first number with which the columns need the fewest tabulars."""
SEPARATION = 6.0
"""Space between columns in points."""
NUMBER = re.compile(r"[−<≥≤ ]*\d")


def latex(layout: Layout, omit: Collection[str] = ()) -> str:
    """Return a table as LaTeX (booktabs) without a float, at most `LINE` wide, so that a paper can \\input it.

    It is condensed: columns named by `omit`, by title or heading, are left out. Columns that do not fit follow in a second
    tabular with the columns of text repeated, rows after `LINES` in another.
    """
    layout = layout.condensed(omit)
    places = range(len(layout.columns))
    grids = [{place: _Printed.from_layout(layout, place, letters) for place in places} for letters in LETTERS]
    fitting = [grid for grid in grids if all(_width(grid[one] for one in panel) <= LINE for panel in _panels(grid))]
    legible = [grid for grid in grids[:LEGIBLE] if grid in fitting]
    grid = min(legible or fitting[:1] or grids[-1:], key=lambda grid: len(_panels(grid)))
    panels = [_tabular([grid[place] for place in panel], rows) for rows in _chunks(grid) for panel in _panels(grid)]
    lines = [r"% Needs \usepackage{booktabs}.", *([tex_comment(layout.caption)] if layout.caption else [])]
    lines += [
        r"{\footnotesize\setlength{\tabcolsep}{" + f"{SEPARATION / 2:g}pt" + r"}\raggedright\noindent",
        *("\n\n\\medskip\\noindent\n".join(panels).splitlines()),
    ]
    lines += [r"\par\smallskip", *(rf"{tex(note)}\par" for note in layout.notes), "}"]
    return "\n".join(lines) + "\n"


@dataclass(frozen=True)
class _Printed:
    """A column as it is printed: the lines of its heading and of every cell, those below a cell's text in small print."""

    column: Column
    head: Sequence[str]
    cells: Sequence[Sequence[str]]
    width: float

    @classmethod
    def from_layout(cls, layout: Layout, place: int, letters: int) -> _Printed:
        column, cells = layout.columns[place], [row[place] for row in layout.rows]
        head = _broken(column.title, letters)
        text = [_broken(str(cell), letters) for cell in cells]
        notes = [
            [line for note in (cell.notes if isinstance(cell, Cell) else ()) if note for line in _broken(note, letters)]
            for cell in cells
        ]
        lines = [*head, *(line for part in (*text, *notes) for line in part)]
        spanned = 0.0
        if column.group:
            heading = _broken(column.group, max(letters, 14))
            spanned = max(map(_points, heading)) / sum(other.group == column.group for other in layout.columns)
        printed = [
            [*map(tex, first), *(rf"{{\scriptsize {tex(line)}}}" for line in more)]
            for first, more in zip(text, notes, strict=True)
        ]
        return cls(column, head, printed, max(spanned, *map(_points, lines)) + SEPARATION)


def _broken(text: str, letters: int) -> list[str]:
    """Break a text into lines at spaces, and after - _ + and / in longer words; numbers and intervals stay whole."""
    if NUMBER.match(text) or len(text) <= letters:
        return [text]
    pieces = re.findall(r"[^ _+/-]*[_+/-]+|[^ _+/-]+ *| +", text)
    lines = [""]
    for piece in (part[at : at + letters] for part in pieces for at in range(0, len(part), letters)):
        if lines[-1] and len(lines[-1]) + len(piece.rstrip()) > letters:
            lines.append("")
        lines[-1] += piece
    return [line.strip() for line in lines]


def _points(text: str) -> float:
    """Return the width of a text in LaTeX's font of 8 points, rounded up."""
    known = (next((width for letters, width in WIDTHS.items() if one in letters), None) for one in text)
    return sum(width or (6.6 if one.isupper() else 4.8) for one, width in zip(text, known, strict=True))


WIDTHS = {"ijlf.,:;'|![] \u00a0": 2.9, "rst()-": 3.5, "acegoz0123456789": 4.3, "mw−+≥≤×→±∞": 7.2, "MW%": 8.8}
"""Widths of letters in points, where they are not 4.8, or 6.6 for capitals."""


def _width(columns: Iterable[_Printed]) -> float:
    return sum(column.width for column in columns)


def _chunks(grid: Mapping[int, _Printed]) -> list[range]:
    """Return the rows of each tabular."""
    heights = [max(map(len, cells)) for cells in zip(*(column.cells for column in grid.values()), strict=True)]
    starts, lines = [0], 0
    for row, height in enumerate(heights):
        if lines and lines + height > LINES:
            starts.append(row)
            lines = 0
        lines += height
    return [range(*ends) for ends in pairwise([*starts, len(heights)])]


def _panels(grid: Mapping[int, _Printed]) -> list[list[int]]:
    """Return the columns of each tabular, the leading ones of text in all of them."""
    names = dict(takewhile(lambda item: not item[1].column.number, grid.items()))
    panels: list[list[int]] = [[]]
    for place in list(grid)[len(names) :]:
        panel = [*panels[-1], place]
        if panels[-1] and _width(names.values()) + _width(grid[one] for one in panel) > LINE:
            panels.append([])
        panels[-1].append(place)
    return [[*names, *panel] for panel in panels]


def _tabular(columns: Sequence[_Printed], rows: range) -> str:
    head, ends = [], 0
    spans = [(name, len(list(part))) for name, part in groupby(columns, lambda printed: printed.column.group)]
    headings = [_broken(name, 14 * span) for name, span in spans]
    if any(name for name, _ in spans):
        for line in range(max(map(len, headings))):
            cells = [
                rf"\multicolumn{{{span}}}{{c}}{{{tex(heading[line] if line < len(heading) else '')}}}"
                for (_, span), heading in zip(spans, headings, strict=True)
            ]
            head.append(" & ".join(cells) + r" \\")
        rules = []
        for name, span in spans:
            ends += span
            rules += [rf"\cmidrule(lr){{{ends - span + 1}-{ends}}}"] if name else []
        head.append(" ".join(rules))
    head += _lines([[tex(line) for line in printed.head] for printed in columns])
    body = [line for row in rows for line in _lines([printed.cells[row] for printed in columns])]
    alignment = "".join("r" if printed.column.number else "l" for printed in columns)
    parts = [
        rf"\begin{{tabular}}{{{alignment}}}",
        r"\toprule",
        *head,
        r"\midrule",
        *body,
        r"\bottomrule",
        r"\end{tabular}",
    ]
    return "\n".join(parts)


def _lines(cells: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a row whose cells have several; a line's first [ or * would be read as an argument of the break before it."""
    lines = [" & ".join(parts) + r" \\" for parts in zip_longest(*cells, fillvalue="")]
    return ["{}" + line if line[0] in "[*" else line for line in lines]


if TYPE_CHECKING:
    Condition = Callable[[ReportedAudit], object]
    Data = Callable[[Results, Findings], pl.DataFrame]
    Print = Callable[[Results, Findings, pl.DataFrame], Layout]


@dataclass(frozen=True)
class TableKind:
    """A kind of table: whether an audit has it, its data, and how it is printed; without a layout it is written as CSV only."""

    condition: Condition
    data: Data
    layout: Print | None

    def __call__(self, results: Results, findings: Findings) -> pl.DataFrame:
        """Return the table's data; null is unknown or, for a TPR, not resolvable."""
        return self.data(results, findings)

    def printed(self, results: Results, findings: Findings) -> Layout | None:
        """Return the table as it is printed, condensed; None without rows."""
        frame = self(results, findings)
        return self.layout(results, findings, frame).condensed() if self.layout and len(frame) else None

    @property
    def formats(self) -> tuple[str, ...]:
        """The suffixes of the table's files."""
        return ("csv", "parquet", "tex") if self.layout else ("csv",)


tables: Registry[TableKind] = Registry("table", "mia_audit.report.tables")


def table(
    name: str, layout: Print | None = None, condition: Condition = lambda spec: spec.settings
) -> Callable[[Data], TableKind]:
    """Register the decorated function as a table's data; without a condition, every audit of settings has it."""
    return lambda data: tables.register(name, data)(TableKind(condition, data, layout))


def tables_of(spec: ReportedAudit) -> dict[str, TableKind]:
    """Return the tables that an audit has, by name."""
    return {name: tables[name] for name in tables if tables[name].condition(spec)}


def table_files(spec: ReportedAudit) -> list[str]:
    """List the file names of an audit's tables in every format."""
    return [f"{name}.{suffix}" for name, kind in tables_of(spec).items() for suffix in kind.formats]


def write(results: Results, findings: Findings, folder: Path) -> None:
    """Write every table into a folder: CSV with six significant digits, exact Parquet, and LaTeX.

    Tables that the audit no longer has are removed: an audit that shows no records must not keep an old table of them.
    """
    from mia_audit.storage import write_table, write_text

    spec = results.spec
    present = table_files(spec)
    for file in (f"{name}.{suffix}" for name in tables for suffix in tables[name].formats):
        if file not in present:
            (folder / file).unlink(missing_ok=True)
    metadata = {"audit": spec.audit, "config_hash": spec.config_hash, "confidence": spec.confidence}
    for name, kind in tables_of(spec).items():
        frame = kind(results, findings)
        write_text(folder / f"{name}.csv", to_csv(frame))
        if kind.layout:
            write_table(folder / f"{name}.parquet", frame.to_arrow(), name, len(frame), metadata)
            write_text(folder / f"{name}.tex", latex(kind.layout(results, findings, frame), spec.figures.omit))


def frame_of(schema: Mapping[str, type], rows: Iterable[Mapping[str, Any]]) -> pl.DataFrame:
    """Return rows as a data frame, with 32-bit integers."""
    import polars as pl

    kinds = {str: pl.String, float: pl.Float64, int: pl.Int32, bool: pl.Boolean}
    return pl.DataFrame(list(rows), {name: kinds[kind] for name, kind in schema.items()}, orient="row")


def to_csv(frame: pl.DataFrame) -> str:
    """Return a table as CSV, with `not resolvable` for TPRs at an FPR for which the pool is too small."""
    import polars as pl

    floats = [name for name, kind in frame.schema.items() if kind == pl.Float64]
    text = frame.with_columns(pl.col(floats).map_elements(lambda value: f"{value:.6g}", return_dtype=pl.String))
    text = text.with_columns(
        pl.when(frame[name].is_null() & attacked).then(pl.lit("not resolvable")).otherwise(pl.col(name)).alias(name)
        for name, attacked in _rates(frame)
    )
    return csv(text)


def _rates(frame: pl.DataFrame) -> Iterator[tuple[str, pl.Series]]:
    """Yield the columns of mean TPRs, each with a mask of the rows that have the attack it belongs to."""
    for name in frame.columns:
        if "tpr_at_fpr" in name and name.endswith("_mean"):
            prefix = name.partition("tpr_at_fpr")[0]
            yield name, frame[f"{prefix}attack"].is_not_null()


SETTING: dict[str, type] = dict.fromkeys(("dataset", "architecture", "mechanism", "epsilon"), str)
ATTACK: dict[str, type] = dict.fromkeys(("attack", "signal", "likelihood"), str)
SETTING_COLUMNS = text("Data set", "Architecture", "Mechanism", "ε")
PARTS = ("mean", "sd", "low", "high")


def identity(setting: AuditedSetting) -> dict[str, str]:
    """Return the values that identify a setting."""
    return {name: getattr(setting, name) for name in SETTING} | {"epsilon": setting.reported_epsilon}


def parts(name: str, value: Estimate | None) -> dict[str, float | None]:
    """Return an estimate as columns; unknown ones are null."""
    values = [getattr(value, part) if value else math.nan for part in PARTS]
    return {f"{name}_{part}": None if math.isnan(known) else known for part, known in zip(PARTS, values, strict=True)}


def parts_schema(*names: str) -> dict[str, type]:
    """Return the columns of estimates."""
    return {f"{name}_{part}": float for name in names for part in PARTS}


def printed(title: str, name: str) -> tuple[Column, Any]:
    """Print a column of text as it is; null as a dash."""
    return Column(title, number=False), lambda row: "–" if row[name] is None else str(row[name])


def setting_cells(setting: AuditedSetting) -> list[Cell | str]:
    """Return the cells of `SETTING_COLUMNS`, with the setting's labels."""
    known = setting.trained or setting.explained is not None
    epsilon = setting.reported_epsilon if setting.epsilon != "inf" else "∞" if known else "–"
    return [setting.dataset_name, setting.architecture_name, setting.label or setting.mechanism_name, epsilon]


def setting_columns(settings: Sequence[AuditedSetting]) -> list[tuple[Column, Any]]:
    """Print the columns that identify a setting, with its labels."""
    cells = {tuple(identity(one).values()): setting_cells(one) for one in settings}

    def cell(place: int, row: Mapping[str, Any]) -> Cell | str:
        values = tuple(row[name] for name in SETTING)
        return cells[values][place] if values in cells else str(values[place])

    return [(column, partial(cell, place)) for place, column in enumerate(SETTING_COLUMNS)]


ATTACK_COLUMNS = [printed("Attack", "attack"), printed("Signal", "signal"), printed("Likelihood", "likelihood")]


def spread_column(title: str, name: str, missing: str = "–", interval: bool = False) -> tuple[Column, Any]:
    """Print a mean, with the standard deviation in units of its last decimal in parentheses, and its interval if asked for."""

    def cell(row: Mapping[str, Any]) -> Cell | str:
        mean, sd, low, high = (row.get(f"{name}_{part}") for part in PARTS)
        notes = within(low, high) if interval else ()
        return missing if mean is None else Cell(with_last_digits(mean, sd), notes)

    return Column(title), cell


def within(low: float | None, high: float | None) -> tuple[str, ...]:
    """Return the note of an interval; none for a single target."""
    return () if low is None or high is None else (f"{fixed(low)} to {fixed(high)}",)


def estimate_cell(value: Estimate | None) -> Cell:
    """Print an estimate with its interval; unknown as a dash."""
    return Cell("–") if value is None else Cell(fixed(value.mean), (interval(value),))


def auc_cell(leak: Leak | None) -> Cell:
    """Print the AUC of an attack with its interval; unknown as a dash."""
    return estimate_cell(leak.auc_estimate if leak else None)


def rate_cell(value: Estimate) -> Cell:
    """Print an estimate of a rate in percent, with its interval."""
    return Cell(percent(value.mean), (percent_interval(value),))


def leak_cells(leak: Leak | None, fpr: float | None) -> list[Cell]:
    """Print AUC and TPR of an attack, which is not resolvable without an FPR; unknown as dashes."""
    if leak is None:
        return [Cell("–")] * 2
    return [auc_cell(leak), Cell("not resolvable") if fpr is None else rate_cell(leak.tpr_estimate)]
