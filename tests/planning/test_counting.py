"""Passes that explanations take: counted on a stand-in as often as the model itself would be asked."""

from typing import Any

import pytest
from torch import nn

from mia_audit.models import construct, describe
from mia_audit.planning import counting
from mia_audit.planning.counting import Counted, Passes, count, explaining, stand_in_for

OPTIONS: dict[str, Any] = {"explain": ["logit", "probability"], "explained_class": "predicted"}
CONVOLUTIONS = {"width": 0.25, "stages": 1, "stem_stride": 1, "added": 8}


@pytest.fixture(scope="module")
def mlp() -> dict[str, Any]:
    return describe("net", "mlp", {"width": 8, "depth": 1}, (5,), 3)


@pytest.fixture(scope="module")
def images() -> dict[str, Any]:
    return describe("net", "mobilenet_groupnorm", CONVOLUTIONS, (1, 8, 8), 3)


@pytest.mark.parametrize(
    ("explainer", "more", "expected"),
    [
        ("ixg", {}, Passes(0, 1, 2)),
        ("ig", {"ig_nodes": 7}, Passes(3, 7, 14)),
        ("gradient_shap", {"gradient_shap_samples": 5, "gradient_shap_sd": 0.001}, Passes(1, 5, 10)),
    ],
)
def test_a_stand_in_is_asked_as_often_as_the_model(
    images: dict[str, Any], explainer: str, more: dict[str, Any], expected: Passes
) -> None:
    options = OPTIONS | {"explainers": [explainer]} | more
    run = explaining(images, "gradient" if explainer == "ixg" else explainer, options, 0, batch=1)
    small = stand_in_for(images, run)
    assert sum(value.numel() for value in small.parameters()) < 30
    model = construct(images, seed=0).eval().requires_grad_(False)
    assert count(small, images, run) == count(model, images, run) == expected


def test_passes_are_counted_once_for_all_settings(mlp: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    models: list[nn.Module] = []

    def three(model: nn.Module, architecture: Any, run: Any) -> Passes:
        models.append(model)
        return Passes(3, 0, 0)

    monkeypatch.setattr(counting, "count", three)
    counted, ig = Counted(), OPTIONS | {"explainers": ["ig"], "ig_nodes": 7}
    for one in (mlp, mlp, mlp | {"model": "another"}):
        assert counted.signals(one, "ig", ig) == Passes(3, 0, 0)
    assert len(models) == 1
    counted.signals(mlp, "ig", ig | {"ig_nodes": 8})
    assert len(models) == 2


def test_an_explainer_of_certain_models_is_counted_on_the_model_itself() -> None:
    maps = describe("maps", "locally-linear-maps", {"maps": 2}, (5,), 3)
    run = explaining(maps, "llm", OPTIONS | {"explainers": ["llm-top"]}, 0, batch=1)
    assert type(stand_in_for(maps, run)) is not nn.Linear
