from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from mia_audit.attacks.engine.likelihood import likelihood_ratio
from mia_audit.errors import UserError
from mia_audit.evaluation.files import summarise
from mia_audit.evaluation.metrics import auc
from mia_audit.privacy.accounting import epsilon_of_person, noise_multiplier_for
from mia_audit.report.findings import Leak, accuracy_difference, chosen, difference, estimate, reference
from mia_audit.report.opened import _worth, by_channel, candidates, find, headline_fpr, leaks, lower_bound, null_control
from mia_audit.signals.name import read_signal


def leak(auc, tried=1, signal="confidence", targets=None, sizes=(np.nan, np.nan)):
    auc = np.asarray(auc, dtype=float)
    targets = np.arange(len(auc)) if targets is None else np.asarray(targets)
    return Leak("loss-lira", signal, "pooled", targets, auc, auc / 10, tried, 0.95, {}, sizes)


@settings(deadline=None, derandomize=True, max_examples=50)
@given(st.lists(st.floats(0, 1), min_size=2, max_size=30), st.sampled_from([0.9, 0.95, 0.99]), st.integers(1, 50))
def test_the_interval_is_students_with_bonferronis_level(values, confidence, comparisons):
    found = estimate(values, confidence, comparisons)
    level = 1 - (1 - confidence) / comparisons
    if np.ptp(values) > 1e-9:
        low, high = stats.t.interval(level, len(values) - 1, loc=np.mean(values), scale=stats.sem(values))
        assert (found.low, found.high) == pytest.approx((low, high), abs=1e-9)
    assert found.mean == pytest.approx(np.mean(values))


def test_one_target_has_no_interval_and_no_leak():
    found = estimate([0.9], 0.95)
    assert found.mean == 0.9 and np.isnan([found.sd, found.low, found.high]).all()
    assert not found.excludes(0.5)
    assert not leak([0.9]).beats_guessing


def test_the_strongest_of_many_useless_attacks_rarely_counts_as_a_leak():
    """64 attacks at chance, 17 targets: uncorrected, the best one would pass in most audits."""
    random = np.random.default_rng(0)
    naive, corrected = 0, 0
    for _ in range(100):
        attacks = 0.5 + 0.02 * random.normal(size=(64, 17))
        best = chosen([leak(one, tried=64) for one in attacks])
        naive += estimate(best.auc, 0.95).low > 0.5
        corrected += best.beats_guessing
    assert naive > 50
    assert corrected <= 10


def test_a_difference_is_corrected_for_the_choice_of_both():
    """The strongest of 64 equal attacks looks stronger than one of them, and nothing differs from itself."""
    random = np.random.default_rng(5)
    naive, gaps = [], []
    for _ in range(40):
        shared = random.normal(size=65) / np.sqrt(7)  # as much as without a leak
        attacks = [leak(0.6 + 0.02 * (random.normal(size=9) + one), signal=f"s{k}") for k, one in enumerate(shared)]
        best = chosen(attacks[:64])
        naive.append(np.mean(best.auc - attacks[64].auc))
        gaps.append(difference(best, attacks[64]))
        assert gaps[-1].mean == pytest.approx(best.auc_estimate.mean - attacks[64].auc_estimate.mean)
        assert (gaps[-1].low + gaps[-1].high) / 2 == pytest.approx(gaps[-1].mean)
    assert np.mean(naive) > 0.015 > 3 * abs(np.mean([gap.mean for gap in gaps]))
    assert difference(chosen(attacks), replace(best, rivals=())).mean == 0


def test_what_was_chosen_twice_is_corrected_for_all_among_which_it_was():
    random = np.random.default_rng(6)
    attacks = [leak(0.55 + 0.02 * random.normal(size=9)) for _ in range(32)]
    parts = [chosen(attacks[:16]), chosen(attacks[16:])]
    assert chosen(parts).auc_estimate == chosen(attacks).auc_estimate
    assert chosen(parts).auc_estimate.mean < max(part.auc_estimate.mean for part in parts)


def test_noise_rarely_counts_as_a_leak_though_targets_err_together():
    """The mean over targets that score one another varies more than their spread says."""
    found = naive = 0
    for seed in range(200):
        random = np.random.default_rng(seed)
        member = np.stack([random.permutation(100) < 50 for _ in range(17)], axis=1)
        scores = likelihood_ratio(random.normal(size=member.shape), member)
        scored = leak([auc(s, m) for s, m in zip(scores.T, member.T, strict=True)], sizes=(50, 50))
        found += scored.beats_guessing
        naive += estimate(scored.auc, 0.95).low > 0.5
    assert 0 < found <= 12
    assert naive > 10  # at a level of 2.5 % a side


