"""Intervals of a policy's criteria: how often a setting that is exactly at its limit passes, and what each interval is of."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import polars as pl
import pytest

from mia_audit.evaluation.files import Scored
from mia_audit.evaluation.intervals import OverTargets
from mia_audit.evaluation.metrics import clopper_pearson
from mia_audit.evaluation.selection import after_selection
from mia_audit.report.gate import (
    Interval,
    Verdict,
    at_least,
    at_most,
    groups_of,
    largest,
    strongest,
    worst_group,
)

AUDITS, RECORDS, MODELS, FPR = 300, 100, 9, 0.1


@dataclass(frozen=True)
class Simulated:
    """Metrics of one attack on many audits: values [A, K], and without each model [A, K, K]."""

    auc: np.ndarray
    tpr: np.ndarray


def _metrics(score: np.ndarray, member: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return AUC and TPR at FPR of scores [A, N, K], half of which are members'."""
    ranked = np.take_along_axis(member, np.argsort(score, axis=1), axis=1)
    half = RECORDS // 2
    ranks = (ranked * np.arange(1, RECORDS + 1)[:, None]).sum(axis=1)
    auc = (ranks - half * (half + 1) / 2) / half**2
    above = np.cumsum(~ranked[:, ::-1], axis=1) <= int(FPR * half)
    return auc, (above & ranked[:, ::-1]).sum(axis=1) / half


def simulated(random: np.random.Generator, audits: int, leak: float) -> Simulated:
    """Audit Gaussian signals that members have shifted, by the gap to the mean of the other models that left the record out."""
    shape = (audits, RECORDS, MODELS)
    member = np.argsort(random.random(shape, dtype=np.float32), axis=1) < RECORDS // 2
    shift = leak * np.exp(0.5 * random.normal(size=(audits, RECORDS, 1)))
    signal = random.normal(size=shape) + shift * member
    out = ~member
    total, count = ((out * values).sum(axis=2, keepdims=True) for values in (signal, np.ones_like(signal)))
    total, count = total - out * signal, count - out  # without the target itself
    auc, tpr = (np.empty((audits, MODELS, MODELS)) for _ in range(2))
    for left in range(MODELS):
        gone, one = (out * signal)[..., left : left + 1], out[..., left : left + 1]
        means = (total - gone) / np.maximum(count - one, 1)
        auc[..., left], tpr[..., left] = _metrics(signal - means, member)
    places = np.arange(MODELS)
    auc[:, places, places], tpr[:, places, places] = _metrics(signal - total / np.maximum(count, 1), member)
    return Simulated(auc, tpr)


def _over(attack: Simulated, metric: str, audit: int) -> OverTargets:
    half, auc, values = RECORDS / 2, attack.auc[audit], getattr(attack, metric)[audit]
    silence = OverTargets(np.diagonal(auc), auc, half, half).silent()
    return OverTargets(np.diagonal(values), values, half, half, silence, metric == "auc")


