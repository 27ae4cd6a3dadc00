"""The choice of trained parameters. The others are frozen, and need neither gradients nor noise.

A classifier that is trained alone reads the same features in every step. They are computed once, with the frozen layers
in evaluation mode: without dropout, and with the running statistics of batch normalisation, which therefore stay as
they are. All models of a block that have the same frozen weights share the features.
"""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from mia_audit.errors import UserError
from mia_audit.models.architecture import check_state, classifier, classifier_names, construct
from mia_audit.models.inputs import Inputs, Subset
from mia_audit.models.weights import FACTORS, completed, digest_of
from mia_audit.privacy.per_record import Lengths, check_apart, each_apart
from mia_audit.runtime.device import AdaptiveBatchSize, computing
from mia_audit.training.section import Lora, Training

Batches = Inputs | Subset | Tensor
"""Inputs of the model, indexed by a slice or a tensor of rows."""


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


class Adapter(nn.Module):
    """A frozen linear layer W and an adapter, x ↦ W x + (alpha / rank) · up · down · x (Hu et al. 2022, equation 3).

    `down` is drawn uniformly from ± 1/√inputs and `up` starts at 0, as in the authors' code.
    """

    def __init__(self, layer: nn.Linear, lora: Lora, random: torch.Generator) -> None:
        super().__init__()
        self.layer, self.scale = layer, lora.alpha / lora.rank
        drawn = (2 * torch.rand(lora.rank, layer.in_features, generator=random) - 1) / layer.in_features**0.5
        self.down = nn.Parameter(drawn.to(layer.weight))
        self.up = nn.Parameter(layer.weight.new_zeros(layer.out_features, lora.rank))

    def forward(self, inputs: Tensor) -> Tensor:
        adapted: Tensor = self.layer(inputs) + self.scale * F.linear(F.linear(inputs, self.down), self.up)
        return adapted


def add_adapters(model: nn.Module, lora: Lora, seed: int) -> None:
    """Train adapters of a model's targeted layers, drawn from a seed, and the classifier."""
    train_head(model)
    head, random = classifier(model), torch.Generator().manual_seed(seed)
    for target in lora.targets:
        layers = [
            name
            for name, layer in model.named_modules()
            if f".{name}".endswith(f".{target}") and isinstance(layer, nn.Linear) and layer is not head
        ]
        if not layers:
            raise UserError(f"training.lora.targets: the model has no linear layer '{target}' beside its classifier")
        for name in layers:
            model.set_submodule(name, Adapter(model.get_submodule(name), lora, random))  # type: ignore[arg-type]


def merge_adapters(model: nn.Module) -> dict[str, Tensor]:
    """Replace adapters by their layers with changed weights; return the factors of the changes, as they are stored."""
    adapters = {f"{name}.weight": layer for name, layer in model.named_modules() if isinstance(layer, Adapter)}
    factors = {
        f"{name}{factor}": value.detach().cpu()
        for name, adapter in adapters.items()
        for factor, value in zip(FACTORS, (adapter.scale * adapter.up, adapter.down), strict=True)
    }
    changed = completed({name: adapter.layer.weight.detach().cpu() for name, adapter in adapters.items()}, factors)
    for name, adapter in adapters.items():
        adapter.layer.weight.data = changed[name].to(adapter.layer.weight.device)
        model.set_submodule(name.removesuffix(".weight"), adapter.layer)
    return factors


def choose_part(model: nn.Module, training: Training, seed: int = 0) -> None:
    """Freeze all parameters that are not trained; adapters are added, drawn from the seed."""
    if training.lora is not None:
        add_adapters(model, training.lora, seed)
    elif training.trainable == "head":
        train_head(model)
    elif training.trainable == "bias":
        train_bias(model)


def check_part(architecture: Mapping[str, Any], training: Training) -> None:
    """Raise UserError if a model has no such part, or if its output does not depend on each of the part's adapters."""
    model = construct(architecture, seed=0).eval()
    choose_part(model, training)
    if training.lora is None:
        Features()(model, training, torch.zeros(2, *architecture["input_shape"]), 2)
        return
    with suppress(AttributeError):  # a model that reads the layer's weight itself
        logits: Tensor = model(torch.ones(2, *architecture["input_shape"]))
        logits.square().sum().backward()  # type: ignore[no-untyped-call]
    for name, value in model.named_parameters():
        if value.requires_grad and value.grad is None:
            raise UserError(
                f"training.lora.targets: the model's output does not depend on '{name}': choose other layers"
            )


