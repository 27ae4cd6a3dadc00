"""The registry of tables: every file of this package registers one or more, each with condition, data and layout.

These files do not import polars at the top, because the workflow imports them for the names of an audit's tables.

Columns that several tables share.

The layout of a printed table, which is rendered to LaTeX here and to HTML by the page's templates.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mia_audit.registry import Registry
from mia_audit.report.text.formatting import fixed, interval, percent, percent_interval, spread
from mia_audit.sanitise import csv, tex, tex_comment

if TYPE_CHECKING:
    import polars as pl

    from mia_audit.report.data.findings import Estimate, Findings, Leak
    from mia_audit.report.data.results import Results
    from mia_audit.report.data.spec import Setting, Spec


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


if TYPE_CHECKING:
    Condition = Callable[[Spec], object]
    Data = Callable[[Results, Findings], pl.DataFrame]
    Print = Callable[[Results, Findings, pl.DataFrame], Layout]


@dataclass(frozen=True)
class TableKind:
    """A kind of table: whether an audit has it, its data, and how it is printed; without a layout it is written as CSV only.

    A `long` table may break over pages. `private` tables are written with the figures of private explanations.
    """

    condition: Condition
    data: Data
    layout: Print | None
    long: bool = False
    private: bool = False

    def __call__(self, results: Results, findings: Findings) -> pl.DataFrame:
        """Return the table's data; null is unknown or, for a TPR, not resolvable."""
        return self.data(results, findings)

    def printed(self, results: Results, findings: Findings) -> Layout | None:
        """Return the table as it is printed; None without rows."""
        frame = self(results, findings)
        return self.layout(results, findings, frame) if self.layout and len(frame) else None

    @property
    def formats(self) -> tuple[str, ...]:
        """The suffixes of the table's files."""
        return ("csv", "parquet", "tex") if self.layout else ("csv",)


tables: Registry[TableKind] = Registry("table", "mia_audit.report.tables")


def table(
    name: str,
    layout: Print | None = None,
    condition: Condition = lambda spec: True,
    long: bool = False,
    private: bool = False,
) -> Callable[[Data], TableKind]:
    """Register the decorated function as a table's data."""
    return lambda data: tables.register(name)(TableKind(condition, data, layout, long, private))


def tables_of(spec: Spec, private: bool = False) -> dict[str, TableKind]:
    """Return the tables that an audit has, by name."""
    return {name: tables[name] for name in tables if tables[name].private == private and tables[name].condition(spec)}


def table_files(spec: Spec, private: bool = False) -> list[str]:
    """List the file names of an audit's tables in every format."""
    return [f"{name}.{suffix}" for name, kind in tables_of(spec, private).items() for suffix in kind.formats]


def write(results: Results, findings: Findings, folder: Path, private: bool = False) -> None:
    """Write every table into a folder: CSV with six significant digits, exact Parquet, and LaTeX.

    Tables that the audit no longer has are removed: an audit that shows no records must not keep an old table of them.
    """
    from mia_audit.storage import write_table, write_text

    spec = results.spec
    present = table_files(spec, private)
    ours = [name for name in tables if tables[name].private == private]
    for file in (f"{name}.{suffix}" for name in ours for suffix in tables[name].formats):
        if file not in present:
            (folder / file).unlink(missing_ok=True)
    metadata = {"audit": spec.audit, "config_hash": spec.config_hash, "confidence": spec.confidence}
    for name, kind in tables_of(spec, private).items():
        frame = kind(results, findings)
        write_text(folder / f"{name}.csv", to_csv(frame))
        if kind.layout:
            write_table(folder / f"{name}.parquet", frame.to_arrow(), name, len(frame), metadata)
            write_text(folder / f"{name}.tex", latex(kind.layout(results, findings, frame), kind.long))


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


def identity(setting: Setting) -> dict[str, str]:
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


def setting_cells(setting: Setting) -> list[Cell | str]:
    """Return the cells of `SETTING_COLUMNS`, with the setting's labels."""
    epsilon = "∞" if setting.epsilon == "inf" else setting.reported_epsilon
    return [setting.dataset_name, setting.architecture_name, setting.label or setting.mechanism_name, epsilon]


def setting_columns(settings: Sequence[Setting]) -> list[tuple[Column, Any]]:
    """Print the columns that identify a setting, with its labels."""
    cells = {tuple(identity(one).values()): setting_cells(one) for one in settings}

    def cell(place: int, row: Mapping[str, Any]) -> Cell | str:
        values = tuple(row[name] for name in SETTING)
        return cells[values][place] if values in cells else str(values[place])

    return [(column, partial(cell, place)) for place, column in enumerate(SETTING_COLUMNS)]


ATTACK_COLUMNS = [printed("Attack", "attack"), printed("Signal", "signal"), printed("Likelihood", "likelihood")]


def spread_column(title: str, name: str, missing: str = "–") -> tuple[Column, Any]:
    """Print mean ± standard deviation."""
    mean, sd = f"{name}_mean", f"{name}_sd"
    return Column(title), lambda row: missing if row[mean] is None else spread(row[mean], row[sd])


def interval_column(prefix: str = "") -> tuple[Column, Any]:
    """Print the interval of the column before in brackets; nothing for a single target."""
    low, high = f"{prefix}low", f"{prefix}high"
    return Column("", number=False), lambda row: "" if row[low] is None else f"[{fixed(row[low])}, {fixed(row[high])}]"


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
