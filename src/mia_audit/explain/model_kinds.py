"""Properties of built-in models that are known from the model's name alone. Nothing here imports torch."""

from dataclasses import dataclass
from typing import Literal

from mia_audit.registry import IN_FILE


@dataclass(frozen=True)
class Kind:
    """The records that a model takes, whether it has channels (convolutions or tokens of an image), and whether all layers are plain."""

    takes: tuple[Literal["image", "table"], ...] = ("image",)
    channels: bool = True
    plain: bool = False


KINDS = {
    "mlp": Kind(("table",), channels=False),
    "locally-linear-maps": Kind(("image", "table"), channels=False),
}
"""Built-in models that differ from timm's models, because they take tables or have no channels."""
ANY = Kind(("image", "table"), plain=True)
"""A model in a user's file, which may take any records."""


def kind_of(model: str) -> Kind:
    """Return the kind of the model of that name; an unknown name is treated as that of a timm model."""
    return ANY if IN_FILE.fullmatch(model) else KINDS.get(model, Kind())
