"""Tiny models of every kind that per-record gradients must be exact for."""

from collections.abc import Callable

import pytest
import torch
from torch import nn

from mia_audit.models.architecture import build

TINY = {"img_size": 8, "patch_size": 4, "embed_dim": 8, "depth": 2, "num_heads": 2}

Model = tuple[nn.Module, tuple[int, ...]]


class ConvNet(nn.Sequential):
    """A CNN with GroupNorm."""

    def __init__(self) -> None:
        super().__init__(
            nn.Conv2d(1, 4, 3, padding=1),
            nn.GroupNorm(2, 4),
            nn.ReLU(),
            nn.Conv2d(4, 4, 3, stride=2, bias=False),
            nn.Flatten(),
            nn.Linear(36, 3),
        )


def _convnet() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return ConvNet()


MODELS: dict[str, Callable[[], Model]] = {
    "vit": lambda: (build("vision_transformer", TINY, (1, 8, 8), 3, 0), (1, 8, 8)),
    "beit": lambda: (build("beit_base_patch16_224", {**TINY, "init_values": 0.1}, (1, 8, 8), 3, 0), (1, 8, 8)),
    "relative-position": lambda: (
        build("vit_relpos_base_patch16_224", {**TINY, "init_values": 0.1}, (1, 8, 8), 3, 0),
        (1, 8, 8),
    ),
    "mlp": lambda: (build("mlp", {"width": 8}, (5,), 3, 0), (5,)),
    "cnn": lambda: (_convnet(), (1, 8, 8)),
}


@pytest.fixture(params=list(MODELS))
def model_and_shape(request: pytest.FixtureRequest) -> Model:
    """A model in train mode, its dropout (that of the relative position's MLP) off, and the shape of its records."""
    model, shape = MODELS[request.param]()
    for layer in model.modules():
        if isinstance(layer, nn.Dropout):
            layer.p = 0.0
    return model.train(), shape


@pytest.fixture
def mlp() -> nn.Module:
    """A small MLP on 5 features and 3 classes."""
    return build("mlp", {"width": 8}, (5,), 3, 0)


@pytest.fixture
def table() -> tuple[torch.Tensor, torch.Tensor]:
    """40 records of 5 features and their labels."""
    generator = torch.Generator().manual_seed(1)
    return torch.randn(40, 5, generator=generator), torch.randint(3, (40,), generator=generator)


@pytest.fixture
def models() -> dict[str, Callable[[], Model]]:
    """All models by name."""
    return MODELS
