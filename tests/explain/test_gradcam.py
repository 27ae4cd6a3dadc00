"""Grad-CAM is captum's, upsampled, on a CNN and on the tokens of transformers."""

from typing import Any

import pytest
import torch
from captum.attr import LayerAttribution, LayerGradCam
from torch import Tensor, nn

from mia_audit.errors import UserError
from mia_audit.models.architecture import build

from .attribution import attribute

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning:captum")

OPTIONS = {"explain": ["logit", "probability"], "explained_class": "true"}
TINY = {"img_size": 8, "patch_size": 2, "embed_dim": 12, "depth": 2, "num_heads": 2}


class Tapped(nn.Module):
    """A norm whose tokens of the image pass through an identity, laid out as captum expects channels."""

    def __init__(self, norm: nn.Module, prefix: int, side: int) -> None:
        super().__init__()
        self.norm, self.tap, self.prefix, self.side = norm, nn.Identity(), prefix, side

    def forward(self, tokens: Tensor) -> Tensor:
        values = self.norm(tokens)
        image = values[:, self.prefix :].transpose(1, 2).unflatten(2, (self.side, self.side))
        seen = self.tap(image).flatten(2).transpose(1, 2)
        return torch.cat([values[:, : self.prefix], seen], dim=1)


def captums(model: nn.Module, layer: nn.Module, inputs: Tensor, labels: Tensor) -> dict[str, Tensor]:
    maps = {}
    for quantity, explained in (("logit", model), ("probability", nn.Sequential(model, nn.Softmax(dim=1)))):
        coarse = LayerGradCam(explained, layer).attribute(
            inputs.clone().requires_grad_(), target=labels, relu_attributions=True
        )
        maps[quantity] = LayerAttribution.interpolate(coarse, (8, 8), "bilinear").detach()
    return maps


def ours(model: nn.Module, inputs: Tensor, labels: Tensor) -> dict[str, Tensor]:
    return attribute(model, inputs, labels, range(len(labels)), "gradcam", OPTIONS, 0)


def inputs_and_labels(dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    random = torch.Generator().manual_seed(1)
    return torch.randn(6, 1, 8, 8, generator=random, dtype=dtype), torch.randint(5, (6,), generator=random)


def assert_same(found: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    for quantity in ("logit", "probability"):
        assert found[quantity].shape == (6, 1, 8, 8) and expected[quantity].any()
        torch.testing.assert_close(found[quantity], expected[quantity])


def test_of_a_cnn(convolution: Any) -> None:
    inputs, labels = convolution.inputs, convolution.labels
    found = ours(convolution.model, inputs, labels)
    for quantity, expected in captums(convolution.model, convolution.model[2], inputs, labels).items():
        torch.testing.assert_close(found[quantity], expected)


def test_of_the_studys_cnn() -> None:
    parameters = {"width": 0.25, "stages": 2, "stem_stride": 1, "added": 8}
    model = build("mobilenet_groupnorm", parameters, (1, 8, 8), 5, 0).double().eval().requires_grad_(False)
    given = inputs_and_labels(torch.float64)
    assert_same(ours(model, *given), captums(model, model.get_submodule("added.0"), *given))


@pytest.mark.parametrize("name", ["class token", "mean of tokens", "relative positions"])
def test_of_transformers(name: str) -> None:
    kind = "vit_relpos_base_patch16_224" if name == "relative positions" else "vision_transformer"
    more = {"class token": {}, "mean of tokens": {"global_pool": "avg"}, "relative positions": {"init_values": 0.5}}
    model = build(kind, {**TINY, **more[name]}, (1, 8, 8), 5, 0)
    with torch.no_grad():  # a head as it is after training: timm initialises it to almost nothing
        model.get_submodule("head").weight.normal_(generator=torch.Generator().manual_seed(2))
    model = model.double().eval().requires_grad_(False)
    given = inputs_and_labels(torch.float64)
    found = ours(model, *given)
    block = model.get_submodule("blocks.1")
    block.norm1 = Tapped(block.norm1, 0 if name == "relative positions" else 1, 4)  # type: ignore[arg-type]
    assert_same(found, captums(model, block.norm1.tap, *given))  # type: ignore[union-attr, arg-type]


def test_a_model_without_channels_is_refused() -> None:
    model = build("mlp", {"width": 4}, (5,), 3, 0).eval()
    with pytest.raises(UserError, match="explainer 'gradcam' reads the channels of a model's last convolution"):
        attribute(model, torch.randn(2, 5), torch.tensor([0, 1]), [0, 1], "gradcam", OPTIONS, 0)
