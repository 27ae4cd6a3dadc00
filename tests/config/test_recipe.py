"""What a setting's results depend on besides the number of its models."""

from typing import Any

import pytest

from mia_audit.config.expand import settings
from mia_audit.config.load import check_audit
from mia_audit.config.recipe import recipe

CONFIG: dict[str, Any] = {
    "audit": "tiny",
    "datasets": {"breast_cancer": {"public": 100}},
    "membership": {"models": 33},
    "architectures": {"mlp": {}},
    "mechanisms": {"none": {}, "dp-sgd": {"epsilon": [8]}},
}


def recipes(**changes: Any) -> list[str]:
    audit = check_audit(CONFIG | changes, "tiny.yaml")
    return [recipe(audit, setting) for setting in settings(audit)]


def test_every_setting_has_its_own() -> None:
    assert len(set(recipes())) == 2


@pytest.mark.parametrize(
    "change",
    [
        {"membership": {"models": 5}},
        {"ladder": [4, 8]},
        {"until": {"auc": 0.1}},
        {"compute": {"shadows_per_job": 1}},
        {"report": {"title": "Another"}},
    ],
)
def test_it_is_the_same_with_other_numbers_of_models(change: dict[str, Any]) -> None:
    assert recipes(**change) == recipes()


@pytest.mark.parametrize(
    "change",
    [
        {"seed": 1},
        {"datasets": {"breast_cancer": {"public": 90}}},
        {"membership": {"models": 33, "design": "bernoulli"}},
        {"architectures": {"mlp": {"parameters": {"width": 8}}}},
        {"architectures": {"mlp": {"pretrained": "public", "pretraining": {"epochs": 1}}}},
        {"training": {"epochs": 1}},
        {"explainers": {"methods": ["ig"]}},
        {"attacks": {"likelihoods": ["pooled"]}},
        {"evaluation": {"confidence": 0.9}},
    ],
)
def test_it_is_another_one_where_results_are(change: dict[str, Any]) -> None:
    assert not set(recipes(**change)) & set(recipes())
