"""The five models of Huang et al. 2024, at reduced depth and size: fine-tuned with and without privacy, and explained four ways."""

from typing import Any

import numpy as np
import pytest
import torch

from mia_audit.learners.torch_module import TorchModel
from mia_audit.models.architecture import describe, fetch
from mia_audit.models.timm_models import published_traits
from mia_audit.privacy.catalogue import Mechanism
from mia_audit.signals.compute import SignalsTask, model_signals
from mia_audit.signals.families import columns
from mia_audit.training.section import Training
from mia_audit.training.shadow import Recipe, train_shadow
from mia_audit.training.task import Records

MODELS = [
    "vit_small_patch16_224",
    "vit_relpos_small_patch16_224.sw_in1k",
    "vit_relpos_base_patch16_224.sw_in1k",
    "beit_base_patch16_224.in22k_ft_in22k_in1k",
    "beitv2_base_patch16_224.in1k_ft_in22k_in1k",
]
TINY = {"img_size": 32, "embed_dim": 24, "depth": 1, "num_heads": 2}
SHAPE, CLASSES, COUNT = (3, 32, 32), 3, 16
EXPLAINED: dict[str, Any] = {"explain": ["logit"], "explained_class": "predicted"}
OPTIONS: dict[str, dict[str, Any]] = {
    "gradient": {"explainers": ["ixg", "saliency"]},
    "ig": {"explainers": ["ig"], "ig_nodes": 3},
    "gradient_shap": {"explainers": ["gradient_shap"], "gradient_shap_samples": 2, "gradient_shap_sd": 0.001},
}


@pytest.mark.parametrize("name", MODELS)
def test_it_is_the_papers_at_full_size(name: str) -> None:
    traits = published_traits(name)
    assert traits.input_size == (3, 224, 224)
    assert traits.hf_hub_id.startswith(f"timm/{name}")


@pytest.mark.parametrize("name", MODELS)
def test_it_is_fine_tuned_and_explained(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    metadata = describe("some", name, TINY, SHAPE, CLASSES)
    start = _from_the_hub(metadata, monkeypatch)
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(COUNT, *SHAPE, generator=generator)
    labels = torch.randint(CLASSES, (COUNT,), generator=generator)
    members = np.arange(COUNT) % 2 == 0
    training = Training(epochs=2, batch=8, learning_rate=0.01)  # all members a step: calibration is immediate
    sections = {"none": Mechanism(mechanism="none"), "dp-sgd": Mechanism(mechanism="dp-sgd", accountant="rdp")}
    for mechanism, epsilon in (("none", float("inf")), ("dp-sgd", 8.0)):
        recipe = Recipe(metadata, start, sections[mechanism], training, epsilon, 8, (0, mechanism))
        trained = train_shadow(recipe, 0, inputs, labels, members)
        moved = dict(trained.model.named_parameters())
        assert all(not torch.equal(moved[key], value) for key, value in start.items() if key in moved), mechanism
        assert trained.epsilon <= epsilon
        model = TorchModel(trained.model, batch=8)
        records = Records(inputs.numpy(), labels.numpy(), {}, np.arange(COUNT))
        for family, options in OPTIONS.items():
            task = SignalsTask(family, EXPLAINED | options, seed=0)
            signals = model_signals(model, records, task)
            assert list(signals) == columns(family, task.options)
            assert all(np.isfinite(values).all() for values in signals.values())


def _from_the_hub(metadata: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> dict[str, torch.Tensor]:
    """Fetch weights of the reduced model as timm fetches them, but for the download."""
    from timm.models import _builder

    from mia_audit.models.architecture import build

    weights = build(metadata["model"], TINY, SHAPE, 1000, seed=1).state_dict()
    monkeypatch.setattr(_builder, "load_state_dict_from_hf", lambda *_, **__: dict(weights))
    start = fetch(metadata, "hub", "architectures.some.pretrained")
    assert torch.equal(start["patch_embed.proj.weight"], weights["patch_embed.proj.weight"])
    return start
