"""Confidence intervals of the strongest attack, of its worst group, and of the most exposed record."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import polars as pl

from mia_audit.attacks.persons import NONE
from mia_audit.evaluation.files import Scored
from mia_audit.evaluation.intervals import OverTargets
from mia_audit.evaluation.metrics import clopper_pearson, metrics_of_columns
from mia_audit.report.gate.verdicts import Interval, largest
from mia_audit.signals.name import read_signal

FEWEST_RECORDS = 30
"""Smallest number of records in a group that is evaluated."""

UNKNOWN = Interval(math.nan, math.nan, math.nan)


def strongest(metrics: pl.DataFrame, column: str, confidence: float) -> Interval:
    """Return the interval of the largest mean of a metric over all attacks of a metrics table, null controls left out.

    Its upper limit is the largest of the attacks' upper limits at the level `confidence`, its lower limit the largest of
    their lower ones at Bonferroni's level for the number of attacks. NaN if some attack's metric is unknown.
    """
    keys = ["attack", "signal", "likelihood", *(name for name in ("aggregate",) if name in metrics.columns)]
    groups = list(metrics.filter(~pl.col("null_control") & pl.col("auc").is_not_null()).group_by(*keys))
    candidates = []
    for key, group in groups:
        if group[column].null_count():
            return UNKNOWN
        over = OverTargets.of(group, column, confidence)
        rate = column.startswith("tpr")
        candidates.append(over_targets(over, confidence, len(groups), rate, _attack(key)))
    return largest(candidates) if candidates else UNKNOWN


def over_targets(over: OverTargets, confidence: float, tried: int, rate: bool, of: str) -> Interval:
    """Return the interval of one metric over targets, its lower limit corrected for the `tried` metrics examined.

    The interval of a rate is at least as wide as if all targets' members were independent trials (Clopper and Pearson
    1934); an interval over targets alone would have width 0 for a rate that is 0 for all of them.
    """
    low, high = over.interval(confidence, tried)[0], over.interval(confidence)[1]
    trials = 0 if math.isnan(over.members) else round(over.members * over.count)
    if rate and trials:
        exact = round(over.mean * trials)
        low = min(low, clopper_pearson(exact, trials, 1 - (1 - confidence) / tried)[0])
        high = max(high, clopper_pearson(exact, trials, confidence)[1])
    return Interval(over.mean, _cut(low), _cut(high), of)


def _cut(end: float) -> float:
    return math.nan if math.isnan(end) else min(max(end, 0.0), 1.0)


def worst_group(
    scores: Sequence[Scored], groups: dict[str, np.ndarray], fpr: float | None, confidence: float
) -> Interval:
    """Return the interval of the largest AUC, or TPR at `fpr`, of any attack in any group.

    `groups` are masks of records [N] by name. Records are ranked within their group. NaN if some group cannot resolve the
    FPR, or if there is no group.
    """
    column = "auc" if fpr is None else f"tpr_at_fpr_{fpr:g}"
    tried = len(scores) * len(groups)
    candidates = []
    for scored in scores:
        for name, inside in groups.items():
            member = scored.member[inside]
            values = metrics_of_columns(scored.score[inside], member, [] if fpr is None else [fpr])[column]
            if np.isnan(values).any():
                return Interval(math.nan, math.nan, math.nan, name)
            members = float(member.sum(axis=0).mean())
            over = OverTargets(values, None, members, len(member) - members)
            of = f"{_attack(scored.key[:3])}, {name}"
            candidates.append(over_targets(over, confidence, tried, fpr is not None, of))
    return largest(candidates) if candidates else UNKNOWN


def groups_of(columns: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return masks of the records with each value of each column that at least `FEWEST_RECORDS` records have."""
    masks: dict[str, np.ndarray] = {}
    for name, values in columns.items():
        kinds, counts = np.unique(values, return_counts=True)
        masks |= {f"{name} {kind}": values == kind for kind in kinds[counts >= FEWEST_RECORDS]}
    return masks


def most_exposed(scores: Sequence[Scored], fpr: float, confidence: float) -> Interval:
    """Return the interval of the largest advantage on a record (person), over records and attacks.

    A model recognises a record if at most the share `fpr` of the records that it was not trained on score as high. The
    advantage is the share of models that recognise the record among those trained on it, minus the share among the
    others. The limits combine the Clopper–Pearson limits of both shares; the lower one is corrected for the number of
    records and attacks. NaN if a model cannot resolve the FPR.
    """
    best, tried = [], sum(len(scored.record) for scored in scores)
    for scored in scores:
        counts = _recognised(scored, fpr)
        if counts is None:
            return UNKNOWN
        unit = "record" if scored.aggregate == NONE else "person"
        rows, places = np.unique(counts, axis=0, return_index=True)
        for (hits, members, alarms, others), place in zip(rows.tolist(), places, strict=True):
            if not members or not others:
                continue
            value = hits / members - alarms / others
            low = _difference(hits, members, alarms, others, 1 - (1 - confidence) / tried)[0]
            high = _difference(hits, members, alarms, others, confidence)[1]
            of = f"{_attack(scored.key[:3])}, {unit} {scored.record[place]}: {hits} of {members}, false alarms {alarms} of {others}"
            best.append(Interval(value, low, high, of))
    return largest(best) if best else UNKNOWN


def _difference(hits: int, members: int, alarms: int, others: int, confidence: float) -> tuple[float, float]:
    """Return the limits of a difference of two shares, from limits of each share with half of the error probability."""
    inside, outside = (clopper_pearson(*pair, (1 + confidence) / 2) for pair in ((hits, members), (alarms, others)))
    return inside[0] - outside[1], inside[1] - outside[0]


def _recognised(scored: Scored, fpr: float) -> np.ndarray | None:
    """Return [N, 4]: how many of the models trained on a record recognise it and how many there are, then the same for the other models.

    None if some model cannot resolve the FPR.
    """
    counts = np.zeros((len(scored.record), 4), dtype=np.int64)
    for score, member in zip(scored.score.T, scored.member.T, strict=True):
        known = ~np.isnan(score)
        others = np.sort(score[known & ~member])[::-1]
        if fpr * len(others) < 1:
            return None
        above = score > others[int(fpr * len(others) + 1e-9)]
        inside, outside = known & member, known & ~member
        counts += np.stack([inside & above, inside, outside & above, outside], axis=1)
    return counts


def _attack(key: Sequence[object]) -> str:
    attack, signal = str(key[0]), str(key[1])
    return f"{attack} on {read_signal(signal).label}"
