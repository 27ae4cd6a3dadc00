"""Exact per-record gradients of every trainable parameter, and their clipped sum in bounded memory."""

import math
from collections.abc import Callable, Sequence
from typing import Protocol, runtime_checkable

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value, vmap

from mia_audit.compute.memory import Halving
from mia_audit.training.batchable import Batchable
from mia_audit.training.clipping import Clipping

HELD = {"cpu": 2**27, "cuda": 2**32}
"""Bytes of per-record gradients held at once: on a CPU, more than this leaves the caches and costs time."""

Gradients = dict[str, Float[Tensor, "b ..."]]


def per_record_gradients(model: nn.Module) -> Callable[[Tensor, Tensor], tuple[Gradients, Float[Tensor, " b"]]]:
    """Return a function from inputs [B, …] and labels [B] to every trainable parameter's gradients [B, …] and losses [B].

    torch.func's vmap over grad of the cross-entropy of one record: exact for every parameter of any model that treats
    records apart; layers that draw randomness draw it anew for every record.
    """
    trainable = {name: value for name, value in model.named_parameters() if value.requires_grad}

    def loss(parameters: dict[str, Tensor], record: Tensor, label: Tensor) -> Tensor:
        logits = functional_call(model, parameters, (record[None],))
        return F.cross_entropy(logits, label[None])

    batched = vmap(grad_and_value(loss), in_dims=(None, 0, 0), randomness="different")

    def gradients(inputs: Tensor, labels: Tensor) -> tuple[Gradients, Tensor]:
        parameters = {name: value.detach() for name, value in trainable.items()}
        with Batchable(alone=len(inputs) == 1):
            found: tuple[Gradients, Tensor] = batched(parameters, inputs, labels)
        return found

    return gradients


def add_clipped(
    gradients: Gradients, clipping: Clipping, total: Float[Tensor, " p"], scales: Sequence[Tensor] = ()
) -> None:
    """Add the sum of clipped per-record gradients to a vector over all parameters, in the order of the mapping.

    A record's norm is over all parameters together; `scales`, where there are any, hold what a parameter's gradient is
    multiplied by in it, one number or as many as the parameter has. A record whose gradient is not finite adds nothing,
    so that it cannot make itself known by destroying the sum.
    """
    rows = [value.flatten(1) for value in gradients.values()]
    lengths = map(_scaled_norms, rows, scales) if scales else map(_norms, rows)
    norms = torch.stack(list(lengths)).norm(dim=0)
    finite = norms.isfinite()
    if not finite.all():
        rows, norms = [row[finite] for row in rows], norms[finite]
    factors = clipping.factors(norms)
    for piece, row in zip(torch.split(total, [row.shape[1] for row in rows]), rows, strict=True):
        piece.addmv_(row.t(), factors)


def _norms(row: Float[Tensor, "b p"]) -> Float[Tensor, " b"]:
    norms: Tensor = torch.linalg.vector_norm(row, dim=1)
    return norms


def _scaled_norms(row: Float[Tensor, "b p"], scale: Float[Tensor, " s"]) -> Float[Tensor, " b"]:
    return _norms(row) * scale if len(scale) == 1 else _norms(row * scale)


@runtime_checkable
class ClosedForm(Protocol):
    """A model that knows the clipped sum of its per-record gradients without forming them."""

    def clipped_gradients(
        self, inputs: Tensor, labels: Int[Tensor, " b"], factors: Callable[[Float[Tensor, " b"]], Float[Tensor, " b"]]
    ) -> tuple[list[Tensor], Float[Tensor, " b"]]:
        """Return Σ factor(‖g_i‖) g_i of every parameter, in their order, without records whose gradient is not finite, and the losses."""


class ClippedSum:
    """The sum of a batch's clipped per-record gradients, accumulated over micro-batches.

    A micro-batch holds at most `micro_batch` records, and at most as many gradients as fit in memory well. A model that
    knows the sum in closed form is asked for it, where all its parameters are trained.
    """

    def __init__(self, model: nn.Module, clipping: Clipping, micro_batch: int) -> None:
        self.parameters = [value for value in model.parameters() if value.requires_grad]
        self.size = sum(value.numel() for value in self.parameters)
        self.clipping = clipping
        held = HELD[self.parameters[0].device.type] // (4 * self.size)
        self.at_once = Halving(max(1, min(micro_batch, max(held, 4))))
        whole = self.size == sum(value.numel() for value in model.parameters())
        self._closed = model.clipped_gradients if whole and isinstance(model, ClosedForm) else None
        self._scales: list[Tensor] = []
        self._gradients = per_record_gradients(model)

    def scale_norms(self, scales: Float[Tensor, " p"]) -> None:
        """Clip by the norm of gradients times these numbers; what is summed stays as it is."""
        pieces = torch.split(scales, [value.numel() for value in self.parameters])
        self._closed = None  # it clips by the norm as it is
        self._scales = [piece[:1] if bool((piece == piece[0]).all()) else piece for piece in pieces]

    def __call__(self, inputs: Tensor, labels: Int[Tensor, " b"]) -> tuple[Float[Tensor, " p"], Float[Tensor, ""]]:
        """Return the sum over all parameters in one vector (zero for an empty batch), and the sum of the losses."""
        return self.at_once(lambda size: self._summed(inputs, labels, size))

    def _summed(self, inputs: Tensor, labels: Int[Tensor, " b"], size: int) -> tuple[Tensor, Tensor]:
        total = inputs.new_zeros(self.size)
        losses = inputs.new_zeros(())
        parts = math.ceil(len(labels) / size)
        cuts = zip(torch.tensor_split(inputs, parts), torch.tensor_split(labels, parts), strict=True) if parts else ()
        for records, truth in cuts:
            losses += self._add(records, truth, total).sum()
        return total, losses

    def _add(self, inputs: Tensor, labels: Int[Tensor, " b"], total: Float[Tensor, " p"]) -> Float[Tensor, " b"]:
        """Add a micro-batch's clipped gradients to the total; return its losses."""
        if self._closed is not None:
            sums, losses = self._closed(inputs, labels, self.clipping.factors)
            total += torch.cat([value.flatten() for value in sums])
            return losses
        gradients, losses = self._gradients(inputs, labels)
        add_clipped(gradients, self.clipping, total, *([self._scales] if self._scales else []))
        return losses

    def assign(self, vector: Float[Tensor, " p"]) -> None:
        """Cut a vector over all parameters into their `grad`."""
        pieces = torch.split(vector, [value.numel() for value in self.parameters])
        for value, piece in zip(self.parameters, pieces, strict=True):
            value.grad = piece.view_as(value)
