"""Intervals of means over targets against their formula, by simulation, and after the choice of the strongest attack."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from scipy import stats

from mia_audit.attacks.catalogue import attacks, plan, scores_of
from mia_audit.evaluation import intervals
from mia_audit.evaluation.files import Scored, flat, metric_rows, metrics_table
from mia_audit.evaluation.intervals import OverTargets, without_each
from mia_audit.evaluation.metrics import target_metrics
from mia_audit.evaluation.selection import after_selection, selection_errors
from mia_audit.signals.name import Reading, read_signal


def loop(values, without):
    """The formula of METHODS in loops: c from losses d[t, s] less their mean over s."""
    count = len(values)
    loss = [[values[t] - without[t][s] if s != t else 0.0 for s in range(count)] for t in range(count)]
    centred = [[loss[t][s] - sum(loss[t]) / (count - 1) for s in range(count)] for t in range(count)]
    pairs = [centred[t][s] * centred[s][t] for t in range(count) for s in range(count) if s != t]
    factor = (count - 1) / (count - 2)  # every model was left out
    return factor**2 * (count - 2) / (count - 1) * np.mean(pairs)


def draw(seed, models, leak, records=200, design="half"):
    random = np.random.default_rng([seed, models])
    if design == "pairs":
        first = np.stack([random.permutation(records) < records // 2 for _ in range(models // 2)], axis=1)
        member = np.stack([first, ~first], axis=2).reshape(records, models)
    else:
        member = np.stack([random.permutation(records) < records // 2 for _ in range(models)], axis=1)
    shift = leak * np.exp(0.5 * np.random.default_rng(0).normal(size=(records, 1)))  # intervals speak of these records
    return random.normal(size=member.shape) + shift * member, member


def scored(method, likelihood, signal, member, fprs=(0.1,), further=True):
    """The rows of metrics.parquet of one attack."""
    (run, *_) = plan([method], [read_signal("confidence"), read_signal("loss")], [likelihood])
    values = {"confidence": signal, "loss": np.logaddexp(0, -signal)}
    (found,) = scores_of([run], lambda one: [values[one.name]], member, member)
    scores = found.scores.astype(np.float32)
    without = without_each(run, found.readings, member, scores, fprs) if further else None
    key = (run.attack, run.signal, run.likelihood, False)
    rows = Scored(key, np.arange(member.shape[1]), np.arange(len(member)), member, scores)
    return metrics_table(metric_rows(rows, fprs, 0.95, without))


def over(method, likelihood, signal, member, name="auc", further=True):
    return OverTargets.from_metrics(scored(method, likelihood, signal, member, further=further), name)


def test_the_covariance_is_its_formula():
    random = np.random.default_rng(0)
    values, without = random.random(6), random.random((6, 6))
    np.fill_diagonal(without, values)
    found = OverTargets(values, without).shared
    assert found == pytest.approx(max(loop(values, without), 0))
    error = np.sqrt(values.var(ddof=1) / 6 + found)
    half = stats.t.ppf(0.95, 5) * error
    assert OverTargets(values, without).interval(0.9) == pytest.approx((values.mean() - half, values.mean() + half))
    spread = stats.t.ppf(0.95, 5) * np.sqrt(values.var(ddof=1) * 7 / 6 + 2 * found)
    assert OverTargets(values, without).future(0.9) == pytest.approx((values.mean() - spread, values.mean() + spread))
    corrected = stats.t.ppf(1 - 0.1 / 8, 5) * error
    assert OverTargets(values, without).interval(0.9, 4)[0] == pytest.approx(values.mean() - corrected)


def test_effects_of_a_model_on_all_others_count_where_models_are_many():
    random = np.random.default_rng(1)
    values, without = random.random(12), np.full((12, 12), np.nan)
    easy = random.normal(size=8)
    values[:8] += easy  # an easy target makes the others easier
    without[:8, :8] = values[:8, None] - easy - 0.01 * random.random((8, 8))
    np.fill_diagonal(without, np.append(values[:8], [np.nan] * 4))
    loss = [[values[t] - without[t, s] for s in range(8) if s != t] for t in range(8)]
    change = np.zeros((8, 8))
    for t in range(8):
        change[t, [s for s in range(8) if s != t]] = np.array(loss[t]) - np.mean(loss[t])
    pairs = (
        (7 / 6) ** 2 * 10 / 11 * np.mean([change[t, s] * change[s, t] for t in range(8) for s in range(8) if s != t])
    )
    effects = [np.mean([change[t, s] for t in range(8) if t != s]) for s in range(8)]
    expected = 2 * np.cov(values[:8], effects)[0, 1] - pairs
    assert expected > max(pairs, 0)
    assert OverTargets(values, without, is_auc=True).shared == pytest.approx(expected)
    assert OverTargets(values, without).shared == pytest.approx(max(pairs, 0))
    eight = OverTargets(values, without, is_auc=True).only(range(8))
    assert eight.shared == pytest.approx(max(pairs / (10 / 11) * 6 / 7, 0))


def test_silent_attacks_share_what_their_use_of_shadow_models_allows():
    """Of attacks on noise, a likelihood ratio shares as much as attacks can, `rmia` less, a threshold nothing."""
    signal, member = draw(3, 17, 0.0)
    attacked = {name: over(name, kind, signal, member) for name, kind in ATTACKED}
    assert all(one.above_guessing() > 0.05 for one in attacked.values())
    shares = {name: one.shared / (one.sd**2 / 15) for name, one in attacked.items()}
    assert shares["loss-lira"] == pytest.approx(1) and shares["threshold"] == 0 < shares["rmia"] < 0.5
    assert attacked["rmia"].silence == pytest.approx(shares["rmia"])
    rate = over("rmia", "none", signal, member, "tpr_at_fpr_0.1")
    assert rate.silence == attacked["rmia"].silence
    assert rate.shared == pytest.approx(rate.silence * rate.sd**2 / 15)


ATTACKED = (("loss-lira", "pooled"), ("rmia", "none"), ("threshold", "none"))


def test_a_single_target_has_no_interval_over_targets():
    one = OverTargets(np.array([0.9]), None, 50, 50)
    assert np.isnan([*one.interval(0.95), *one.future(0.95), one.p_value()]).all()
    assert np.isnan(OverTargets(np.array([0.9])).above_guessing())


ALONE = [
    ("threshold", "none", 1e-9),
    ("base", "none", 1e-9),
    ("rmia", "none", 1e-9),
    ("rmia-offline", "none", 1e-9),
    ("loss-lira", "pooled", 1e-9),
    ("loss-lira", "per-record", 1e-9),
    ("loss-lira-raw", "shrunk", 1e-9),
    ("loss-lira-offline", "pooled", 1e-9),
    ("loss-lira-offline-two-sided", "shrunk", 1e-9),
    ("joint-lrt:confidence+loss", "pooled", 1e-9),
    ("shadow-classifier", "none", 2e-3),  # a Newton step, no fit
    ("loss-lira", "hierarchical", 0.02),  # its records keep the bins that they have with all models
    ("joint-lrt:confidence+loss", "hierarchical", 0.05),
]


@pytest.mark.parametrize(("method", "likelihood", "tolerance"), ALONE)
def test_each_further_scoring_is_the_audit_without_that_model(method, likelihood, tolerance):
    """All pairs of models are scored in one pass; so says an audit of the other models alone."""
    signal, member = draw(0, 12, 0.5)
    table = scored(method, likelihood, signal, member)
    for name in ("auc", "balanced_accuracy", "tpr_at_fpr_0.1")[: 3 if tolerance < 1e-3 else 1]:
        lists = table[f"{name}_without"].to_list()
        assert [one is not None for one in lists] == [True] * 8 + [False] * 4
        for left in (0, 3):
            kept = np.delete(np.arange(12), left)
            alone = scored(method, likelihood, signal[:, kept], member[:, kept])[name].to_list()
            expected = {int(target): value for target, value in zip(kept, alone, strict=True)}
            found = [lists[t][left] for t in range(8) if t != left]
            assert found == pytest.approx([expected[t] for t in range(8) if t != left], abs=tolerance)
            assert lists[left][left] is None
    assert "auc_without" not in flat(table).columns and len(flat(table).write_csv().splitlines()) == 13


@pytest.mark.parametrize("design", ["half", "pairs"])
def test_an_attack_that_scores_no_pairs_is_run_again(design, monkeypatch):
    signal, member = draw(0, 8, 0.5, design=design)
    once = scored("loss-lira", "pooled", signal, member)
    catalogue = attacks["loss-lira"]
    monkeypatch.setattr(intervals, "attacks", {"loss-lira": replace(catalogue, pairwise=())})
    assert scored("loss-lira", "pooled", signal, member).equals(once)


@pytest.mark.parametrize("design", ["half", "pairs"])
@pytest.mark.parametrize("method", ["loss-lira", "joint-lrt:confidence+loss"])
@pytest.mark.parametrize("likelihood", ["blend", "types"])
def test_likelihoods_that_take_long_change_as_the_hierarchical_one_does(design, method, likelihood):
    signal, member = draw(0, 10, 0.5, design=design)
    slow, quick = (scored(method, name, signal, member) for name in (likelihood, "hierarchical"))
    for name in ("auc", "tpr_at_fpr_0.1"):
        for ours, theirs, without, changed in zip(
            *(table[column] for column in (name, f"{name}_without") for table in (slow, quick)), strict=True
        ):
            assert (without is None) == (changed is None)
            if without is not None:
                known = [place for place, value in enumerate(without) if value is not None]
                assert len(known) == 7
                assert [without[place] - ours for place in known] == pytest.approx(
                    [changed[place] - theirs for place in known], abs=1e-12
                )


def test_shared_bins_hardly_change_an_interval():
    """The hierarchical fit keeps every record's bin where a model is left out, instead of sorting records anew."""
    widths = []
    for seed in range(8):
        signal, member = draw(seed, 9, 0.5, 400)
        quick = over("loss-lira", "hierarchical", signal, member)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(intervals, "attacks", {"loss-lira": replace(attacks["loss-lira"], pairwise=())})
            widths.append(quick.error / over("loss-lira", "hierarchical", signal, member).error)
    assert np.median(widths) == pytest.approx(1, abs=0.05)


