"""Every explainer, built-in architecture and kind of pool: what does not fit is refused when the config is read."""

import os
from itertools import product
from typing import Any

import pytest

from mia_audit.config.load import check_audit
from mia_audit.errors import UserError
from mia_audit.explain.catalogue import GRADIENT, explainers, kind_of
from mia_audit.pools import pools
from mia_audit.pools.section import Dataset, Header
from mia_audit.signals.families import families

POOLS = {"image": "digits", "table": "breast_cancer"}
ARCHITECTURES = ("vision_transformer", "cnn", "mobilenet_groupnorm", "resnet18", "mlp", "locally-linear-maps")
FURTHER = (
    "captum:DeepLift",
    "captum:LayerGradCam",
    "captum:NoiseTunnel+Saliency",
    "captum:Shap",
    "captum:LRP",
    "private_local:1",
    "own:shap",
)
WITHOUT_TORCH = {"tree_shap", "linear_shap", "kernel_shap", "permutation_shap", "own:shap"}


def fits(name: str, model: str, kind: str) -> str:
    """Return why an audit with one explainer, architecture and kind of pool is refused, by what each of them is; empty where it is not."""
    if name == "captum:Shap":
        return "unknown explainer 'captum:Shap'"
    if name == "captum:LRP":
        return "captum:LRP explains only your own models with plain layers"
    if name in WITHOUT_TORCH:
        return f"{name} explains"
    if name.startswith("llm-") and model != "locally-linear-maps":
        return f"{name} explains only locally-linear-maps"
    if name in ("gradcam", "captum:LayerGradCam") and model in ("mlp", "locally-linear-maps"):
        return f"{name} explains only models of images"
    if model != "locally-linear-maps" and (model == "mlp") != (kind == "table"):
        return f"architectures.{model}: '{model}' takes"
    return ""


@pytest.mark.parametrize("kind", POOLS)
@pytest.mark.parametrize("model", ARCHITECTURES)
def test_every_explainer_fits_or_is_refused(model: str, kind: str) -> None:
    for name in (*explainers.names(), *FURTHER):
        values: dict[str, Any] = {
            "audit": "every",
            "datasets": {POOLS[kind]: {}},
            "architectures": {model: {}},
            "mechanisms": {"none": {}},
            "explainers": {"methods": [name], "explain": ["logit", "probability"]},
        }
        expected = fits(name, model, kind)
        if expected:
            with pytest.raises(UserError) as caught:
                check_audit(values, "every.yaml")
            assert expected in str(caught.value) and "\n" not in str(caught.value)
        else:
            audit = check_audit(values, "every.yaml")
            asked = [one for options in families(audit.explainers, model).values() for one in options["explainers"]]
            assert name in asked


def test_an_explainer_of_some_architectures_is_left_out_for_the_others() -> None:
    values: dict[str, Any] = {
        "audit": "two",
        "datasets": {"digits": {}},
        "architectures": {"cnn": {}, "locally-linear-maps": {}},
        "mechanisms": {"none": {}},
        "explainers": {"methods": ["gradcam"]},
    }
    audit = check_audit(values, "two.yaml")
    assert "gradcam" in families(audit.explainers, "cnn") and set(
        families(audit.explainers, "locally-linear-maps")
    ) == {GRADIENT}


@pytest.mark.parametrize(("model", "kind"), [*product(ARCHITECTURES, POOLS)])
def test_what_is_said_of_a_model_by_its_name_is_so(model: str, kind: str) -> None:
    from mia_audit.models.architecture import build
    from mia_audit.models.passes import find_channels

    small = {"vision_transformer": {"img_size": 8, "patch_size": 4, "embed_dim": 8, "depth": 1, "num_heads": 2}}
    shape = {"image": (3, 32, 32) if model in ("mobilenet_groupnorm", "resnet18") else (1, 8, 8), "table": (5,)}[kind]
    if kind not in kind_of(model).takes:
        with pytest.raises(UserError):
            build(model, small.get(model, {}), shape, 3, seed=0)
        return
    built = build(model, small.get(model, {}), shape, 3, seed=0)
    assert (find_channels(built) is not None) == kind_of(model).channels


def test_what_is_no_regular_file_is_not_opened(tmp_path: Any) -> None:
    """A config may come from anybody: its paths may name devices and pipes."""
    os.mkfifo(tmp_path / "pipe.csv")
    assert pools["table"].known(Dataset(source="table", path=str(tmp_path / "pipe.csv"))) == Header("table")
    assert pools["table"].known(Dataset(source="table", path="/dev/zero")) == Header("table")
    assert pools["arrays"].known(Dataset(source="arrays", path=str(tmp_path / "pipe.csv"))) == Header()
