"""Which options a family depends on, what its columns are called, and what importing it costs."""

import subprocess
import sys

import pytest
from pydantic import ValidationError

from mia_audit.explain import explainers
from mia_audit.explain.catalogue import Explainers
from mia_audit.signals.families import columns, families

GRADIENT_ONLY = Explainers(methods=("ixg",))


def test_gradient_comes_first_and_is_always_there() -> None:
    for methods in (("ig",), ("ig", "saliency"), ("gradient_shap", "ixg", "ig")):
        found = families(Explainers(methods=methods), "mlp")
        assert next(iter(found)) == "gradient"
        assert found["gradient"]["explainers"] == ["ixg", "saliency"]


def test_adding_saliency_changes_nothing() -> None:
    assert families(Explainers(methods=("ixg", "saliency")), "mlp") == families(GRADIENT_ONLY, "mlp")


def test_adding_an_explainer_adds_its_family_alone() -> None:
    before, after = families(GRADIENT_ONLY, "mlp"), families(Explainers(methods=("ixg", "ig")), "mlp")
    assert set(after) - set(before) == {"ig"}
    assert after["gradient"] == before["gradient"]


@pytest.mark.parametrize(
    ("change", "affected"),
    [
        ({"ig_nodes": 7}, {"ig"}),
        ({"gradient_shap_samples": 2}, {"gradient_shap"}),
        ({"gradient_shap_sd": 0.1}, {"gradient_shap"}),
        ({"explain": ("probability",)}, {"gradient", "ig", "gradient_shap"}),
        ({"explained_class": "true"}, {"gradient", "ig", "gradient_shap"}),
    ],
)
def test_an_option_changes_only_the_families_that_read_it(change: dict[str, object], affected: set[str]) -> None:
    before, after = families(Explainers(), "mlp"), families(Explainers(**change), "mlp")
    assert {family for family in before if before[family] != after[family]} == affected


def test_columns_are_named_as_the_data_contract_says() -> None:
    found = families(Explainers(methods=("ig",), explain=("logit", "probability")), "mlp")
    assert columns("gradient", found["gradient"])[:8] == [
        "label", "predicted", "loss", "confidence", "ixg_variance", "ixg_l1", "ixg_l2", "ixg_linf",
    ]  # fmt: skip
    assert columns("ig", found["ig"]) == [
        "ig_variance", "ig_l1", "ig_l2", "ig_linf", "ig_completeness", "ig_vector",
        "ig_probability_variance", "ig_probability_l1", "ig_probability_l2", "ig_probability_linf",
        "ig_probability_completeness", "ig_probability_vector",
    ]  # fmt: skip
    true = families(Explainers(methods=("ig",), explain=("logit", "probability"), explained_class="true"), "mlp")
    assert {"ig_true_l1", "ig_probability_true_l1"} <= set(columns("ig", true["ig"]))
    assert not {"ig_l1", "ig_probability_l1"} & set(columns("ig", true["ig"]))


def test_captum_names_are_families_with_safe_names() -> None:
    found = families(Explainers(methods=("captum:DeepLift", "captum:NoiseTunnel+Saliency")), "mlp")
    assert list(found) == ["gradient", "captum-DeepLift", "captum-NoiseTunnel-Saliency"]
    assert found["captum-DeepLift"]["explainers"] == ["captum:DeepLift"]
    assert "captum:DeepLift_l1" in columns("captum-DeepLift", found["captum-DeepLift"])
    family = "captum-NoiseTunnel-Saliency"
    assert "captum:NoiseTunnel-Saliency_l1" in columns(family, found[family])


@pytest.mark.parametrize("name", ["captum:", "captum:Deep Lift", "captum:A+", "captom:DeepLift", "igg"])
def test_unknown_names_are_refused_when_the_config_is_read(name: str) -> None:
    with pytest.raises(ValidationError, match="unknown explainer"):
        Explainers(methods=(name,))


def test_every_registered_explainer_is_there() -> None:
    assert explainers.names() == [
        "gradcam",
        "gradient_shap",
        "ig",
        "ig-gradient",
        "ixg",
        "kernel_shap",
        "linear_shap",
        "llm-global",
        "llm-gradient",
        "llm-local",
        "llm-top",
        "local_linear",
        "permutation_shap",
        "saliency",
        "smoothgrad",
        "tree_shap",
    ]


def test_families_and_columns_need_no_torch() -> None:
    code = (
        "import sys; from mia_audit.config.schema import Explainers;"
        "from mia_audit.signals.families import columns, families;"
        "found = families(Explainers(methods=('ixg', 'ig', 'gradient_shap', 'captum:DeepLift')), 'mlp');"
        "[columns(family, options) for family, options in found.items()];"
        "print({'torch', 'captum', 'scipy', 'timm'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


def test_no_explainers_are_no_explanations() -> None:
    none = families(Explainers(methods=()), "mlp")
    assert list(none) == ["gradient"] and none["gradient"]["explainers"] == []
    assert columns("gradient", none["gradient"]) == ["label", "predicted", "loss", "confidence"]