@pytest.fixture(scope="module")
def audits() -> list[list[Simulated]]:
    """Two attacks of the same strength on each audit, in parts."""
    random = np.random.default_rng(3)
    return [[simulated(random, AUDITS // 20, 0.4) for _ in range(2)] for _ in range(20)]


@pytest.mark.parametrize("metric", ["auc", "tpr"])
def test_a_setting_at_its_limit_passes_in_at_most_one_audit_of_twenty(
    audits: list[list[Simulated]], metric: str
) -> None:
    values = np.concatenate([getattr(attack, metric) for part in audits for attack in part])
    limit = float(np.diagonal(values, axis1=1, axis2=2).mean())

    def verdicts() -> Iterator[Verdict]:
        for part in audits:
            for place in range(len(part[0].auc)):
                measured = [("", _over(attack, metric, place)) for attack in part]
                yield at_most(largest(measured, 0.95, metric == "tpr"), limit)

    found = list(verdicts())
    assert len(found) == AUDITS
    assert found.count(Verdict.PASS) <= 0.05 * AUDITS
    assert found.count(Verdict.FAIL) <= 0.05 * AUDITS


@pytest.mark.parametrize(
    ("low", "high", "upper", "lower"),
    [
        (0.5, 0.6, Verdict.PASS, Verdict.FAIL),
        (0.7, 0.8, Verdict.FAIL, Verdict.PASS),
        (0.6, 0.8, Verdict.CANNOT_TELL, Verdict.CANNOT_TELL),
        (math.nan, 0.5, Verdict.CANNOT_TELL, Verdict.CANNOT_TELL),
        (0.5, math.nan, Verdict.CANNOT_TELL, Verdict.CANNOT_TELL),
    ],
)
def test_an_interval_against_a_limit(low: float, high: float, upper: Verdict, lower: Verdict) -> None:
    assert at_most(Interval(0.65, low, high), 0.65) == upper
    assert at_least(Interval(0.65, low, high), 0.65) == lower


def test_the_largest_of_several_has_the_largest_upper_limit_and_the_lower_one_after_selection() -> None:
    steady, uneven = np.array([0.60, 0.62, 0.61, 0.60]), np.array([0.50, 0.65, 0.60, 0.62])
    overs = [OverTargets(steady), OverTargets(uneven)]
    found, chosen = largest([("a", overs[0]), ("b", overs[1])], 0.95, False), after_selection(overs, 0.95)
    assert (found.value, found.low, found.of) == (chosen.mean, chosen.low, "a")
    assert found.low < overs[0].interval(0.95)[0]
    assert found.high == overs[1].interval(0.95)[1] > chosen.high
    assert math.isnan(largest([("a", overs[0]), ("one", OverTargets(np.array([0.5])))], 0.95, False).high)


def test_a_rate_that_is_zero_in_every_model_has_an_upper_limit() -> None:
    found = largest([("", OverTargets(np.zeros(8), None, 50, 50))], 0.95, True)
    assert (found.low, found.high) == (0.0, clopper_pearson(0, 400, 0.95)[1])
    assert found.high > 0.005


def _table(values: dict[str, list[float | None]], null: bool = False) -> pl.DataFrame:
    rows = [
        {"attack": name, "signal": "loss", "likelihood": "none", "null_control": null, "target": target, "auc": 0.5}
        | {"members": 50, "non_members": 50, "tpr_at_fpr_0.1": value}
        for name, listed in values.items()
        for target, value in enumerate(listed)
    ]
    return pl.DataFrame(rows)


def test_the_strongest_attack_is_judged_and_null_controls_are_not() -> None:
    weak, strong = [0.1, 0.12, 0.11, 0.1], [0.3, 0.32, 0.31, 0.3]
    table = pl.concat([_table({"weak": weak, "strong": strong}), _table({"null": [0.9] * 4}, null=True)])
    found = strongest(table, "tpr_at_fpr_0.1", 0.95)
    assert found.value == pytest.approx(np.mean(strong), abs=0.002)
    assert found.of.startswith("strong on")
    alone = strongest(_table({"strong": strong}), "tpr_at_fpr_0.1", 0.95)
    assert found.high == alone.high
    assert found.low < alone.low  # corrected for two attacks


def test_a_rate_that_some_model_cannot_resolve_is_unknown() -> None:
    found = strongest(_table({"weak": [0.1, None, 0.1, 0.1]}), "tpr_at_fpr_0.1", 0.95)
    assert math.isnan(found.value)
    assert math.isnan(found.high)


def _scored(random: np.random.Generator, shift: np.ndarray) -> Scored:
    member = np.stack([random.permutation(len(shift)) < len(shift) // 2 for _ in range(12)], axis=1)
    score = random.normal(size=member.shape) + shift[:, None] * member
    score = score.astype(np.float32)
    return Scored(("threshold", "loss", "none", False), np.arange(12), np.arange(len(shift)), member, score)


def test_the_worst_group_is_found() -> None:
    label = np.repeat([0, 1, 2], [100, 90, 10])
    scored = _scored(np.random.default_rng(0), 3.0 * (label == 1))
    masks = groups_of({"label": label})
    assert list(masks) == ["label 0", "label 1"]  # ten records are too few
    found = worst_group([scored], masks, "auc", 0.95)
    assert found.of.endswith("label 1")
    assert found.value == pytest.approx(0.983, abs=0.01)  # Φ(3/√2)
    assert found.low < found.value < found.high
    assert worst_group([scored], masks, "tpr_at_fpr_0.1", 0.95).value > 0.9
    assert math.isnan(worst_group([scored], masks, "tpr_at_fpr_0.001", 0.95).value)
