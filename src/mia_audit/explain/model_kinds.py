"""What can be said of a built-in model by its name, before it is built: nothing here imports torch."""

from dataclasses import dataclass
from typing import Literal

from mia_audit.registry import IN_FILE


@dataclass(frozen=True)
class Kind:
    """The records that a model takes, whether it has channels (convolutions or tokens of an image), and only plain layers."""

    takes: tuple[Literal["image", "table"], ...] = ("image",)
    channels: bool = True
    plain: bool = False


KINDS = {
    "mlp": Kind(("table",), channels=False),
    "locally-linear-maps": Kind(("image", "table"), channels=False),
}
"""Built-in models that are not as timm's are: those of tables, and those without channels."""
ANY = Kind(("image", "table"), plain=True)
"""A model in a user's file, which takes what it likes."""


def kind_of(model: str) -> Kind:
    """Return what a model of that name is; one that is not known is taken for timm's."""
    return ANY if IN_FILE.fullmatch(model) else KINDS.get(model, Kind())