def test_differences_are_paired_over_shared_targets():
    random = np.random.default_rng(1)
    first, second = random.uniform(size=9), random.uniform(size=9)
    found = difference(leak(first, targets=range(9)), leak(second, targets=range(2, 11)))
    paired = stats.ttest_rel(first[2:], second[:7])
    low, high = paired.confidence_interval(0.95)
    assert found.targets == 7
    mean, widening = np.mean(first[2:] - second[:7]), np.sqrt(2 * 6 / 5)  # no further scorings say what they share
    expected = (mean, mean + widening * (low - mean), mean + widening * (high - mean))
    assert (found.mean, found.low, found.high) == pytest.approx(expected)


def metrics(rows):
    names = ["attack", "signal", "likelihood", "null_control", "target", "auc", "tpr_at_fpr_0.01", "tpr_at_fpr_0.1"]
    return pl.DataFrame(rows, schema=names, orient="row")


def test_each_attack_is_read_with_the_headlines_variance_or_its_own_first():
    table = metrics(
        [
            ("loss-lira", "confidence", "shrunk", False, 0, 0.9, 0.1, 0.2),
            ("loss-lira", "confidence", "pooled", False, 0, 0.6, 0.1, 0.2),
            ("joint-lrt", "loss+confidence", "shrunk", False, 0, 0.7, 0.1, 0.2),
            ("threshold", "loss", "none", False, 0, 0.55, 0.1, 0.2),
            ("threshold", "loss", "none", True, 0, 0.99, 0.1, 0.2),
            ("threshold", "ixg_l1", "none", False, 0, 0.98, 0.1, 0.2),
            ("offline", "confidence", "pooled", False, 0, None, None, None),
        ]
    )
    found = leaks(table, "outputs", "pooled", 0.01, 0.95)
    assert [(one.attack, one.likelihood) for one in found] == [
        ("joint-lrt", "shrunk"),
        ("loss-lira", "pooled"),
        ("threshold", "none"),
    ]
    assert {one.tried for one in found} == {3}
    assert candidates(table, "explanations", "pooled")["auc"].to_list() == [0.98]


def test_the_headline_fpr_is_the_smallest_that_all_targets_resolve():
    resolved = metrics([("a", "loss", "none", False, 0, 0.6, 0.1, 0.2)])
    unresolved = metrics(
        [("a", "loss", "none", False, 0, 0.6, 0.1, 0.2), ("a", "loss", "none", False, 1, 0.6, None, 0.2)]
    )
    unscored = metrics(
        [("a", "loss", "none", False, 0, 0.6, 0.1, 0.2), ("b", "loss", "none", False, 0, None, None, None)]
    )
    assert headline_fpr([resolved]) == 0.01
    assert headline_fpr([resolved, unresolved]) == 0.1
    assert headline_fpr([resolved, unscored]) == 0.01
    assert headline_fpr([resolved.with_columns(pl.lit(None, pl.Float64).alias("tpr_at_fpr_0.1")), unresolved]) is None


def test_the_null_control_tells_chance_from_a_broken_audit():
    random = np.random.default_rng(2)
    honest, broken = 0.5 + 0.01 * random.normal(size=20), 0.53 + 0.01 * random.normal(size=20)
    strongest = {"outputs": leak(np.full(20, 0.7))}
    for values, sound in ((honest, True), (broken, False)):
        rows = [("loss-lira", "confidence", "pooled", True, k, value, 0.1, 0.2) for k, value in enumerate(values)]
        found = null_control(metrics(rows), strongest, 0.95, comparisons=6)
        assert found.sound is sound
        assert found.intervals == 1 and found.strongest == pytest.approx(values.mean())
        assert found.headline["outputs"].mean == pytest.approx(values.mean())
    assert null_control(metrics(rows).filter(~pl.col("null_control")), strongest, 0.95, 1) is None