def test_attacks_that_take_too_long_and_null_controls_have_none():
    signal, member = draw(0, 8, 0.5, design="pairs")  # no pair of models can be scored, and fits are too many
    assert scored("shadow-classifier", "none", signal, member)["auc_without"].null_count() == 8
    run = next(one for one in plan(["loss-lira"], [read_signal("confidence")], ["pooled"]) if one.null_control)
    assert without_each(run, [Reading(read_signal("confidence"), [signal])], member, signal, (0.1,)) == {}


def test_an_attack_that_reads_no_other_model_shares_nothing():
    signal, member = draw(0, 9, 0.5)
    one = over("threshold", "none", signal, member)
    assert one.shared == 0
    expected = stats.t.interval(0.95, 8, one.mean, stats.sem(one.values))
    assert one.interval(0.95) == pytest.approx(expected)


def test_likelihoods_that_cannot_score_fewer_models_fall_back():
    signal, member = draw(0, 6, 0.5, records=40)
    member[:, :2] = member[:, :1] ^ [[False, True]]
    table = scored("loss-lira", "per-record", signal, member)
    assert OverTargets.from_metrics(table, "auc").error > 0


CASES = [
    ("hierarchical", 9, 0.0, "half"),
    pytest.param("pooled", 9, 0.6, "half", marks=pytest.mark.slow),
    pytest.param("blend", 9, 0.15, "half", marks=pytest.mark.slow),
    pytest.param("hierarchical", 17, 0.6, "half", marks=pytest.mark.slow),
    ("pooled", 8, 0.0, "pairs"),
]


