"""The CNN of the FADP study: shapes from 8 to 224 pixels, records kept apart, and what it refuses."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from mia_audit.errors import UserError
from mia_audit.models.architecture import batch_norm_layers, build
from mia_audit.models.passes import channels_of
from mia_audit.privacy.per_record import per_record_gradients

DIGITS = {"width": 0.25, "stages": 2, "stem_stride": 1, "added": 16}


@pytest.mark.parametrize(
    ("parameters", "shape", "features"),
    [
        (DIGITS, (1, 8, 8), (32, 4)),
        ({"width": 0.25, "stages": 3, "stem_stride": 1}, (3, 32, 32), (64, 8)),
        ({"width": 0.25, "img_size": 64}, (3, 32, 32), (256, 2)),
    ],
)
def test_small_images_want_fewer_strides(
    parameters: dict[str, Any], shape: tuple[int, ...], features: tuple[int, int]
) -> None:
    model = build("mobilenet_groupnorm", parameters, shape, 5, 0)
    pixels = parameters.get("img_size", shape[1])
    images = torch.randn(2, shape[0], pixels, pixels)
    assert model.get_submodule("backbone")(images).shape == (2, features[0], features[1], features[1])
    assert model(images).shape == (2, 5)
    assert batch_norm_layers(model) == []
    assert list(channels_of(model, "this test").writers) == ["added.0"]


def test_the_default_is_mobilenet() -> None:
    """4.2 million parameters in the paper, of which a million are the classifier; GroupNorm has as many as BatchNorm."""
    from mia_audit.runtime.torchvision_guard import guard

    guard()
    import timm

    ours = build("mobilenet_groupnorm", {}, (3, 224, 224), 10, 0).get_submodule("backbone")
    theirs = timm.create_model("mobilenetv1_100", num_classes=0)
    counts = [sum(value.numel() for value in model.parameters()) for model in (ours, theirs)]
    assert counts[0] == counts[1]


def test_per_record_gradients_are_those_of_one_record_at_a_time() -> None:
    model = build("mobilenet_groupnorm", DIGITS, (1, 8, 8), 3, 0)
    inputs, labels = torch.randn(5, 1, 8, 8, generator=torch.Generator().manual_seed(1)), torch.tensor([0, 1, 2, 0, 1])
    gradients, _ = per_record_gradients(model)(inputs, labels)
    for row in range(5):
        model.zero_grad()
        F.cross_entropy(model(inputs[row : row + 1]), labels[row : row + 1]).backward()
        for name, value in model.named_parameters():
            torch.testing.assert_close(gradients[name][row], value.grad, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("parameters", "mend"),
    [
        ({"depth": 3}, "has no parameter 'depth'"),
        ({"stages": 6}, r"parameters\.stages: a whole number from 1 to 5 was expected, not 6"),
        ({"stem_stride": True}, r"parameters\.stem_stride: a whole number from 1 to 2"),
        ({"width": 0}, r"parameters\.width: a number from 0\.0625 to 4 was expected, not 0"),
    ],
)
def test_wrong_parameters_are_one_line(parameters: dict[str, Any], mend: str) -> None:
    with pytest.raises(UserError, match=mend):
        build("mobilenet_groupnorm", parameters, (1, 8, 8), 3, 0)
    with pytest.raises(UserError, match="takes images"):
        build("mobilenet_groupnorm", {}, (5,), 3, 0)
