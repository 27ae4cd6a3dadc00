"""How many models: metrics with fewer other models, of the strongest attack and for each likelihood."""

import numpy as np
import polars as pl
import pytest

from mia_audit.attacks.catalogue import AttackRun
from mia_audit.evaluation import run
from mia_audit.evaluation.metrics import auc, log_grid
from mia_audit.evaluation.run import by_count, examined
from mia_audit.report.tables.attacks import models_level
from mia_audit.signals.name import Reading, read_signal


def draw(models=10, records=300):
    random = np.random.default_rng(0)
    member = random.random((records, models)) < 0.5
    values = 2 * random.normal(size=(records, 1)) + random.normal(size=member.shape) + member
    return [Reading(read_signal("confidence"), [values])], member


def test_more_models_find_more_and_all_of_them_what_the_audit_finds():
    readings, member = draw()
    attack = AttackRun("loss-lira", (readings[0].signal,), "hierarchical", null_control=False)
    rows = by_count(attack, readings, member, [0.1, 0.0001])
    assert [row["others"] for row in rows] == [4, 8, 9]
    assert rows[0]["auc_mean"] < rows[-1]["auc_mean"]
    assert rows[0]["auc_more"] == pytest.approx(rows[-1]["auc_mean"] - rows[0]["auc_mean"])
    assert rows[-1]["auc_more"] == 0 and "tpr_at_fpr_0.1_mean" in rows[0] and "tpr_at_fpr_0.0001_mean" not in rows[0]
    grid = log_grid(rows[0]["non_members"], len(rows[0]["roc"]))
    areas = [np.trapezoid(row["roc"], grid) for row in rows]
    assert areas == pytest.approx([row["auc_mean"] for row in rows], abs=0.03)
    from mia_audit.attacks.engine.ratios import RATIOS

    scores = RATIOS["hierarchical"](readings[0].values, member)
    whole = np.mean([auc(score, here) for score, here in zip(scores.T, member.T, strict=True)])
    assert rows[-1]["auc_mean"] == pytest.approx(whole, abs=1e-3)  # the models are in another order


def test_metrics_of_a_large_pool_are_those_of_a_part(monkeypatch):
    readings, member = draw()
    attack = AttackRun("loss-lira", (readings[0].signal,), "hierarchical", null_control=False)
    whole = by_count(attack, readings, member, [0.1])
    monkeypatch.setattr(run, "COUNTED", 200)
    some = by_count(attack, readings, member, [0.1])
    assert [row["others"] for row in some] == [row["others"] for row in whole]
    assert all(row["non_members"] < 200 for row in some)
    assert [row["auc_mean"] for row in some] == pytest.approx([row["auc_mean"] for row in whole], abs=0.03)
    assert [row["auc_mean"] for row in some] != [row["auc_mean"] for row in whole]


def test_a_design_that_needs_all_models_is_left_out():
    readings, _ = draw(models=8)
    member = np.random.default_rng(0).random((300, 8)).argsort(axis=1) < 4
    assert by_count(AttackRun("loss-lira", (readings[0].signal,), "pooled", False), readings, member, [0.1]) == []


def test_the_strongest_attack_is_examined_with_all_of_its_likelihoods():
    rows = [
        ("threshold", "loss", "none", False, 0.9),
        ("loss-lira", "confidence", "blend", False, 0.7),
        ("loss-lira", "confidence", "pooled", False, 0.6),
        ("l1-lrt", "ixg_l1", "blend", False, 0.65),
        ("l1-lrt", "ixg_l1", "blend", True, 0.8),
    ]
    names = ["attack", "signal", "likelihood", "null_control", "auc"]
    metrics = pl.DataFrame(rows, schema=names, orient="row")
    quick = [("loss-lira", "confidence", "hierarchical"), ("loss-lira", "confidence", "pooled")]
    assert examined(metrics) == quick  # blend takes long
    assert examined(metrics.filter(likelihood="none")) == []


def test_the_level_is_where_all_others_add_little_from_then_on():
    def rows(*gaps):
        return [{"others": 4 * 2**place, "auc_more": gap, "t_more": 0.0} for place, gap in enumerate(gaps)]

    assert models_level(rows(0.02, 0.004, 0.001, 0.0), "t") == 8
    assert models_level(rows(0.001, 0.02, 0.001, 0.0), "t") == 16
    assert models_level(rows(0.02, 0.01, 0.0), "t") is None and models_level([], "t") is None
