"""The registry of tables: every file of this package registers one or more, each with condition, data and layout.

These files do not import polars at the top, because the workflow imports them for the names of an audit's tables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mia_audit.registry import Registry
from mia_audit.report.tables.layout import latex
from mia_audit.sanitise import csv

if TYPE_CHECKING:
    import polars as pl

    from mia_audit.report.data.findings import Findings
    from mia_audit.report.data.results import Results
    from mia_audit.report.data.spec import Spec
    from mia_audit.report.tables.layout import Layout

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


tables: Registry[TableKind] = Registry("table", "mia_audit.report.tables", "_", eager=True)


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
