"""A network of two convolutions and one hidden layer without normalisation, the baseline of Harder et al. (2020).

The small network M_b of Harder et al. (2020), Figure 8: two strided convolutions and a hidden layer of 32 units.

A multilayer perceptron with LayerNorm, for tables.

timm's VisionTransformer built from its constructor's parameters (image size, patch, width, depth, heads).

A MobileNet with GroupNorm and one added convolution: the CNN of the FADP paper, which has BatchNorm instead.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from functools import partial
from typing import Any

from torch import Tensor, nn

from mia_audit.errors import UserError
from mia_audit.models.catalogue import Parameters, architecture, architectures, check_known, whole
from mia_audit.models.inputs import channels_and_size, image_size, input_shape
from mia_audit.runtime.torchvision_guard import guard

CNN_DEFAULTS = {"first": 20, "second": 50, "hidden": 500, "kernel": 5}
OPTIONAL = ("padding", "img_size")


class CNN(nn.Sequential):
    """Two blocks of convolution, ReLU and 2 × 2 max-pooling, then a hidden layer and a linear head: [B, C, H, W] to [B, classes]."""

    def __init__(
        self, channels: int, flat: int, classes: int, first: int, second: int, hidden: int, kernel: int, padding: int
    ) -> None:
        super().__init__(
            *[nn.Conv2d(channels, first, kernel, padding=padding), nn.ReLU(), nn.MaxPool2d(2)],
            *[nn.Conv2d(first, second, kernel, padding=padding), nn.ReLU(), nn.MaxPool2d(2)],
            *[nn.Flatten(), nn.Linear(second * flat, hidden), nn.ReLU(), nn.Linear(hidden, classes)],
        )


class CNNFamily:
    """`cnn`: parameters first and second (channels), hidden (units), kernel and padding (pixels on every side).

    The defaults are the paper's layers: 5 × 5, 20 and 50 channels, 500 units, no padding. If unpadded convolutions
    would leave nothing of an image, as of the 8 × 8 digits, the default is padding that keeps the image's size (2
    pixels for a 5 × 5 kernel).
    """

    def arguments(self, model: str, parameters: Parameters, shape: tuple[int, ...], classes: int) -> dict[str, Any]:
        check_known(model, parameters, [*CNN_DEFAULTS, *OPTIONAL])
        for name, value in parameters.items():
            whole(name, value, least=0 if name == "padding" else 1)
        channels, size = channels_and_size(model, shape)
        pixels = image_size(parameters, size)
        sides = (pixels, pixels) if isinstance(pixels, int) else tuple(pixels)
        given: dict[str, Any] = {
            **CNN_DEFAULTS,
            **{name: parameters[name] for name in CNN_DEFAULTS if name in parameters},
        }
        padding = parameters.get("padding")
        if padding is None:
            padding = 0 if min(left(side, given["kernel"], 0) for side in sides) > 0 else given["kernel"] // 2
        over = [left(side, given["kernel"], int(padding)) for side in sides]
        if min(over) < 1:
            raise UserError(
                f"model 'cnn': an image of {sides[0]} × {sides[1]} pixels is too small for two convolutions of {given['kernel']} × "
                f"{given['kernel']} with padding {padding}, each followed by pooling: raise img_size or padding, or lower kernel"
            )
        return {
            **given,
            "padding": padding,
            "img_size": pixels,
            "in_chans": channels,
            "flat": over[0] * over[1],
            "classes": classes,
        }

    def construct(self, model: str, arguments: Mapping[str, Any]) -> nn.Module:
        own = {name: value for name, value in arguments.items() if name not in ("img_size", "in_chans")}
        return CNN(channels=arguments["in_chans"], **own)

    def input_shape(self, arguments: Mapping[str, Any]) -> tuple[int, ...]:
        return input_shape(arguments)


def left(side: int, kernel: int, padding: int) -> int:
    """Return a side's length in pixels after two unit-stride convolutions, each followed by pooling to half."""
    for _ in range(2):
        side = max(side + 2 * padding - kernel + 1, 0) // 2
    return side


architectures.register("cnn")(CNNFamily())

LEAST = 14
"""Smallest side in pixels for which the last layer has an output."""


