import pytest

from mia_audit.report.signals import read_signal


@pytest.mark.parametrize(
    ("name", "channel", "explainer", "quantity", "true_class", "summary"),
    [
        ("loss", "outputs", None, None, False, None),
        ("confidence", "outputs", None, None, False, None),
        ("ixg_l1", "explanations", "ixg", "logit", False, "l1"),
        ("gradient_shap_probability_linf", "explanations", "gradient_shap", "probability", False, "linf"),
        ("ig_true_variance", "explanations", "ig", "logit", True, "variance"),
        ("captum:DeepLift_probability_true_l2", "explanations", "captum:DeepLift", "probability", True, "l2"),
        ("confidence+ixg_l1", "both", None, None, False, None),
        ("ixg_l1+ig_l1", "explanations", None, None, False, None),
        ("loss+confidence", "outputs", None, None, False, None),
        ("latency", "other", None, None, False, None),
        ("latency+loss", "other", None, None, False, None),
    ],
)
def test_names_are_taken_apart(name, channel, explainer, quantity, true_class, summary):
    signal = read_signal(name)
    assert (signal.channel, signal.explainer, signal.quantity) == (channel, explainer, quantity)
    assert (signal.true_class, signal.summary) == (true_class, summary)


def test_labels_are_words():
    assert read_signal("gradient_shap_probability_l1").label == "L1 norm of GradientSHAP, probability"
    assert read_signal("captum:DeepLift_true_variance").label == "variance of DeepLift, true class"
    assert read_signal("confidence").label == "confidence"
