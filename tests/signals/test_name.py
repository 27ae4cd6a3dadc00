import pytest

from mia_audit.explain.catalogue import explainer_label
from mia_audit.signals.name import read_signal, stem


@pytest.mark.parametrize(
    ("name", "channel", "explainer", "quantity", "explained_class", "summary"),
    [
        ("loss", "outputs", None, None, None, None),
        ("confidence", "outputs", None, None, None, None),
        ("ixg_l1", "explanations", "ixg", "logit", "predicted", "l1"),
        ("gradient_shap_probability_linf", "explanations", "gradient_shap", "probability", "predicted", "linf"),
        ("ig_true_variance", "explanations", "ig", "logit", "true", "variance"),
        ("ixg_log_probability_true_l1", "explanations", "ixg", "log_probability", "true", "l1"),
        ("captum:DeepLift_probability_true_l2", "explanations", "captum:DeepLift", "probability", "true", "l2"),
        ("confidence+ixg_l1", "both", None, None, None, None),
        ("ixg_l1+ig_l1", "explanations", None, None, None, None),
        ("loss+confidence", "outputs", None, None, None, None),
        ("latency", "other", None, None, None, None),
        ("latency+loss", "other", None, None, None, None),
    ],
)
def test_names_are_taken_apart(name, channel, explainer, quantity, explained_class, summary):
    signal = read_signal(name)
    assert (signal.channel, signal.explainer, signal.quantity) == (channel, explainer, quantity)
    assert (signal.explained_class, signal.summary) == (explained_class, summary)


def test_labels_are_words():
    assert read_signal("gradient_shap_probability_l1").label == "L1 norm of GradientSHAP, probability"
    assert read_signal("captum:DeepLift_true_variance").label == "variance of DeepLift, true class"
    assert read_signal("confidence").label == "confidence"


def test_the_parts_of_an_attribution_form_its_name():
    assert stem("captum:NoiseTunnel+Saliency", "logit", "predicted") == "captum:NoiseTunnel-Saliency"
    signal = read_signal(f"{stem('gradient_shap', 'probability', 'true')}_l2")
    parts = (signal.explainer, signal.quantity, signal.explained_class, signal.summary)
    assert parts == ("gradient_shap", "probability", "true", "l2")


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ("ixg", "input × gradient"),
        ("captum:NoiseTunnel-Saliency", "SmoothGrad (captum)"),
        ("captum:DeepLift", "DeepLift"),
        ("private_local:0.50", "the private local fit, ε = 0.5 each"),
        ("code/mine.py:sign", "sign"),
        ("somebody's", "somebody's"),
    ],
)
def test_explainers_have_names_in_words(name, label):
    assert explainer_label(name) == label


def test_summaries_of_one_explanation_read_together_name_it_and_those_of_several_do_not():
    assert (read_signal("ixg_vector+ixg_l1").explainer, read_signal("ixg_vector+ixg_l1").quantity) == ("ixg", "logit")
    for several in ("ixg_l1+ixg_probability_l1", "ixg_l1+saliency_l1", "confidence+ixg_l1"):
        assert read_signal(several).explainer is None
