"""Grad-CAM's channel weights against finite differences in float64."""

import pytest
import torch
from torch import nn

from mia_audit.models.architecture import build
from mia_audit.models.passes import Channels, channel_weights, channels_of, find_channels

TINY = {"img_size": 8, "patch_size": 4, "embed_dim": 8, "depth": 2, "num_heads": 2}


def convnet() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        layers = [nn.Conv2d(1, 3, 3), nn.ReLU(), nn.Conv2d(3, 4, 3), nn.ReLU(inplace=True)]
        return nn.Sequential(*layers, nn.Flatten(), nn.Linear(64, 3)).double()


def transformer(model: str) -> nn.Module:
    more = {} if model == "vision_transformer" else {"init_values": 0.5}
    return build(model, {**TINY, **more}, (1, 8, 8), 3, 0).double()


MODELS = {
    "cnn": (convnet, None, 0),
    "vit": (lambda: transformer("vision_transformer"), (2, 2), 1),
    "beit": (lambda: transformer("beit_base_patch16_224"), (2, 2), 1),
    "relative-position": (lambda: transformer("vit_relpos_base_patch16_224"), (2, 2), 0),
}


@pytest.mark.parametrize("name", MODELS)
def test_weights_are_the_change_of_the_logit_with_the_channels_mean(name: str) -> None:
    make, grid, prefix = MODELS[name]
    model = make().eval().requires_grad_(False)
    channels = channels_of(model, "this test")
    assert (channels.grid, channels.prefix) == (grid, prefix)
    inputs = torch.randn(3, 1, 8, 8, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    classes = torch.tensor([2, 0, 1])
    weights = channel_weights(model, channels, inputs, classes)
    for channel in (0, weights.shape[1] - 1):
        torch.testing.assert_close(weights[:, channel], _difference(model, channels, channel, inputs, classes))


def _difference(
    model: nn.Module, channels: Channels, channel: int, inputs: torch.Tensor, classes: torch.Tensor
) -> torch.Tensor:
    """Shift one channel everywhere, up and down: the change of the logit by the sum over places."""
    logits, places = [], 1
    for shift in (1e-5, -1e-5):

        def moved(module: nn.Module, arguments: object, output: torch.Tensor, shift: float = shift) -> torch.Tensor:
            nonlocal places
            places = channels.flat(output).shape[2]
            change = torch.zeros_like(output)
            channels.flat(change)[:, channel] += shift  # a view
            return output + change

        handle = channels.layer.register_forward_hook(moved)
        logits.append(model(inputs).gather(1, classes[:, None])[:, 0])
        handle.remove()
    return (logits[0] - logits[1]) / 2e-5 / places


def test_writers_are_named_as_the_model_names_them() -> None:
    assert list(channels_of(convnet(), "this test").writers) == ["2"]
    for name, layer in channels_of(transformer("vision_transformer"), "this test").writers.items():
        assert transformer("vision_transformer").get_submodule(name).weight.shape == layer.weight.shape  # type: ignore[union-attr]


def test_a_model_without_channels_has_none() -> None:
    assert find_channels(nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))) is None
