"""Which parameters are trained; the others are frozen, and cost neither gradients nor noise."""

from collections.abc import Callable

from torch import nn

from mia_audit.errors import UserError
from mia_audit.models import classifier


def train_all(model: nn.Module) -> None:
    """Train every parameter that the model's author did not freeze."""


def train_head(model: nn.Module) -> None:
    """Train the classifier alone."""
    head = classifier(model)
    if head is None:
        raise UserError(
            "training.train: 'head' was asked for, but the model has no classifier layer: choose all or bias"
        )
    model.requires_grad_(False)
    head.requires_grad_(True)


def train_bias(model: nn.Module) -> None:
    """Train the bias terms of all layers alone (BiTFiT; Bu et al. 2022 for the private case)."""
    biases = [value for name, value in model.named_parameters() if name.endswith("bias") and value.requires_grad]
    if not biases:
        raise UserError("training.train: 'bias' was asked for, but the model has no bias terms: choose all or head")
    model.requires_grad_(False)
    for value in biases:
        value.requires_grad_(True)


PARTS: dict[str, Callable[[nn.Module], None]] = {"all": train_all, "head": train_head, "bias": train_bias}
