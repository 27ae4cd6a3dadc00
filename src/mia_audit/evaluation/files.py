"""Read scores.parquet one run (one attack on all targets) at a time, and build the rows of metrics.parquet."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from mia_audit.attacks.io.parquet import stated_order
from mia_audit.attacks.persons import NONE, unit_of
from mia_audit.errors import UserError
from mia_audit.evaluation.called import SHARES, called_columns
from mia_audit.evaluation.intervals import WITHOUT
from mia_audit.evaluation.metrics import target_metrics
from mia_audit.storage import ROW_GROUPS, naming_damage, open_table, table_metadata
from mia_audit.storage.columns import column_parts, filled, repeated, stretches

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int, Shaped

    from mia_audit.evaluation.leave_outs import Columns

KEYS = ("attack", "signal", "likelihood", "null_control")
UNIT = ("unit", "aggregate")
"""The columns for the unit of scores and for how persons' scores are aggregated; tables from other sources may lack them."""


@dataclass(frozen=True)
class Scored:
    """The scores of one attack: `key` is (attack, signal, likelihood, null_control); matrices are [N records, K targets].

    If `aggregate` is not `none`, the scores are those of persons, and `record` numbers the persons.
    """

    key: tuple[str, str, str, bool]
    target: Int[np.ndarray, " K"]
    record: Int[np.ndarray, " N"]
    member: Bool[np.ndarray, "N K"]
    score: Float[np.ndarray, "N K"]
    aggregate: str = NONE
    person: Shaped[np.ndarray, " N"] | None = None
    """The id of every row's person, where persons are known."""


