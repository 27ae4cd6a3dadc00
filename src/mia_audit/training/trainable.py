"""The choice of trained parameters. The others are frozen, and need neither gradients nor noise.

A classifier that is trained alone reads the same features in every step. They are computed once, with the frozen layers
in evaluation mode: without dropout, and with the running statistics of batch normalisation, which therefore stay as
they are. All models of a block that have the same frozen weights share the features.
"""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from mia_audit.errors import UserError
from mia_audit.models import Inputs, Subset, classifier
from mia_audit.models.architecture import classifier_names
from mia_audit.models.weights import digest_of
from mia_audit.runtime.device import AdaptiveBatchSize, computing
from mia_audit.training.section import Training

Batches = Inputs | Subset | Tensor
"""Inputs of the model, indexed by a slice or a tensor of rows."""


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


class Features:
    """The module that a training changes, and the module's inputs. The features of the last two frozen weights are kept."""

    def __init__(self) -> None:
        self._kept: list[tuple[Batches, str, Tensor]] = []  # two, because trained weights may be rounded

    def __call__(
        self, model: nn.Module, training: Training, inputs: Inputs | Tensor, micro_batch: int
    ) -> tuple[nn.Module, Inputs | Tensor]:
        """Return the model and its inputs or, if only the classifier is trained, the classifier and its features [n, …]."""
        head = classifier(model)
        if training.trainable != "head" or head is None:
            return model, inputs
        trained = classifier_names(model)
        precision = training.precision or "float32"
        frozen = {name: value.cpu() for name, value in model.state_dict().items() if name not in trained}
        key = f"{precision} {digest_of(frozen)}"
        for whose, known, features in self._kept:
            if whose is inputs and known == key:
                return _alone(head), features
        with computing(model.eval(), precision):
            features = AdaptiveBatchSize(micro_batch)(lambda size: _features(model, head, inputs, size))
        self._kept = [*self._kept[-1:], (inputs, key, features)]
        return _alone(head), features


def _alone(head: nn.Module) -> nn.Module:
    return nn.Sequential(head, nn.Flatten())  # some classifiers are convolutions of a single pixel


@torch.no_grad()
def _features(model: nn.Module, head: nn.Module, inputs: Inputs | Tensor, size: int) -> Float[Tensor, "n ..."]:
    """Return what the classifier receives for every record. Raises UserError if the logits are not the classifier's output."""
    seen: list[Tensor] = []
    handle = head.register_forward_pre_hook(lambda _, given: seen.append(given[0].float().clone()))
    try:
        logits = [model(inputs[start : start + size]) for start in range(0, len(inputs), size)]
    finally:
        handle.remove()
    if len(seen) != len(logits) or not all(map(torch.equal, map(_alone(head), seen), logits)):
        raise UserError(
            "training.trainable: head: the model's output is not that of its last linear layer; choose all or bias"
        )
    return torch.cat(seen)
