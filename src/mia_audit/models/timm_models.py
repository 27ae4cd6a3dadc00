"""Every timm model by name, without downloaded weights: the family of all names that have none of their own."""

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from torch import nn

from mia_audit.errors import UserError
from mia_audit.models.catalogue import Parameters, architectures
from mia_audit.models.images import channels_and_size, image_size, input_shape
from mia_audit.models.torchvision_guard import guard


class TimmFamily:
    """A timm model by name; parameters go to its constructor.

    Records are resized to `img_size` where it is given, else to the size that a model of fixed input size was made for
    (224 for `vit_small_patch16_224`); models that take any size get the pool's own.
    """

    def arguments(self, model: str, parameters: Parameters, shape: tuple[int, ...], classes: int) -> dict[str, Any]:
        timm = _timm()
        if not timm.is_model(model):
            raise UserError(f"unknown model '{model}': {_nearest(model, timm.list_models())}")
        channels, size = channels_and_size(model, shape)
        traits = timm.get_pretrained_cfg(model, allow_unregistered=True)
        if traits is not None and traits.fixed_input_size:
            size = traits.input_size[1:]
        return {**parameters, "img_size": image_size(parameters, size), "in_chans": channels, "num_classes": classes}

    def construct(self, model: str, arguments: Mapping[str, Any]) -> nn.Module:
        timm = _timm()
        try:
            built: nn.Module = timm.create_model(model, pretrained=False, **arguments)
        except TypeError as error:
            if "'img_size'" not in str(error):
                raise
            sized = {name: value for name, value in arguments.items() if name != "img_size"}
            built = timm.create_model(model, pretrained=False, **sized)
        return built

    def input_shape(self, arguments: Mapping[str, Any]) -> tuple[int, ...]:
        return input_shape(arguments)


def _timm() -> Any:
    guard()
    import timm

    return timm


def _nearest(model: str, names: list[str]) -> str:
    near = get_close_matches(model, [*names, *architectures], n=1, cutoff=0.6)
    own = ", ".join(architectures.names())
    return f"did you mean '{near[0]}'?" if near else f"known: {own}, and the {len(names)} of timm.list_models()"


timm_family = TimmFamily()