def test_the_null_control_has_the_intervals_of_the_summary():
    """Targets' errors go together there: intervals as if they were independent would accuse sound audits."""
    values = 0.5 + 0.01 * np.random.default_rng(3).normal(size=17)
    rows = [("loss-lira", "confidence", "pooled", True, k, value, 0.1, 0.2) for k, value in enumerate(values)]
    found = null_control(metrics(rows), {"outputs": leak(np.full(17, 0.7))}, 0.95, comparisons=1).headline["outputs"]
    counts = {"members": 600, "non_members": 600, "unscored": 0, "balanced_accuracy": 0.5}
    summary = summarise(metrics(rows).with_columns(**{k: pl.lit(v) for k, v in counts.items()})).row(0, named=True)
    assert (found.low, found.high) == pytest.approx((summary["auc_low"], summary["auc_high"]))


def test_what_the_small_audit_found(findings):
    none, weak, strong = findings.settings
    assert findings.fpr == 0.01
    assert none.strongest["outputs"].key == ("loss-lira", "confidence", "pooled")
    assert none.strongest["explanations"].key == ("l1-lrt", "ig_probability_l1", "pooled")
    assert none.strongest["outputs"].beats_guessing and weak.strongest["outputs"].beats_guessing
    assert not strong.strongest["outputs"].beats_guessing and not strong.strongest["explanations"].beats_guessing
    assert all(found.null.sound for found in findings.settings)
    assert reference(findings.settings) is none
    gap = accuracy_difference(none, strong, 0.95)
    assert gap.mean == pytest.approx(0.2, abs=0.02) and gap.low > 0


def test_findings_without_training(imported):
    (found,) = find(imported.results()).settings
    assert found.test_accuracy is None and found.shadows is None
    assert found.strongest["outputs"].beats_guessing
    assert accuracy_difference(found, found, 0.95) is None


def test_what_all_attacks_show_of_epsilon_is_at_each_settings_own_delta(findings, small):
    shown = [found.bound for found in findings.settings]
    assert shown[0].epsilon > shown[1].epsilon > shown[2].epsilon == 0
    assert {one.method for one in shown} == {"clopper-pearson"} and {one.attacks for one in shown} == {5}
    results = small.results()
    coins = replace(results.spec.settings[0], design="bernoulli", delta=1e-6)
    proved = lower_bound(results.metrics[0], coins, 0.95, 1e-5)
    assert (proved.method, proved.delta) == ("one-run", 1e-6) and proved.epsilon > 0


def test_metrics_of_an_earlier_version_are_named(findings, small):
    results = small.results()
    with pytest.raises(UserError, match="no column 'members_in_top_"):
        lower_bound(results.metrics[0].drop("members_in_top_0.001"), results.spec.settings[0], 0.95, 1e-5)


def test_whoever_reads_both_may_ignore_one(small):
    """A weak attack on both channels does not make both together leak less than the outputs alone."""
    metrics = small.results().metrics[0].filter(~pl.col("null_control"))
    joint = metrics.filter(pl.col("attack") == "threshold").with_columns(
        attack=pl.lit("shadow-classifier"),
        signal=pl.lit("loss+ixg_variance+ig_probability_l1+confidence"),
        auc=pl.lit(0.51),
    )
    found = by_channel(pl.concat([metrics, joint.select(metrics.columns)]), 0.01, "pooled", 0.95)
    strongest = {channel: listed[0] for channel, listed in found.items()}
    assert strongest["both"].key == strongest["outputs"].key
    assert strongest["both"].tried == strongest["outputs"].tried + strongest["explanations"].tried + 1
    assert found["both"][-1].attack == "shadow-classifier"
    assert read_signal(found["both"][-1].signal).label == "4 signals of outputs and explanations"
    assert "both" not in by_channel(metrics, 0.01, "pooled", 0.95)


def test_a_persons_guarantee_is_that_of_the_worst_model() -> None:
    """Training sets that Bernoulli draws differ in size: equal ε per record is not equal ε per person."""
    rates = [100 / size for size in (200, 170, 230)]
    models = [(noise_multiplier_for(4.0, rate, 15, 1e-5, "pld"), rate, 15) for rate in rates]
    table = pl.DataFrame(
        [dict(zip(("noise_multiplier", "sampling_rate", "steps"), one, strict=True), epsilon=4.0) for one in models]
    )
    setting: Any = SimpleNamespace(private=True, delta=1e-5, claimed=False)
    (two, five) = _worth(setting, table, np.array([5, 2, 1]))
    for worth in (two, five):
        each = [epsilon_of_person(*one, 1e-5, worth.records) for one in models]
        assert worth.epsilon == max(each) > min(each)
