"""A multilayer perceptron with LayerNorm, for tables."""

from collections.abc import Mapping
from typing import Any

from torch import nn

from mia_audit.errors import UserError, suggest
from mia_audit.models.catalogue import Parameters, architectures

DEFAULTS = {"width": 128, "depth": 2, "dropout": 0.0}


class MLP(nn.Sequential):
    """`depth` blocks of Linear, LayerNorm, GELU (and dropout), then a linear head: [B, features] to [B, classes]."""

    def __init__(self, features: int, classes: int, width: int, depth: int, dropout: float) -> None:
        layers: list[nn.Module] = []
        for block in range(depth):
            layers += [nn.Linear(features if block == 0 else width, width), nn.LayerNorm(width), nn.GELU()]
            if dropout:
                layers.append(nn.Dropout(dropout))
        super().__init__(*layers, nn.Linear(width if depth else features, classes))


class MLPFamily:
    """`mlp`: parameters width, depth (hidden layers; 0 is logistic regression) and dropout."""

    def arguments(self, model: str, parameters: Parameters, shape: tuple[int, ...], classes: int) -> dict[str, Any]:
        if len(shape) != 1:
            raise UserError(
                f"model 'mlp' takes tables, not images of shape {list(shape)}: choose an image model such as 'vision_transformer'"
            )
        for name in parameters:
            if name not in DEFAULTS:
                raise UserError(f"model 'mlp' has no parameter '{name}': {suggest(name, DEFAULTS)}")
        return {**DEFAULTS, **parameters, "features": shape[0], "classes": classes}

    def construct(self, model: str, arguments: Mapping[str, Any]) -> nn.Module:
        return MLP(**arguments)

    def input_shape(self, arguments: Mapping[str, Any]) -> tuple[int, ...]:
        return (arguments["features"],)


architectures.register("mlp")(MLPFamily())
