"""The choice of trained parameters. The others are frozen, and need neither gradients nor noise."""

from collections.abc import Callable

from torch import nn

from mia_audit.errors import UserError
from mia_audit.models import classifier


def train_all(model: nn.Module) -> None:
    """Train all parameters except those that the architecture itself freezes."""


def train_head(model: nn.Module) -> None:
    """Train only the classifier."""
    head = classifier(model)
    if head is None:
        raise UserError("training.trainable: head: the model has no classifier layer; choose all or bias")
    model.requires_grad_(False)
    head.requires_grad_(True)


def train_bias(model: nn.Module) -> None:
    """Train only the bias terms of all layers (BiTFiT; Bu et al. 2022 for the private case)."""
    biases = [value for name, value in model.named_parameters() if name.endswith("bias") and value.requires_grad]
    if not biases:
        raise UserError("training.trainable: bias: the model has no bias terms; choose all or head")
    model.requires_grad_(False)
    for value in biases:
        value.requires_grad_(True)


PARTS: dict[str, Callable[[nn.Module], None]] = {"all": train_all, "head": train_head, "bias": train_bias}
"""Values of training.trainable, with functions that freeze all other parameters of a model."""
