"""Two small models and a few records: a float64 network for exact comparisons and a float32 transformer as audits use it."""

from typing import NamedTuple

import pytest
import torch
from torch import Tensor, nn

from mia_audit.models.architecture import build


class Subject(NamedTuple):
    model: nn.Module
    inputs: Tensor
    labels: Tensor
    tolerance: float
    """Largest difference allowed, relative to the record's largest attribution: captum keeps its nodes in float32."""


def _inputs(dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    random = torch.Generator().manual_seed(1)
    inputs = torch.rand(7, 1, 8, 8, generator=random, dtype=dtype) * 2 - 1
    return inputs, torch.randint(5, (7,), generator=random)


@pytest.fixture(params=["float64", "transformer"])
def subject(request: pytest.FixtureRequest) -> Subject:
    if request.param == "transformer":
        parameters = {"img_size": 8, "patch_size": 2, "embed_dim": 24, "depth": 2, "num_heads": 2}
        model = build("vision_transformer", parameters, (1, 8, 8), 5, seed=3)
        with torch.no_grad():  # a head as it is after training: timm initialises it to almost nothing
            model.get_submodule("head").weight.normal_(generator=torch.Generator().manual_seed(2))
        return Subject(model.eval().requires_grad_(False), *_inputs(torch.float32), tolerance=1e-5)
    with torch.random.fork_rng():
        torch.manual_seed(3)
        model = nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.LayerNorm(16), nn.GELU(), nn.Linear(16, 5)).double()
    return Subject(model.eval().requires_grad_(False), *_inputs(torch.float64), tolerance=1e-7)


@pytest.fixture
def convolution() -> Subject:
    """A convolutional network with modules that captum's hooks can rewrite."""
    with torch.random.fork_rng():
        torch.manual_seed(4)
        layers = [nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 6, 3, stride=2), nn.ReLU()]
        model = nn.Sequential(*layers, nn.Flatten(), nn.Linear(54, 5)).double()
    return Subject(model.eval().requires_grad_(False), *_inputs(torch.float64), tolerance=1e-7)
