"""timm's VisionTransformer built from its constructor's parameters (image size, patch, width, depth, heads)."""

import inspect
from collections.abc import Mapping
from typing import Any

from torch import nn

from mia_audit.errors import UserError, suggest
from mia_audit.models.catalogue import Parameters, architectures
from mia_audit.models.images import channels_and_size, image_size, input_shape
from mia_audit.runtime.torchvision_guard import guard


class VisionTransformerFamily:
    """`vision_transformer`: any parameter of timm's class; img_size is by default that of the pool's images."""

    def arguments(self, model: str, parameters: Parameters, shape: tuple[int, ...], classes: int) -> dict[str, Any]:
        known = [
            name
            for name in inspect.signature(_vision_transformer()).parameters
            if name not in ("in_chans", "num_classes")
        ]
        for name in parameters:
            if name not in known:
                raise UserError(f"model 'vision_transformer' has no parameter '{name}': {suggest(name, known)}")
        channels, size = channels_and_size(model, shape)
        return {**parameters, "img_size": image_size(parameters, size), "in_chans": channels, "num_classes": classes}

    def construct(self, model: str, arguments: Mapping[str, Any]) -> nn.Module:
        built: nn.Module = _vision_transformer()(**arguments)
        return built

    def input_shape(self, arguments: Mapping[str, Any]) -> tuple[int, ...]:
        return input_shape(arguments)


def _vision_transformer() -> Any:
    guard()
    from timm.models.vision_transformer import VisionTransformer

    return VisionTransformer


architectures.register("vision_transformer")(VisionTransformerFamily())
