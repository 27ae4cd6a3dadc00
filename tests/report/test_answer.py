from dataclasses import replace

import numpy as np
import polars as pl

from mia_audit.report.answer import answer
from mia_audit.report.findings import Estimate, Finding, Findings, Leak, LowerBound
from mia_audit.report.spec import AuditedSetting

NONE = AuditedSetting("digits", "vit", "none", "inf")
EIGHT = AuditedSetting("digits", "vit", "dp-sgd", "8", private=True, delta=1e-5, accountant="prv", clipping="automatic")
NOISE = np.array([-0.01, 0.01, -0.005, 0.005, -0.008, 0.008])


def leak(mean, signal="confidence", tried=1, tpr=0.2, spread=1.0):
    attack = "loss-lira" if signal == "confidence" else "var-lrt"
    return Leak(attack, signal, "pooled", np.arange(6), mean + spread * NOISE, tpr + NOISE / 10, tried, 0.95)


def finding(setting, leaks, accuracy=0.9):
    shadows = pl.DataFrame({"shadow": range(6), "test_accuracy": accuracy + NOISE[::-1] / 2}) if accuracy else None
    test = Estimate(accuracy, 0.01, accuracy - 0.01, accuracy + 0.01, 6) if accuracy else None
    return Finding(
        setting,
        {channel: [one] for channel, one in leaks.items()},
        test,
        test,
        shadows,
        None,
        LowerBound(0.0, 1e-5, "one-run", 1),
    )


def told(*group, fpr=0.01):
    found = answer(list(group), Findings(fpr, list(group)))
    return found["conclusion"], {item["term"]: item["text"] for item in found["sentences"]}


def test_leaks_are_told_in_points_and_compared_over_the_same_models():
    conclusion, items = told(finding(NONE, {"outputs": leak(0.75), "explanations": leak(0.7, "ixg_variance", tpr=0.1)}))
    assert conclusion.startswith("Without protection, the model's")
    assert "outputs (25.0 points" in conclusion and "by the variance (20.0 points) reveal" in conclusion
    assert "above one that was not 75.0\u00a0% of" in items["Outputs"]
    assert "it recognises 20.0\u00a0% of" in items["Outputs"]
    assert "19.0 points more than guessing" in items["Outputs"]
    assert "5.0 points (5.0 to 5.0) of AUC less" in items["Explanations"]


def test_more_from_explanations_is_said_to_be_more():
    _, items = told(finding(NONE, {"outputs": leak(0.6), "explanations": leak(0.7, "ixg_variance")}))
    assert "10.0 points (10.0 to 10.0) of AUC more" in items["Explanations"]


def test_a_difference_within_noise_is_not_called_one():
    explanations = leak(0.7, "ixg_variance", spread=-1.0)
    _, items = told(finding(NONE, {"outputs": leak(0.7), "explanations": explanations}))
    assert "no difference could be measured between" in items["Explanations"]


def test_an_interval_that_holds_guessing_is_no_leak():
    conclusion, items = told(finding(NONE, {"outputs": leak(0.504, tpr=0.0102)}))
    assert conclusion.startswith("Without protection, no leak could be")
    assert "from guessing (AUC 0.504" in items["Outputs"]
    assert items["Outputs"].count("is not distinguishable from guessing") == 2, "AUC and true-positive rate"
    assert "leak of" not in items["Outputs"]


def test_the_strongest_of_many_attacks_is_judged_as_such():
    random, one = np.random.default_rng(0), leak(0.5, "ixg_variance")
    tried = [replace(one, auc=random.normal(0.5, 0.02, len(one.auc)), tried=64) for _ in range(64)]
    tried.sort(key=lambda leak: -leak.auc.mean())
    assert tried[0].auc.mean() > 0.51
    found = finding(NONE, {"outputs": leak(0.7), "explanations": one})
    conclusion, items = told(replace(found, leaks=found.leaks | {"explanations": tried}))
    assert "not distinguishable from guessing (AUC" in items["Explanations"]
    assert "no attack on norms did better" in conclusion