@architecture("cnn-strided")
def cnn_strided(shape: tuple[int, ...], classes: int) -> nn.Module:
    """Build two convolutions of stride 2, with 16 filters of 8 × 8 and 32 filters of 4 × 4, then 32 units.

    Each convolution is followed by ReLU and 2 × 2 max-pooling of stride 1.

    The network maps [B, C, H, W] to [B, classes] and has 26,010 parameters for 28 × 28 grey pixels and 10 classes.
    Raises UserError for tables, and for images with fewer than 14 pixels on a side.
    """
    channels, sides = channels_and_size("cnn-strided", shape)
    if min(sides) < LEAST:
        raise UserError(
            f"model 'cnn-strided': an image of {sides[0]} × {sides[1]} pixels is too small; expected at least {LEAST} on each side: choose cnn"
        )
    height, width = ((side // 2 - 5) // 2 for side in sides)
    return nn.Sequential(
        *[nn.Conv2d(channels, 16, 8, stride=2, padding=3), nn.ReLU(), nn.MaxPool2d(2, stride=1)],
        *[nn.Conv2d(16, 32, 4, stride=2), nn.ReLU(), nn.MaxPool2d(2, stride=1)],
        *[nn.Flatten(), nn.Linear(32 * height * width, 32), nn.ReLU(), nn.Linear(32, classes)],
    )


MLP_DEFAULTS = {"width": 128, "depth": 2, "dropout": 0.0}


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
        check_known(model, parameters, MLP_DEFAULTS)
        return {**MLP_DEFAULTS, **parameters, "features": shape[0], "classes": classes}

    def construct(self, model: str, arguments: Mapping[str, Any]) -> nn.Module:
        return MLP(**arguments)

    def input_shape(self, arguments: Mapping[str, Any]) -> tuple[int, ...]:
        return (arguments["features"],)


architectures.register("mlp")(MLPFamily())


OWN = {"in_chans", "num_classes"}
"""Arguments that the pool decides."""


class VisionTransformerFamily:
    """`vision_transformer`: any parameter of timm's class; img_size is by default that of the pool's images."""

    def arguments(self, model: str, parameters: Parameters, shape: tuple[int, ...], classes: int) -> dict[str, Any]:
        check_known(model, parameters, inspect.signature(_vision_transformer()).parameters.keys() - OWN)
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

STAGES = ("dsa_r1_k3_s1_c64", "dsa_r2_k3_s2_c128", "dsa_r2_k3_s2_c256", "dsa_r6_k3_s2_c512", "dsa_r2_k3_s2_c1024")
"""MobileNet's stages (Howard et al. 2017) as timm writes them: repeats, stride and channels of depthwise-separable blocks."""
GROUP = 8
"""Number of channels in a group; timm rounds the channels of a thin network to multiples of this number."""
MOBILENET_DEFAULTS: dict[str, Any] = {"width": 1.0, "stages": 5, "stem_stride": 2, "added": 64}


class MobileNet(nn.Module):
    """timm's network up to its features, then a 3 × 3 convolution, GroupNorm, ReLU, mean over positions and a linear head."""

    def __init__(self, backbone: nn.Module, features: int, added: int, classes: int) -> None:
        super().__init__()
        self.backbone = backbone
        convolution = nn.Conv2d(features, added, 3, padding=1)
        self.added = nn.Sequential(convolution, nn.GroupNorm(max(1, added // GROUP), added), nn.ReLU())
        self.head = nn.Linear(added, classes)

    def get_classifier(self) -> nn.Module:
        """Return the head, as timm's models do."""
        return self.head

    def forward(self, images: Tensor) -> Tensor:
        """Map [B, C, H, W] to [B, classes]."""
        pooled: Tensor = self.added(self.backbone(images)).mean(dim=(2, 3))
        logits: Tensor = self.head(pooled)
        return logits


class MobileNetFamily:
    """`mobilenet_groupnorm`: parameters width, stages, stem_stride and added.

    `width` multiplies the channels, `stages` is 1 to 5, `stem_stride` is 1 or 2, and `added` is the number of channels
    of the added convolution.

    The defaults are MobileNet for 224 pixels, whose last features have 1/32 of that side. Small images need fewer
    strides. With stem_stride: 1, stages: 3 ends at a quarter of the side (for 32 pixels), stages: 2 at a half (for 8
    pixels).
    """

    def arguments(self, model: str, parameters: Parameters, shape: tuple[int, ...], classes: int) -> dict[str, Any]:
        check_known(model, parameters, [*MOBILENET_DEFAULTS, "img_size"])
        given = {**MOBILENET_DEFAULTS, **{name: parameters[name] for name in MOBILENET_DEFAULTS if name in parameters}}
        _check(given, "width", float, 0.0625, 4)
        _check(given, "stages", int, 1, len(STAGES))
        _check(given, "stem_stride", int, 1, 2)
        _check(given, "added", int, 1, 4096)
        channels, size = channels_and_size(model, shape)
        return {**given, "img_size": image_size(parameters, size), "in_chans": channels, "classes": classes}

    def construct(self, model: str, arguments: Mapping[str, Any]) -> nn.Module:
        guard()
        from timm.layers.norm_act import GroupNormAct
        from timm.models._efficientnet_builder import decode_arch_def, round_channels
        from timm.models.efficientnet import EfficientNet

        backbone = EfficientNet(
            decode_arch_def([[stage] for stage in STAGES[: arguments["stages"]]]),  # type: ignore[no-untyped-call]
            num_classes=0,
            num_features=0,
            in_chans=arguments["in_chans"],
            global_pool="",
            norm_layer=partial(GroupNormAct, group_size=GROUP),
            round_chs_fn=partial(round_channels, multiplier=arguments["width"]),
        )
        backbone.conv_stem.stride = (arguments["stem_stride"],) * 2
        return MobileNet(backbone, backbone.num_features, arguments["added"], arguments["classes"])

    def input_shape(self, arguments: Mapping[str, Any]) -> tuple[int, ...]:
        return input_shape(arguments)


def _check(given: Mapping[str, Any], name: str, kind: type, low: float, high: float) -> None:
    value = given[name]
    right = isinstance(value, int | float if kind is float else int) and not isinstance(value, bool)
    if not right or not low <= value <= high:
        what = "a number" if kind is float else "a whole number"
        raise UserError(f"parameters.{name}: {what} from {low:g} to {high:g} was expected, not {value!r}")


architectures.register("mobilenet_groupnorm")(MobileNetFamily())
