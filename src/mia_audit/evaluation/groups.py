"""Metrics of every group of records or persons, at the group's own thresholds and at the common ones.

A common threshold has a given FPR over all records of a target. An attacker who does not distinguish groups uses such a
threshold. A group's own threshold has that FPR over the group's records. A group is compared with all other records of
the target.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from mia_audit.attacks.design import unit_of
from mia_audit.evaluation.files import FILE_KEYS, UNIT
from mia_audit.evaluation.intervals import WITHOUT, per_target
from mia_audit.evaluation.metrics import Ranking, auc_interval, called_above, clopper_pearson, metrics_of_columns

if TYPE_CHECKING:
    from jaxtyping import Bool, Float

    from mia_audit.attacks.design import Pairs
    from mia_audit.evaluation.files import Scored
    from mia_audit.pools.groups import Grouping

    Scores = Float[np.ndarray, "N C"]
    Member = Bool[np.ndarray, "N C"]

LEAST = 30
"""Smallest group, in records or persons, whose results are computed: smaller groups give noise, and reveal more about individuals."""

COUNTS = ("units", "target", "members", "non_members")
ACCURACIES = ("train_accuracy", "test_accuracy")


class Slices:
    """Groups of rows in an attack's scores, each with at least `LEAST` rows."""

    def __init__(self, groupings: Sequence[Grouping]) -> None:
        self.groups: list[tuple[str, str, Bool[np.ndarray, " N"]]] = [
            (one.name, label, inside)
            for one in groupings
            for place, label in enumerate(one.labels)
            if (inside := one.of == place).sum() >= LEAST
        ]
        """For every group, its column, its label and the mask of its rows."""
        self.small = {one.name: small for one in groupings if (small := _small(one))}
        """Number of groups per column that are left out as too small."""


def _small(grouping: Grouping) -> int:
    sizes = np.bincount(grouping.of, minlength=len(grouping.labels))
    return int(((sizes > 0) & (sizes < LEAST)).sum())


def group_rows(
    scored: Scored,
    slices: Slices,
    fprs: Sequence[float],
    confidence: float,
    further: tuple[Scores, Pairs] | None = None,
    accuracy: tuple[Float[np.ndarray, "N T"], Float[np.ndarray, "N T"]] | None = None,
) -> Iterator[dict[str, Any]]:
    """Yield one attack's rows of a setting's groups.parquet, one per group and target.

    `further` has the scores without single models, in the same unit, and their pairs (target, model left out).
    `accuracy` has, by unit and target, the share of the unit's records that are classified correctly, and their number.
    `auc` is that of the group, `rest_auc` that of all others; `tpr_at_fpr_x` is at the group's own threshold,
    `common_tpr_at_fpr_x` and `common_fpr_at_fpr_x` are at the common one. A single target has intervals over its
    records.
    """
    score, member = scored.score, scored.member
    key: dict[str, Any] = dict(zip(FILE_KEYS, scored.key, strict=True))
    key |= {"unit": unit_of(scored.aggregate), "aggregate": scored.aggregate}
    called = [called_above(score, member, fpr) for fpr in fprs]
    again = None
    if further is not None:
        scores, pairs = further
        scores = scores.astype(np.float32, copy=False)
        inside_pairs = member[:, pairs.target]
        again = scores, inside_pairs, [called_above(scores, inside_pairs, fpr) for fpr in fprs]
    for column, label, inside in slices.groups:
        row: dict[str, Any] = {}
        row |= _metrics(score, member, called, inside, fprs)
        if score.shape[1] == 1:
            row |= _over_records(
                score[:, 0],
                member[:, 0],
                [one[:, 0] for one in called],
                inside=inside,
                fprs=fprs,
                confidence=confidence,
            )
        if again is not None and further is not None:
            metrics = _metrics(*again, inside, fprs)
            row |= {
                f"{name}{WITHOUT}": per_target(values, further[1], score.shape[1]) for name, values in metrics.items()
            }
        if accuracy is not None:
            row |= _accuracies(*accuracy, member, inside)
        sizes = {
            "members": (member & inside[:, None] & ~np.isnan(score)).sum(axis=0),
            "non_members": (~member & inside[:, None] & ~np.isnan(score)).sum(axis=0),
        }
        for index, target in enumerate(scored.target):
            values = {name: _known(known[index]) for name, known in (sizes | row).items()}
            yield key | {"column": column, "group": label, "units": int(inside.sum()), "target": int(target)} | values