@pytest.mark.parametrize(("likelihood", "models", "leak", "design"), CASES)
def test_intervals_hold_the_mean_as_often_as_they_say(likelihood, models, leak, design):
    """Student's t over targets holds it in 80 to 90 of 100 audits."""
    found = [over("loss-lira", likelihood, *draw(seed, models, leak, 120, design)) for seed in range(100)]
    truth = np.mean([one.mean for one in found])
    held = sum(low <= truth <= high for low, high in (one.interval(0.95) for one in found))
    plain = sum(abs(one.mean - truth) <= stats.t.ppf(0.975, models - 1) * stats.sem(one.values) for one in found)
    assert plain < held and 90 <= held <= (100 if design == "pairs" else 99)


def test_a_future_target_lies_where_it_is_said():
    held = []
    for seed in range(80):
        signal, member = draw(seed, 10, 0.6, 120)
        low, high = over("loss-lira", "pooled", signal[:, :9], member[:, :9]).future(0.9)
        held.append(low <= over("loss-lira", "pooled", signal, member, further=False).values[9] <= high)
    assert 0.82 <= np.mean(held) <= 0.98


def test_guessing_is_told_from_a_leak_at_its_level():
    """The variance is known where nothing leaks: twice that of independent targets."""
    p = {
        leak: [
            over("loss-lira", "pooled", *draw(seed, 9, leak, 120), further=False).above_guessing()
            for seed in range(100)
        ]
        for leak in (0.0, 0.35)
    }
    assert np.mean(np.array(p[0.0]) < 0.025) <= 0.06
    assert np.mean(np.array(p[0.35]) < 0.025) > 0.5


def test_differences_of_settings_are_paired():
    """Two settings on the same membership: what both share with the other models cancels."""
    signal, member = draw(1, 9, 0.5)
    noisy = signal + 0.3 * np.random.default_rng(5).normal(size=signal.shape)
    first, second = (over("loss-lira", "pooled", values, member) for values in (signal, noisy))
    gap = first.minus(second)
    assert gap.mean == pytest.approx(first.mean - second.mean)
    assert gap.error < first.error
    assert first.minus(first).interval(0.95) == (0, 0) and first.minus(first).p_value() == 1
    np.testing.assert_array_equal(gap.only([1, 2, 4]).values, gap.values[[1, 2, 4]])


