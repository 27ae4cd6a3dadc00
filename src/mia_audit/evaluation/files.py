"""scores.parquet in, metrics.parquet out: one row group, which is one attack on all targets, in memory at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from mia_audit.attacks.io.parquet import stated_order
from mia_audit.errors import UserError
from mia_audit.evaluation.called import SHARES, called_columns
from mia_audit.evaluation.intervals import WITHOUT
from mia_audit.evaluation.metrics import target_metrics
from mia_audit.storage import ROW_GROUPS, naming_damage, open_table, table_metadata

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int

    from mia_audit.evaluation.leave_outs import Columns

KEYS = ("attack", "signal", "likelihood", "null_control")


@dataclass(frozen=True)
class Scored:
    """The scores of one attack: `key` is (attack, signal, likelihood, null_control); matrices are [N records, K targets]."""

    key: tuple[str, str, str, bool]
    target: Int[np.ndarray, " K"]
    record: Int[np.ndarray, " N"]
    member: Bool[np.ndarray, "N K"]
    score: Float[np.ndarray, "N K"]


def read_scores(path: Path, *wanted: str) -> Iterator[Scored]:
    """Yield every row group of a scores.parquet, or those of one attack, signal and likelihood on the true membership.

    A row group that is not K targets × the same N records, in order, is a UserError.
    """
    file = open_table(path, "scores", [*KEYS, "target", "record", "member", "score"])
    if not stated_order(file):
        yield from _foreign_scores(path, *wanted)
        return
    told = table_metadata(path, "scores").get(ROW_GROUPS)
    for index in range(file.num_row_groups):
        with naming_damage(path, "scores"):
            keys = [[value] for value in told[index]] if told else [_values(file, index, name) for name in KEYS]
            if wanted and keys != [*([value] for value in wanted), [False]]:
                continue
            rows = file.read_row_group(index, columns=["target", "record", "member", "score"])
        if not len(rows):
            continue
        if any(len(values) != 1 for values in keys):
            raise UserError(
                f"{path}: row group {index} mixes attacks; expected one row group per attack, signal and likelihood"
            )
        target, record = rows["target"].to_numpy(), rows["record"].to_numpy()
        starts = np.flatnonzero(np.append(True, target[1:] != target[:-1]))
        shape = (len(starts), len(target) // len(starts))
        if (
            len(target) % shape[0]
            or (target.reshape(shape) != target[starts][:, None]).any()
            or (record.reshape(shape) != record[: shape[1]]).any()
        ):
            raise UserError(
                f"{path}: row group {index} does not hold the same records for every target, in the same order"
            )
        attack, signal, likelihood, null_control = (values[0] for values in keys)
        yield Scored(
            (attack, signal, likelihood, null_control),
            target[starts],
            record[: shape[1]],
            rows["member"].to_numpy().reshape(shape).T,
            rows["score"].to_numpy().reshape(shape).T,
        )


def _foreign_scores(path: Path, *wanted: str) -> Iterator[Scored]:
    """Yield the attacks of a table made elsewhere, whatever the order of its rows: one attack in memory at a time."""
    whole = pl.scan_parquet(path).with_columns(
        *(pl.col(name).cast(pl.String) for name in KEYS[:3]),
        *(pl.col(name).cast(pl.Boolean) for name in ("null_control", "member")),
    )
    for key in whole.select(KEYS).unique(maintain_order=True).collect().iter_rows():
        if wanted and key != (*wanted, False):
            continue
        same = [pl.col(name).eq_missing(pl.lit(value)) for name, value in zip(KEYS, key, strict=True)]
        columns = ("target", "record", "member", "score")
        rows = whole.filter(*same).select(columns).sort("target", "record").collect()
        for name in columns:
            if empty := rows[name].null_count():
                raise UserError(f"{path}: column '{name}' has {empty} empty cells; a score that is not known is NaN")
        if None in key:
            raise UserError(f"{path}: column '{KEYS[key.index(None)]}' has empty cells")
        target, record = rows["target"].unique(maintain_order=True).to_numpy(), rows["record"].to_numpy()
        shape = (len(target), len(rows) // len(target))
        if (
            len(rows) % len(target)
            or (record.reshape(shape) != record[: shape[1]]).any()
            or _repeats(record[: shape[1]])
        ):
            raise UserError(
                f"{path}: {' '.join(map(str, key[:3]))}: expected the same records for every target, once each"
            )
        yield Scored(
            key,
            target,
            record[: shape[1]],
            rows["member"].to_numpy().reshape(shape).T,
            rows["score"].to_numpy().astype(np.float32).reshape(shape).T,
        )


def _repeats(record: np.ndarray) -> bool:
    return len(np.unique(record)) < len(record)


def _values(file: Any, index: int, name: str) -> list[Any]:
    """List the values of a column of one row group."""
    values: list[Any] = file.read_row_group(index, columns=[name])[name].unique().to_pylist()
    return values


def metric_rows(
    scored: Scored, fprs: Sequence[float], confidence: float, without: Columns | None = None
) -> list[dict[str, Any]]:
    """Return one attack's rows of metrics.parquet, one per target; `without` are its further scorings, as of `without_each`."""
    key = dict(zip(KEYS, scored.key, strict=True))
    names = [f"{name}{WITHOUT}" for name in ("auc", "balanced_accuracy", *(f"tpr_at_fpr_{fpr:g}" for fpr in fprs))]
    return [
        key
        | {"target": int(target)}
        | target_metrics(scored.score[:, index], scored.member[:, index], fprs, confidence)
        | {name: without[name][index] if without and name in without else None for name in names}
        for index, target in enumerate(scored.target)
    ]


def metrics_table(rows: list[dict[str, Any]]) -> pl.DataFrame:
    """Return metrics.parquet from its rows, one per attack × signal × likelihood × null_control × target, in the order given."""
    called = [name for share in SHARES for name in called_columns(share)]
    counts = dict.fromkeys(("target", "members", "non_members", "unscored", *called), pl.Int32)
    kinds: dict[str, Any] = dict.fromkeys(KEYS, pl.String) | counts | {"null_control": pl.Boolean}
    names = list(rows[0]) if rows else []
    kinds |= {name: pl.List(pl.Float64) for name in names if name.endswith(WITHOUT)}
    return pl.DataFrame(rows, schema={name: kinds.get(name, pl.Float64) for name in names})


def flat(metrics: pl.DataFrame) -> pl.DataFrame:
    """Return a metrics table without its columns of lists, which a CSV file cannot hold."""
    return metrics.select(name for name in metrics.columns if not name.endswith(WITHOUT))