def _metrics(
    score: Scores, member: Member, called: Sequence[Bool[np.ndarray, "N C"]], inside: np.ndarray, fprs: Sequence[float]
) -> dict[str, np.ndarray]:
    """Return the metrics of a group, one value per column of scores; NaN for a metric that cannot be resolved."""
    own = metrics_of_columns(score[inside], member[inside], fprs)
    metrics = {"auc": own["auc"], "rest_auc": np.full(score.shape[1], np.nan)}
    if (~inside).sum() >= LEAST:
        metrics["rest_auc"] = metrics_of_columns(score[~inside], member[~inside], ())["auc"]
    known = ~np.isnan(score) & inside[:, None]
    members, others = (known & member).sum(axis=0), (known & ~member).sum(axis=0)
    whole = (~np.isnan(score) & ~member).sum(axis=0)
    for fpr, positive in zip(fprs, called, strict=True):
        resolved = (members > 0) & (others > 0) & (fpr * whole >= 1)
        metrics[f"tpr_at_fpr_{fpr:g}"] = own[f"tpr_at_fpr_{fpr:g}"]
        for name, side, count in (("tpr", member, members), ("fpr", ~member, others)):
            hits = (positive & known & side).sum(axis=0)
            metrics[f"common_{name}_at_fpr_{fpr:g}"] = np.where(resolved, hits / np.maximum(count, 1), np.nan)
    return metrics


def _over_records(
    score: np.ndarray,
    member: np.ndarray,
    called: Sequence[np.ndarray],
    inside: np.ndarray,
    fprs: Sequence[float],
    confidence: float,
) -> dict[str, list[float]]:
    """Return the intervals of a single target's metrics over its records, and the standard errors for tests against the rest."""
    columns: dict[str, list[float]] = {}
    for prefix, part in (("", inside), ("rest_", ~inside)):
        ranking = Ranking(score[part], member[part])
        if not ranking.members or not ranking.non_members:
            continue
        value, variance = ranking.auc()
        columns[f"{prefix}auc_error"] = [float(np.sqrt(variance))]
        if not prefix:
            ends = auc_interval(value, variance, ranking.members, ranking.non_members, confidence)
            columns |= {"auc_low": [ends[0]], "auc_high": [ends[1]]}
            for fpr, positives in zip(fprs, ranking.true_positives(np.array(fprs)), strict=True):
                if fpr * ranking.non_members >= 1:
                    ends = clopper_pearson(int(positives), ranking.members, confidence)
                    columns |= {f"tpr_at_fpr_{fpr:g}_low": [ends[0]], f"tpr_at_fpr_{fpr:g}_high": [ends[1]]}
    known = inside & member & ~np.isnan(score)
    for fpr, positive in zip(fprs, called, strict=True) if known.any() else ():
        ends = clopper_pearson(int((positive & known).sum()), int(known.sum()), confidence)
        columns |= {f"common_tpr_at_fpr_{fpr:g}_low": [ends[0]], f"common_tpr_at_fpr_{fpr:g}_high": [ends[1]]}
    return columns


def _accuracies(right: np.ndarray, records: np.ndarray, member: Member, inside: np.ndarray) -> dict[str, np.ndarray]:
    accuracies = {}
    for name, side in zip(ACCURACIES, (member, ~member), strict=True):
        part = side & inside[:, None]
        count = (records * part).sum(axis=0)
        accuracies[name] = np.where(count > 0, (right * records * part).sum(axis=0) / np.maximum(count, 1), np.nan)
    return accuracies


def _known(value: Any) -> Any:
    if value is None or isinstance(value, list):
        return value
    if isinstance(value, np.integer):
        return int(value)
    return None if np.isnan(value) else float(value)


def groups_table(rows: Sequence[dict[str, Any]]) -> pl.DataFrame:
    """Return a setting's groups.parquet from its rows."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    if not rows:
        names = [*FILE_KEYS, *UNIT, "column", "group", *COUNTS, "auc", "rest_auc"]
    kinds: dict[str, Any] = dict.fromkeys((*FILE_KEYS, *UNIT, "column", "group"), pl.String) | {
        "null_control": pl.Boolean
    }
    kinds |= dict.fromkeys(COUNTS, pl.Int32)
    kinds |= {name: pl.List(pl.Float64) for name in names if name.endswith(WITHOUT)}
    return pl.DataFrame(rows, schema={name: kinds.get(name, pl.Float64) for name in names})


def holm(p_values: Sequence[float]) -> Float[np.ndarray, " n"]:
    """Return p-values corrected for their number by Holm's step-down method (Holm 1979); NaN stays NaN and is not counted."""
    p = np.asarray(p_values, dtype=np.float64)
    adjusted = np.full(len(p), np.nan)
    known = np.flatnonzero(~np.isnan(p))
    order = known[np.argsort(p[known], kind="stable")]
    factors = np.arange(len(order), 0, -1)
    adjusted[order] = np.minimum(np.maximum.accumulate(p[order] * factors), 1.0)
    return adjusted