def test_a_table_without_further_scorings_is_read_all_the_same():
    table = pl.DataFrame({"target": [1, 0], "auc": [0.6, 0.5]})
    one = OverTargets.from_metrics(table, "auc")
    assert one.values.tolist() == [0.5, 0.6] and one.without is None and np.isnan(one.members)


def test_a_single_target_has_the_interval_over_its_records():
    rng = np.random.default_rng(0)
    member = rng.random(400) < 0.5
    row = target_metrics(rng.normal(size=400) + 0.5 * member, member, [0.1])
    one = OverTargets.from_metrics(pl.DataFrame([row | {"target": 9}]), "auc")
    assert one.interval(0.95) == (row["auc_low"], row["auc_high"]) and np.isnan(one.future(0.95)).all()
    wider = one.interval(0.999, comparisons=2)
    assert wider[0] < row["auc_low"] < row["auc"] < row["auc_high"] < wider[1]
    exact = target_metrics(rng.normal(size=400) + 0.5 * member, member, [0.1], 1 - 0.001 / 2)
    assert wider[1] - wider[0] == pytest.approx(exact["auc_high"] - exact["auc_low"], rel=0.1)


def test_a_single_target_is_above_guessing_as_often_as_its_level_says():
    rng = np.random.default_rng(1)
    member = np.arange(120) < 50
    ranks = np.argsort(rng.random((2000, 120)), axis=1)
    aucs = (ranks[:, member].mean(axis=1) - ranks[:, ~member].mean(axis=1)) / 120 + 0.5
    p = [OverTargets(np.array([auc]), None, 50, 70).above_guessing() for auc in aucs]
    assert np.mean(np.array(p) < 0.05) == pytest.approx(0.05, abs=0.015)


def test_one_attack_keeps_its_own_interval():
    over = OverTargets(np.random.default_rng(0).normal(0.6, 0.02, 9))
    found = after_selection([over], 0.95)
    assert (found.mean, found.low, found.high) == (over.mean, *over.interval(0.95))


@pytest.mark.parametrize("correlation", [0.0, 0.8])
def test_the_chosen_attacks_interval_holds_though_it_was_chosen(correlation):
    """16 equal attacks on 9 independent targets: 95 % asked, at most 1.25 times the width of a fixed attack's."""
    random, held, fixed, bias, widths = np.random.default_rng(1), 0, 0, 0.0, []
    for _ in range(150):
        own, common = random.normal(size=(16, 9)), random.normal(size=(1, 9))
        values = np.sqrt(correlation) * common + np.sqrt(1 - correlation) * own
        means, errors = values.mean(axis=1), values.std(axis=1, ddof=1) / 3
        shift, below, above = selection_errors(means, errors, values, 0.95, draws=500)
        best = int(np.argmax(means))
        held += -above * errors[best] <= means[best] <= below * errors[best]
        fixed += abs(means[best]) <= 2.306 * errors[best]
        bias += (means[best] - shift * errors[best]) / 150
        widths.append((below + above) * errors[best] / (2 * 2.306 * errors.mean()))
    assert held >= 0.92 * 150 > fixed if correlation == 0 else held >= 0.92 * 150
    assert abs(bias) < 0.1 and np.mean(widths) < 1.25


def test_an_attack_far_above_the_others_is_hardly_corrected():
    random = np.random.default_rng(2)
    overs = [OverTargets(random.normal(mean, 0.01, 9)) for mean in (0.9, 0.5, 0.5, 0.5)]
    found, own = after_selection(overs, 0.95), overs[0].interval(0.95)
    assert found.mean == pytest.approx(overs[0].mean, abs=0.002)
    assert found.low < found.mean < found.high and found.high - found.low < 1.25 * (own[1] - own[0])
    assert found == after_selection(overs, 0.95)


def test_another_metric_of_the_chosen_attack_is_corrected_as_far_as_it_errs_with_the_first():
    random = np.random.default_rng(3)
    overs = [OverTargets(random.normal(0.5, 0.02, 9)) for _ in range(16)]
    best = max(overs, key=lambda over: over.mean)
    alike, unrelated = OverTargets(best.values / 2), OverTargets(np.tile([0.1, 0.2, 0.3], 3))
    assert after_selection(overs, 0.95, alike).mean < alike.mean
    ends = after_selection(overs, 0.95, unrelated)
    assert ends.low < unrelated.mean < ends.high