def test_what_was_read_of_explanations_is_named():
    whole = leak(0.7, "ixg_vector+ixg_l1")
    conclusion, _ = told(finding(NONE, {"explanations": whole}))
    assert "by the whole map (20.0 points" in conclusion
    conclusion, _ = told(finding(NONE, {"outputs": leak(0.7), "explanations": leak(0.502, "ixg_vector+ixg_l1")}))
    assert "no attack on norms or maps did better" in conclusion


def test_worse_than_guessing_is_not_protection():
    _, items = told(finding(NONE, {"outputs": leak(0.4, tpr=0.001)}))
    assert "is worse than guessing" in items["Outputs"] and "no protection" in items["Outputs"]
    assert "fewer than guessing would" in items["Outputs"]


def test_what_a_budget_buys_and_costs():
    none = finding(NONE, {"outputs": leak(0.75), "explanations": leak(0.7, "ixg_variance")})
    eight = finding(EIGHT, {"outputs": leak(0.55), "explanations": leak(0.502, "ixg_variance", tried=3)}, accuracy=0.82)
    conclusion, items = told(none, eight)
    assert "dp-sgd at ε = 8, the outputs leak 5.0" in conclusion
    assert "explanations nothing measurable" in conclusion and "a cost of 8.0 points" in conclusion
    text = items["ε = 8 (dp-sgd)"]
    assert "outputs leak 20.0 points" in text and "(20.0 to 20.0) less, leaving AUC 0.550" in text
    assert "leak 19.8 points (19.8 to 19.8) less" in text and "not distinguishable from guessing." in text
    assert "8.0 points (8.0 to 8.0) of test" in text and ": 82.0\u00a0% instead of 90.0\u00a0%." in text


def test_a_budget_that_closes_everything_and_costs_nothing():
    none = finding(NONE, {"outputs": leak(0.75)})
    conclusion, _ = told(none, finding(EIGHT, {"outputs": leak(0.501)}, accuracy=0.9))
    assert "With dp-sgd at ε = 8, no attack" in conclusion and conclusion.endswith("at no measurable cost in accuracy.")


def test_protection_that_makes_it_worse_is_said_to():
    none = finding(NONE, {"outputs": leak(0.6)})
    worse = finding(EIGHT, {"outputs": leak(0.65)}, accuracy=0.95)
    _, items = told(none, worse)
    text = items["ε = 8 (dp-sgd)"]
    assert "5.0 points (5.0 to 5.0) more: AUC 0.650" in text
    assert "is 5.0 points (5.0 to 5.0) higher" in text


def test_no_measurable_change():
    none = finding(NONE, {"outputs": leak(0.6)})
    _, items = told(none, finding(EIGHT, {"outputs": leak(0.6, spread=-1.0)}, accuracy=None))
    assert "No change could be measured in what" in items["ε = 8 (dp-sgd)"]
    assert "accuracy" not in items["ε = 8 (dp-sgd)"]


def test_somebody_elses_signals_and_unresolvable_rates():
    given = replace(NONE, trained=False)
    conclusion, items = told(finding(given, {"explanations": leak(0.7, "ixg_l1")}, accuracy=None), fpr=None)
    assert conclusion.startswith("In these signals, the model's") and "by the norm (20.0" in conclusion
    assert "too small to resolve" in items["Explanations"]


def test_one_target_claims_nothing():
    single = Leak("loss-lira", "confidence", "pooled", np.array([0]), np.array([0.9]), np.array([0.5]), 1, 0.95)
    conclusion, items = told(finding(NONE, {"outputs": single}))
    assert "no leak could be measured" in conclusion
    assert "on its one target, which says nothing" in items["Outputs"]
    assert "()" not in items["Outputs"] and "50.0\u00a0% of the training records." in items["Outputs"]


def test_only_private_settings():
    conclusion, items = told(finding(EIGHT, {"outputs": leak(0.6)}))
    assert conclusion.startswith("With dp-sgd at ε = 8, the model's")
    assert "outputs (10.0 points" in conclusion
    assert list(items) == ["Outputs"]
