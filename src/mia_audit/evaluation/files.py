"""Read scores.parquet one run (one attack on all targets) at a time, and build, read and summarise metrics.parquet."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from mia_audit.attacks.design import HEADLINE, PERSON, RECORD, RECORDS, unit_of
from mia_audit.attacks.io.parquet import stated_order
from mia_audit.errors import UserError
from mia_audit.evaluation.intervals import WITHOUT, OverTargets
from mia_audit.evaluation.metrics import SHARES, called_columns, target_metrics
from mia_audit.storage import ROW_GROUPS, naming_damage, open_table, table_metadata
from mia_audit.storage.tables import column_parts, filled, repeated, stretches

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int, Shaped

    from mia_audit.evaluation.intervals import Columns

FILE_KEYS = ("attack", "signal", "likelihood", "null_control")
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
    aggregate: str = RECORDS
    person: Shaped[np.ndarray, " N"] | None = None
    """The id of every row's person, where persons are known."""


def read_scores(path: Path, *wanted: str, aggregate: str | None = None) -> Iterator[Scored]:
    """Yield the scores of every run in a scores.parquet, or those of one attack, signal and likelihood on the true membership.

    `aggregate` keeps only scores with that aggregate. UserError for a run without the same N records (or persons), in
    order, for each of its K targets.
    """
    file = open_table(path, "scores", [*FILE_KEYS, "target", "record", "member", "score"])
    row_groups = table_metadata(path, "scores").get(ROW_GROUPS, [])
    if not stated_order(file) or len(row_groups) != file.num_row_groups:
        yield from (scored for scored in _foreign_scores(path, *wanted) if aggregate in (None, scored.aggregate))
        return
    named = "person" in file.schema_arrow.names
    # consecutive row groups with the same description belong to one run
    for described, group in groupby(range(len(row_groups)), key=row_groups.__getitem__):
        with naming_damage(path, "scores"):
            attack, signal, likelihood, null_control, _, own = described
            indices = list(group)
            rows = sum(file.metadata.row_group(one).num_rows for one in indices)
        other = wanted and (attack, signal, likelihood, null_control) != (*wanted, False)
        if other or aggregate not in (None, own) or not rows:
            continue
        with naming_damage(path, "scores"):
            parts = partial(column_parts, file, where=str(path), row_groups=indices)
            target, starts = stretches(parts("target"))
            shape = (len(target), rows // len(target))
            record = repeated(parts("record"), shape[1]) if own == RECORDS else np.arange(shape[1])
            person = repeated(parts("person"), shape[1]) if named else None
            if (
                not np.array_equal(starts, np.arange(shape[0]) * shape[1])
                or rows != shape[0] * shape[1]
                or record is None
                or (named and person is None)
            ):
                raise UserError(
                    f"{path}: row group {indices[0]} does not hold the same records for every target, in the same order"
                )
            if person is not None and person.dtype.kind == "O":
                person = person.astype(np.str_)
            yield Scored(
                key=(attack, signal, likelihood, null_control),
                target=target,
                record=record,
                member=filled(parts("member"), rows, np.bool_).reshape(shape).T,
                score=filled(parts("score"), rows, np.float32).reshape(shape).T,
                aggregate=own,
                person=person,
            )


def _foreign_scores(path: Path, *wanted: str) -> Iterator[Scored]:
    """Yield the scores of a table from another source, with rows in any order, one attack at a time."""
    whole = pl.scan_parquet(path).with_columns(
        *(pl.col(name).cast(pl.String) for name in FILE_KEYS[:3]),
        *(pl.col(name).cast(pl.Boolean) for name in ("null_control", "member")),
    )
    names = whole.collect_schema().names()
    given = pl.col("aggregate").cast(pl.String) if "aggregate" in names else pl.lit(RECORDS)
    whole = whole.with_columns(given.alias("aggregate"))
    for *own, aggregate in whole.select(*FILE_KEYS, "aggregate").unique(maintain_order=True).collect().iter_rows():
        key = tuple(own)
        if wanted and key != (*wanted, False):
            continue
        same = [pl.col(name).eq_missing(pl.lit(value)) for name, value in zip(FILE_KEYS, key, strict=True)]
        same.append(pl.col("aggregate").eq_missing(pl.lit(aggregate)))
        order = "record" if aggregate == RECORDS else "person"
        columns = ("target", order, "member", "score", *(["person"] if "person" in names and order == "record" else []))
        rows = whole.filter(*same).select(columns).sort("target", order).collect()
        for name in columns:
            if empty := rows[name].null_count():
                raise UserError(
                    f"{path}: column '{name}' has {empty} empty cells; expected NaN for a score that is not known"
                )
        if None in key:
            raise UserError(f"{path}: column '{FILE_KEYS[key.index(None)]}' has empty cells")
        target, record = rows["target"].unique(maintain_order=True).to_numpy(), rows[order].to_numpy()
        shape = (len(target), len(rows) // len(target))
        person = rows["person"].to_numpy()[: shape[1]] if "person" in columns else None
        if (
            len(rows) % len(target)
            or (record.reshape(shape) != record[: shape[1]]).any()
            or len(np.unique(record[: shape[1]])) < shape[1]
        ):
            raise UserError(
                f"{path}: {' '.join(map(str, key[:3]))}: expected each record once, and the same records for every target"
            )
        yield Scored(
            key=key,
            target=target,
            record=record[: shape[1]] if order == "record" else np.arange(shape[1]),
            member=rows["member"].to_numpy().reshape(shape).T,
            score=rows["score"].to_numpy().astype(np.float32).reshape(shape).T,
            aggregate=aggregate,
            person=person if person is None or person.dtype.kind != "O" else person.astype(np.str_),
        )


def metric_rows(
    scored: Scored, fprs: Sequence[float], confidence: float, without: Columns | None = None
) -> list[dict[str, Any]]:
    """Return one attack's rows of metrics.parquet, one per target; `without` are the columns from `metrics_without`."""
    key: dict[str, Any] = dict(zip(FILE_KEYS, scored.key, strict=True))
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
    kinds: dict[str, Any] = dict.fromkeys(FILE_KEYS + UNIT, pl.String) | counts | {"null_control": pl.Boolean}
    names = list(rows[0]) if rows else []
    kinds |= {name: pl.List(pl.Float64) for name in names if name.endswith(WITHOUT)}
    return pl.DataFrame(rows, schema={name: kinds.get(name, pl.Float64) for name in names})


def flat(metrics: pl.DataFrame) -> pl.DataFrame:
    """Return a metrics table without its columns of lists, which a CSV file cannot hold."""
    return metrics.select(name for name in metrics.columns if not name.endswith(WITHOUT))


KEYS = ("attack", "signal", "likelihood", "null_control", "unit", "aggregate")
"""Columns that identify an attack on a setting."""


def with_units(metrics: pl.DataFrame) -> pl.DataFrame:
    """Return a metrics table with the columns unit and aggregate; a table that lacks them has the metrics of records."""
    absent = {"unit": RECORD, "aggregate": RECORDS}
    return metrics.with_columns(
        pl.lit(value).alias(name) for name, value in absent.items() if name not in metrics.columns
    )


def of_aggregate(metrics: pl.DataFrame, aggregate: str) -> pl.DataFrame:
    """Return the rows of one aggregate: `none` for records."""
    return with_units(metrics).filter(pl.col("aggregate") == aggregate)


def of_drawn_unit(metrics: pl.DataFrame) -> pl.DataFrame:
    """Return the rows of persons if there are any, else those of records: the unit for which membership was drawn.

    These units are independent of each other. Records of one person are not independent, so no bound may count them as
    trials.
    """
    metrics = with_units(metrics)
    persons = metrics.filter(pl.col("unit") == PERSON)
    return persons if len(persons) else metrics


def headline_unit(metrics: pl.DataFrame) -> tuple[str, pl.DataFrame]:
    """Return a setting's headline aggregate and its rows: those of persons if membership was drawn by person."""
    drawn = of_drawn_unit(metrics)
    aggregate = HEADLINE if PERSON in set(drawn["unit"]) else RECORDS
    return aggregate, of_aggregate(metrics, aggregate)


def summarised(metrics: pl.DataFrame) -> list[str]:
    """List the metrics to summarise: `auc`, `balanced_accuracy` and every `tpr_at_fpr_{x}`, without their intervals' columns."""
    names = ["auc", "balanced_accuracy", *(name for name in metrics.columns if name.startswith("tpr_at_fpr_"))]
    return [name for name in names if not name.endswith(("_low", "_high", WITHOUT))]


def summarise(metrics: pl.DataFrame, confidence: float = 0.95) -> pl.DataFrame:
    """Summarise `metrics` (one row per attack × signal × likelihood × null_control × target) over targets.

    Return a row per attack × signal × likelihood × null_control, in the order of their first appearance. It has the
    number of `targets` and the means of `members`, `non_members` and `unscored`. Every metric m of `summarised` has the
    columns m_mean and m_sd (n − 1), the interval of the mean, m_low and m_high, and the prediction interval of a
    further target, m_future_low and m_future_high. All are clipped to [0, 1] (`OverTargets`). `p_above_guessing` is the
    one-sided p of an AUC above ½. A metric that cannot be resolved for some target is null. For a single target the sd
    is null and the interval is the one over its records. p is null for records if membership was drawn by person.
    """
    names = summarised(metrics)
    metrics = with_units(metrics)
    drawn = set(of_drawn_unit(metrics)["unit"])
    rows = []
    for key, group in metrics.group_by(*KEYS, maintain_order=True):
        over = {name: OverTargets.from_metrics(group, name, confidence) for name in names}
        rows.append(
            dict(zip(KEYS, key, strict=True))
            | {"targets": len(group)}
            | {name: group[name].mean() for name in ("members", "non_members", "unscored")}
            | {f"{name}_{part}": value for name in names for part, value in _parts(over[name], len(group), confidence)}
            | {"p_above_guessing": _known(over["auc"].above_guessing()) if key[4] in drawn else None}
        )
    kinds: dict[str, Any] = dict.fromkeys(KEYS, pl.String) | {"null_control": pl.Boolean, "targets": pl.Int32}
    columns = ["members", "non_members", "unscored", *(f"{name}_{part}" for name in names for part in PARTS)]
    return pl.DataFrame(rows, schema=kinds | dict.fromkeys([*columns, "p_above_guessing"], pl.Float64))


PARTS = ("mean", "sd", "low", "high", "future_low", "future_high")


def _parts(over: OverTargets, targets: int, confidence: float) -> Iterator[tuple[str, float | None]]:
    """Yield the columns of a metric; all are null if some target does not resolve it."""
    if over.count < targets:
        yield from dict.fromkeys(PARTS).items()
        return
    ends = (*over.interval(confidence), *over.future(confidence))
    yield from zip(PARTS, (over.mean, _known(over.sd), *(_cut(end) for end in ends)), strict=True)


def _cut(value: float) -> float | None:
    return None if math.isnan(value) else min(max(value, 0.0), 1.0)


def _known(value: float) -> float | None:
    return None if math.isnan(value) else value
