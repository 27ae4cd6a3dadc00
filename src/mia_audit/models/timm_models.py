"""timm's models by name: the family of all names that are not registered here."""

import re
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from torch import Tensor, nn

from mia_audit.errors import UserError
from mia_audit.models.catalogue import Parameters, architectures
from mia_audit.models.inputs import channels_and_size, image_size, input_shape
from mia_audit.runtime.torchvision_guard import guard

PLAIN = re.compile(r"[A-Za-z0-9_]+(\.[A-Za-z0-9_]+)*")
"""Pattern of the names in timm's own list, with or without a tag.

Without this check, timm would also load from `hf-hub:…`, `local-dir:…` and paths.
"""


LOADERS = (
    *("checkpoint_path", "cache_dir", "features_only", "exportable", "scriptable"),
    *("state_dict", "file", "url", "hf_hub_id", "hf_hub_filename", "source", "custom_load"),
)
"""Arguments of timm that load other weights, or return something other than the model. Configs may not set them."""


def check_arguments(model: str, arguments: Mapping[str, Any]) -> None:
    """Raise UserError for a name that is not a timm model's, and for arguments that load weights which the audit would not know about."""
    timm = _timm()
    if not PLAIN.fullmatch(model) or not timm.is_model(model):
        raise UserError(f"unknown model '{model}': {_nearest(model, timm.list_models())}")
    for name in arguments:
        if name in LOADERS or name.startswith("pretrained"):
            raise UserError(
                f"model '{model}': parameter '{name}' loads weights, or builds another model; for initial weights, set pretrained"
            )


class TimmFamily:
    """A timm model by name; parameters go to its constructor.

    Records are resized to `img_size` if it is given, else to the size that a model of fixed input size requires (224
    for `vit_small_patch16_224`); for models that accept any size it is that of the pool's images.
    """

    def arguments(self, model: str, parameters: Parameters, shape: tuple[int, ...], classes: int) -> dict[str, Any]:
        check_arguments(model, parameters)
        channels, size = channels_and_size(model, shape)
        traits = published_traits(model)
        if traits is not None and traits.fixed_input_size:
            size = traits.input_size[1:]
        return {**parameters, "img_size": image_size(parameters, size), "in_chans": channels, "num_classes": classes}

    def construct(self, model: str, arguments: Mapping[str, Any]) -> nn.Module:
        return _create(model, arguments, pretrained=False)

    def fitted(self, model: str, arguments: Mapping[str, Any], tensors: Mapping[str, Tensor] | None) -> nn.Module:
        """Build the model with its published or the given weights, which timm adapts.

        The model has as many classes as the weights, so that timm loads all of them or raises.
        """
        traits = published_traits(model)
        if traits is None:
            raise ValueError("timm lists no published weights for it")
        if tensors is None:
            return _create(model, {**arguments, "num_classes": traits.num_classes}, pretrained=True)
        bias = tensors.get(f"{traits.classifier}.bias")
        classes = 0 if bias is None else len(bias)
        overlay = {"state_dict": dict(tensors), "num_classes": classes, "custom_load": False}
        return _create(model, {**arguments, "num_classes": classes}, pretrained=True, pretrained_cfg_overlay=overlay)

    def input_shape(self, arguments: Mapping[str, Any]) -> tuple[int, ...]:
        return input_shape(arguments)


def published_traits(model: str) -> Any:
    """Return timm's description of a model's published weights (input_size, mean, std, num_classes …), or None."""
    timm = _timm()
    return timm.get_pretrained_cfg(model, allow_unregistered=True) if timm.is_model(model) else None


def _create(model: str, arguments: Mapping[str, Any], **options: Any) -> nn.Module:
    timm = _timm()
    check_arguments(model, arguments)
    try:
        built: nn.Module = timm.create_model(model, **options, **arguments)
    except TypeError as error:
        if "'img_size'" not in str(error):
            raise
        sized = {name: value for name, value in arguments.items() if name != "img_size"}
        built = timm.create_model(model, **options, **sized)
    return built


def _timm() -> Any:
    guard()
    import timm

    return timm


def _nearest(model: str, names: list[str]) -> str:
    near = get_close_matches(model, [*names, *architectures], n=1, cutoff=0.6)
    own = ", ".join(architectures.names())
    return f"did you mean '{near[0]}'?" if near else f"known: {own}, and the {len(names)} of timm.list_models()"


timm_family = TimmFamily()
