"""A MobileNet with GroupNorm and one added convolution: the CNN of the FADP paper, which has BatchNorm instead."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from torch import Tensor, nn

from mia_audit.errors import UserError, suggest
from mia_audit.models.catalogue import Parameters, architectures
from mia_audit.models.images import channels_and_size, image_size, input_shape
from mia_audit.runtime.torchvision_guard import guard

STAGES = ("dsa_r1_k3_s1_c64", "dsa_r2_k3_s2_c128", "dsa_r2_k3_s2_c256", "dsa_r6_k3_s2_c512", "dsa_r2_k3_s2_c1024")
"""MobileNet's stages (Howard et al. 2017) as timm writes them: repeats, stride and channels of depthwise-separable blocks."""
GROUP = 8
"""Number of channels in a group; timm rounds the channels of a thin network to multiples of this number."""
DEFAULTS: dict[str, Any] = {"width": 1.0, "stages": 5, "stem_stride": 2, "added": 64}


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
        known = [*DEFAULTS, "img_size"]
        for name in parameters:
            if name not in known:
                raise UserError(f"model '{model}' has no parameter '{name}': {suggest(name, known)}")
        given = {**DEFAULTS, **{name: parameters[name] for name in DEFAULTS if name in parameters}}
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