class Movement:
    """A check that training moves the parameters that it trains, and no other (biases may have no gradient)."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._frozen = self._digest()
        self._first = {
            name: value.detach().clone()
            for name, value in model.named_parameters()
            if value.requires_grad and not name.endswith("bias")
        }

    def _digest(self) -> str:
        return digest_of(
            {name: value.cpu() for name, value in self._model.named_parameters() if not value.requires_grad}
        )

    def check(self) -> None:
        """Raise RuntimeError if a frozen parameter has changed, and UserError if a trained one of a part has not."""
        if self._digest() != self._frozen:
            raise RuntimeError("training changed a parameter that is frozen")
        for name, value in self._model.named_parameters():
            if name in self._first and torch.equal(value, self._first[name]):
                raise UserError(f"training.trainable: the training left '{name}' at its initial values: train longer")


class Features:
    """The module that a training changes, and the module's inputs. The features of the last frozen weights are kept."""

    def __init__(self) -> None:
        self._kept: tuple[Batches, str, Tensor] | None = None

    def __call__(
        self, model: nn.Module, training: Training, inputs: Inputs | Tensor, micro_batch: int, apart: bool = False
    ) -> tuple[nn.Module, Inputs | Tensor]:
        """Return the model and its inputs or, if only the classifier is trained, the classifier and its features [n, …].

        Under a private mechanism every record passes the frozen layers `apart` from all others, whatever the layers do.
        Raises UserError for a model whose state a pass changes then, or whose passes depend on values of records.
        """
        head = classifier(model)
        if training.trainable != "head" or head is None:
            return model, inputs
        trained = classifier_names(model)
        precision = training.precision or "float32"
        frozen = {name: value.cpu() for name, value in model.state_dict().items() if name not in trained}
        key = f"{precision} {apart} {digest_of(frozen)}"
        if self._kept is None or self._kept[0] is not inputs or self._kept[1] != key:
            if apart:
                check_state(model.eval(), tuple(inputs[0:1].shape[1:]))
            with computing(model.eval(), precision):
                features = AdaptiveBatchSize(micro_batch)(lambda size: _features(model, head, inputs, size, apart))
            self._kept = inputs, key, features
        return _alone(head), self._kept[2]


def _alone(head: nn.Module) -> nn.Module:
    return nn.Sequential(head, nn.Flatten())  # some classifiers are convolutions of a single pixel


@torch.no_grad()
def _features(
    model: nn.Module, head: nn.Module, inputs: Inputs | Tensor, size: int, apart: bool
) -> Float[Tensor, "n ..."]:
    """Return what the classifier receives for every record. Raises UserError if the logits are not the classifier's output.

    If records pass `apart`, that is tried on synthetic ones instead, so that no record decides it, and other records
    do not change the bits of its features.
    """
    seen: list[Tensor] = []
    handle = head.register_forward_pre_hook(lambda _, given: seen.append(given[0].float().clone()))

    def passed(records: Tensor) -> tuple[Tensor, ...]:
        seen.clear()
        logits = model(records)
        return (seen[0], logits, _alone(head)(seen[0])) if len(seen) == 1 else (logits, logits, logits + 1)

    def features_of(records: Tensor) -> Tensor:
        features, logits, own = passed(records)
        if not torch.equal(own, logits):
            raise UserError(
                "training.trainable: head: the model's output is not that of its last linear layer; choose all or bias"
            )
        return features

    count = len(inputs)
    try:
        if not apart:
            return torch.cat([features_of(inputs[start : start + size]) for start in range(0, count, size)])
        like = inputs[0:1]
        tried = features_of(torch.randn(2, *like.shape[1:], generator=torch.Generator().manual_seed(0)).to(like))
        through = each_apart(passed)
        with computing(model, "float32"), torch.autocast(like.device.type, enabled=False):
            check_apart(lambda some: [through(some)[0].flatten(1)], tuple(like.shape[1:]), like)
        passes = Lengths(lambda some: through(some)[0], like.shape[1:], like, tried[0].numel()).cut(count, size)
        return torch.cat([through(inputs[rows])[0][:new] for rows, new in passes])
    finally:
        handle.remove()