def read_scores(path: Path, *wanted: str, aggregate: str | None = None) -> Iterator[Scored]:
    """Yield the scores of every run in a scores.parquet, or those of one attack, signal and likelihood on the true membership.

    `aggregate` keeps only scores with that aggregate. UserError for a run without the same N records (or persons), in
    order, for each of its K targets.
    """
    file = open_table(path, "scores", [*KEYS, "target", "record", "member", "score"])
    if not stated_order(file):
        yield from (scored for scored in _foreign_scores(path, *wanted) if aggregate in (None, scored.aggregate))
        return
    row_groups = table_metadata(path, "scores").get(ROW_GROUPS)
    named = "person" in file.schema_arrow.names
    for indices in _of_runs(file.num_row_groups, row_groups):
        index = indices[0]
        with naming_damage(path, "scores"):
            keys = [[value] for value in row_groups[index][: len(KEYS)]] if row_groups else []
            keys = keys or [_values(file, index, name) for name in KEYS]
            if wanted and keys != [*([value] for value in wanted), [False]]:
                continue
            own = _aggregate(file, index, row_groups)
            if aggregate not in (None, own):
                continue
        rows = sum(file.metadata.row_group(one).num_rows for one in indices)
        if not rows:
            continue
        if any(len(values) != 1 for values in keys):
            raise UserError(
                f"{path}: row group {index} mixes attacks; expected one row group per attack, signal and likelihood"
            )
        with naming_damage(path, "scores"):
            parts = partial(column_parts, file, where=str(path), row_groups=indices)
            target, starts = stretches(parts("target"))
            shape = (len(target), rows // len(target))
            record = repeated(parts("record"), shape[1]) if own == NONE else np.arange(shape[1])
            person = repeated(parts("person"), shape[1]) if named else None
            if (
                not np.array_equal(starts, np.arange(shape[0]) * shape[1])
                or rows != shape[0] * shape[1]
                or record is None
                or (named and person is None)
            ):
                raise UserError(
                    f"{path}: row group {index} does not hold the same records for every target, in the same order"
                )
            if person is not None and person.dtype.kind == "O":
                person = person.astype(np.str_)
            attack, signal, likelihood, null_control = (values[0] for values in keys)
            yield Scored(
                (attack, signal, likelihood, null_control),
                target,
                record,
                filled(parts("member"), rows, np.bool_).reshape(shape).T,
                filled(parts("score"), rows, np.float32).reshape(shape).T,
                own,
                person,
            )


def _of_runs(count: int, row_groups: list[list[Any]] | None) -> Iterator[list[int]]:
    """Yield the row groups of every run: consecutive ones with the same description."""
    for _, indices in groupby(range(count), key=row_groups.__getitem__ if row_groups else None):
        yield list(indices)


def _foreign_scores(path: Path, *wanted: str) -> Iterator[Scored]:
    """Yield the scores of a table from another source, with rows in any order, one attack at a time."""
    whole = pl.scan_parquet(path).with_columns(
        *(pl.col(name).cast(pl.String) for name in KEYS[:3]),
        *(pl.col(name).cast(pl.Boolean) for name in ("null_control", "member")),
    )
    names = whole.collect_schema().names()
    given = pl.col("aggregate").cast(pl.String) if "aggregate" in names else pl.lit(NONE)
    whole = whole.with_columns(given.alias("aggregate"))
    for *own, aggregate in whole.select(*KEYS, "aggregate").unique(maintain_order=True).collect().iter_rows():
        key = tuple(own)
        if wanted and key != (*wanted, False):
            continue
        same = [pl.col(name).eq_missing(pl.lit(value)) for name, value in zip(KEYS, key, strict=True)]
        same.append(pl.col("aggregate").eq_missing(pl.lit(aggregate)))
        order = "record" if aggregate == NONE else "person"
        columns = ("target", order, "member", "score", *(["person"] if "person" in names and order == "record" else []))
        rows = whole.filter(*same).select(columns).sort("target", order).collect()
        for name in columns:
            if empty := rows[name].null_count():
                raise UserError(
                    f"{path}: column '{name}' has {empty} empty cells; expected NaN for a score that is not known"
                )
        if None in key:
            raise UserError(f"{path}: column '{KEYS[key.index(None)]}' has empty cells")
        target, record = rows["target"].unique(maintain_order=True).to_numpy(), rows[order].to_numpy()
        shape = (len(target), len(rows) // len(target))
        person = rows["person"].to_numpy()[: shape[1]] if "person" in columns else None
        if (
            len(rows) % len(target)
            or (record.reshape(shape) != record[: shape[1]]).any()
            or _repeats(record[: shape[1]])
        ):
            raise UserError(
                f"{path}: {' '.join(map(str, key[:3]))}: expected each record once, and the same records for every target"
            )
        yield Scored(
            key,
            target,
            record[: shape[1]] if order == "record" else np.arange(shape[1]),
            rows["member"].to_numpy().reshape(shape).T,
            rows["score"].to_numpy().astype(np.float32).reshape(shape).T,
            aggregate,
            person if person is None or person.dtype.kind != "O" else person.astype(np.str_),
        )


def _repeats(record: np.ndarray) -> bool:
    return len(np.unique(record)) < len(record)


def _aggregate(file: Any, index: int, row_groups: list[list[Any]] | None) -> str:
    """Return how a row group's scores were aggregated from those of records; `none` for scores of records."""
    if row_groups and len(row_groups[index]) > len(KEYS):
        return str(row_groups[index][-1])
    if "aggregate" not in file.schema_arrow.names:
        return NONE
    return str(next(iter(_values(file, index, "aggregate")), NONE))


def _values(file: Any, index: int, name: str) -> list[Any]:
    """List the values of a column of one row group."""
    values: list[Any] = file.read_row_group(index, columns=[name])[name].unique().to_pylist()
    return values


def metric_rows(
    scored: Scored, fprs: Sequence[float], confidence: float, without: Columns | None = None
) -> list[dict[str, Any]]:
    """Return one attack's rows of metrics.parquet, one per target; `without` are the columns from `without_each`."""
    key: dict[str, Any] = dict(zip(KEYS, scored.key, strict=True))
    key |= {"unit": unit_of(scored.aggregate), "aggregate": scored.aggregate}
    names = [f"{name}{WITHOUT}" for name in ("auc", "balanced_accuracy", *(f"tpr_at_fpr_{fpr:g}" for fpr in fprs))]
    return [
        key
        | {"target": int(target)}
        | target_metrics(scored.score[:, index], scored.member[:, index], fprs, confidence)
        | {name: without[name][index] if without and name in without else None for name in names}
        for index, target in enumerate(scored.target)
    ]


def metrics_table(rows: list[dict[str, Any]]) -> pl.DataFrame:
    """Return metrics.parquet from its rows, one per attack × signal × likelihood × null_control × unit × aggregate × target, in order."""
    called = [name for share in SHARES for name in called_columns(share)]
    counts = dict.fromkeys(("target", "members", "non_members", "unscored", *called), pl.Int32)
    kinds: dict[str, Any] = dict.fromkeys(KEYS + UNIT, pl.String) | counts | {"null_control": pl.Boolean}
    names = list(rows[0]) if rows else []
    kinds |= {name: pl.List(pl.Float64) for name in names if name.endswith(WITHOUT)}
    return pl.DataFrame(rows, schema={name: kinds.get(name, pl.Float64) for name in names})


def flat(metrics: pl.DataFrame) -> pl.DataFrame:
    """Return a metrics table without its columns of lists, which a CSV file cannot hold."""
    return metrics.select(name for name in metrics.columns if not name.endswith(WITHOUT))
