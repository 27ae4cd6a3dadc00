"""Per-record gradients of weights as sums of outer products over positions, and their norms and clipped sums.

A weight W [p, d] of a linear layer with inputs a_t and outputs' gradients g_t at positions t has the per-record
gradient Σ_t g_t a_tᵀ, and its bias has Σ_t g_t: that of one more feature, which is 1. A convolution is a linear layer
on patches, an embedding one on one-hot features. So nothing but a and g has to be kept, and there are three ways to
the same two results, the norms of all records and Σ factor · gradient, of which the shapes alone decide:

- `factored`: ‖Σ_t g_t a_tᵀ‖² = Σ_{t,u} ⟨a_t, a_u⟩⟨g_t, g_u⟩, and the sum is one matrix product over all records and
  positions. It costs as much as a plain gradient where a layer sees one position, as those of an MLP do, and grows
  with the square of the positions. Where large terms of opposite signs cancel, the norm is raised by the bound of its
  rounding error: a norm that is too long gives up a little signal, one that is too short breaks the guarantee.
- `held`: a float32 gradient for every record, as by vmap, but formed by one batched product.
- `formed`: where these are too large to hold, they are formed twice, a few rows at a time.

All sums over records are float64: in float32, one record would change how the others are rounded, and a large sum would
move by more than the sensitivity for which noise is added.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from mia_audit.privacy.noise import add_weighted, at_once, squared_norms

Columns = Callable[[Tensor], Tensor]

ONE_HOT = 0
"""Replaces the number of groups if the columns are indices [b, t] that stand for one-hot features."""

FEW = 32
"""Gradients are not formed if the computation without them takes at most this many float64 products per element."""

LARGE = 2**18
"""Number of elements of a weight above which a record's gradient is held only if it is smaller than its factors."""


@dataclass(frozen=True)
class Product:
    """Per-record gradients of a weight [groups · p, d]: in every group it is the sum of g aᵀ over positions t.

    `columns` turns the inputs of records into a [b, groups, t, d]; `gradients` are g [b, groups, t, p]. Parameters are
    named by their numbers; the bias has one if it belongs to this layer alone. `order` is that of the weight's dimensions
    in rows of gradients; empty if it is that of the weight.
    """

    number: int
    bias: int | None
    groups: int
    inputs: Tensor
    columns: Columns
    gradients: Tensor
    order: tuple[int, ...] = ()

    def sizes(self, width: int) -> tuple[int, int, int]:
        """Return t, p and d for a weight with this number of elements."""
        groups, places, outputs = self.gradients.shape[1:]
        return places, outputs, width // (groups * outputs)

    def way(self, width: int, uniform: bool) -> str:
        """Return how a weight of this size is summed, in every batch: `factored`, `held` or `formed`.

        `factored` supports norms with one scale per parameter (`uniform`), and not one per element.
        """
        places, outputs, features = self.sizes(width)
        work = places * (1 + (places > 1) * places * (outputs + features) / (outputs * features))
        if self.groups == ONE_HOT or (self.groups == 1 and work <= FEW and uniform):
            return "factored"
        return "held" if width <= max(LARGE, self.groups * places * (outputs + features)) else "formed"

    def only_place(self) -> int | None:
        """Return the position of all gradients, None if there are several; that of a class token in the last block."""
        if self.groups != 1 or self.gradients.shape[2] == 1:
            return None
        places = self.gradients.abs().amax(dim=(0, 1, 3)).nonzero()
        return int(places) if len(places) == 1 else None

    def at(self, place: int) -> tuple["Product", Float[Tensor, " b"]]:
        """Return the product over one position, and the size of the gradients at the others, which should be 0.

        Where a record's inputs or gradients are not finite at other positions, both are NaN.
        """
        sizes = self.gradients.abs().amax(dim=(1, 3))
        sizes[:, place] = 0
        others = sizes.sum(dim=1) + 0 * self.inputs.flatten(1).sum(dim=1)
        gradients = self.gradients[:, :, place : place + 1] + 0 * others[:, None, None, None]
        inputs = self.columns(self.inputs)[:, :, place : place + 1].clone()
        return replace(self, inputs=inputs, columns=lambda some: some, gradients=gradients), others

    def form(self, out: Float[Tensor, "b n"]) -> None:
        """Write the gradients of all records, a few records at a time: columns of convolutions are copies."""
        groups, (places, outputs, features) = self.gradients.shape[1], self.sizes(out.shape[1])
        rows = out.view(len(out), groups, outputs, features)
        step = at_once(out.device, groups * places * features)
        for start in range(0, len(out), step):
            part = slice(start, start + step)
            left = self.gradients[part].float().transpose(2, 3)
            right = self.columns(self.inputs[part]).float()
            if groups == 1:
                torch.bmm(left[:, 0], right[:, 0], out=rows[part, 0])
            else:
                torch.matmul(left, right, out=rows[part])


class Factored:
    """A product whose gradients are never formed, with those of its bias: float64 copies of its factors, for norms and sum."""

    def __init__(self, product: Product) -> None:
        self.number, self.bias, self.one_hot = product.number, product.bias, product.groups == ONE_HOT
        self.order = product.order
        columns = product.columns(product.inputs)
        self.gradients: Float[Tensor, "b t p"] = product.gradients[:, 0].to(torch.float64, copy=True)
        self.columns: Tensor = columns if self.one_hot else columns[:, 0].to(torch.float64, copy=True)

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """What gradients are summed from, [b, …]."""
        return self.gradients, self.columns

    def squares(self, width: int, scale: float | Tensor, shift: float | Tensor) -> Float[Tensor, " b"]:
        """Return the squared norms, Σ over pairs of positions of (⟨a, a'⟩ scale² + shift²)⟨g, g'⟩; without a bias, `shift` is 0."""
        if self.gradients.shape[1] == 1 and not self.one_hot:
            slopes, features = (torch.linalg.vector_norm(one, dim=(1, 2)) for one in (self.gradients, self.columns))
            sides: Tensor = slopes.square_() * (features.square_() * scale**2 + shift**2)
            return sides
        ones = self.columns[:, :, None] == self.columns[:, None, :] if self.one_hot else None
        alike = self.columns @ self.columns.transpose(1, 2) if ones is None else ones.double()
        alike = alike * scale**2 + shift**2
        own = self.gradients @ self.gradients.transpose(1, 2)
        return (own * alike).sum(dim=(1, 2)).clamp(min=0) + _rounding(own, alike, width)

    def add(self, weights: Float[Tensor, " b"], out: Int[Tensor, " o"], pieces: Sequence[Float[Tensor, " n"]]) -> None:
        """Add the weighted sum to each parameter's piece, once; records left `out` have the weight 0."""
        weighted = self.gradients.mul_(weights[:, None, None]).index_fill_(0, out, 0).flatten(0, 1)
        total, outputs = pieces[self.number], weighted.shape[1]
        if self.one_hot:
            total.view(-1, outputs).index_add_(0, self.columns.flatten(), weighted)
        else:
            total.view(outputs, -1).addmm_(weighted.t(), self.columns.index_fill_(0, out, 0).flatten(0, 1))
        if self.bias is not None:
            pieces[self.bias].add_(weighted.sum(dim=0))


def _rounding(own: Float[Tensor, "b t t"], alike: Float[Tensor, "b t t"], width: int) -> Float[Tensor, " b"]:
    """Bound the rounding error of a squared norm from Gram matrices, (Σ over positions of ‖a‖‖g‖)² at most.

    Terms of opposite signs cancel where features are large: without the bound a norm may come out too small.
    """
    lengths = own.diagonal(dim1=1, dim2=2).clamp(min=0).sqrt() * alike.diagonal(dim1=1, dim2=2).clamp(min=0).sqrt()
    terms = own.shape[1] ** 2 + 2 * width
    bound: Tensor = terms * torch.finfo(torch.float64).eps * lengths.sum(dim=1).square()
    return bound


@dataclass(frozen=True)
class Formed:
    """A product whose gradients are formed a few rows at a time, as often as they are needed."""

    product: Product

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """What gradients are formed from, [b, …]."""
        return self.product.gradients, self.product.inputs

    @property
    def number(self) -> int:
        """The number of the parameter."""
        return self.product.number

    @property
    def order(self) -> tuple[int, ...]:
        """The order of the weight's dimensions in rows."""
        return self.product.order

    def squares(self, width: int, scale: Tensor | None) -> Float[Tensor, " b"]:
        """Return the squared norms of the float32 gradients."""
        parts = torch.zeros(len(self.product.gradients), dtype=torch.float64, device=self.product.gradients.device)
        for part, rows in self._parts(width):
            parts += squared_norms(rows, scale if scale is None or len(scale) == 1 else scale[part])
        return parts

    def add(self, weights: Float[Tensor, " b"], out: Int[Tensor, " o"], pieces: Sequence[Float[Tensor, " n"]]) -> None:
        """Add the weighted sum."""
        total = pieces[self.number]
        for part, rows in self._parts(len(total)):
            add_weighted(rows, weights, out, total[part])

    def _parts(self, width: int) -> Iterator[tuple[slice, Float[Tensor, "b n"]]]:
        gradients, columns = self.product.gradients, self.product.columns(self.product.inputs).float()
        _, outputs, features = self.product.sizes(width)
        step = max(1, at_once(gradients.device, len(gradients)) // features)
        for group in range(gradients.shape[1]):
            for first in range(0, outputs, step):
                some = gradients[:, group, :, first : first + step].float()
                start = (group * outputs + first) * features
                rows = torch.bmm(some.transpose(1, 2), columns[:, group]).flatten(1)
                yield slice(start, start + rows.shape[1]), rows


@dataclass(frozen=True)
class GradientRows:
    """Gradients of a parameter that are held, a row per record."""

    number: int
    rows: Float[Tensor, "b n"]
    order: tuple[int, ...] = ()

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """The rows alone."""
        return (self.rows,)

    def add(self, weights: Float[Tensor, " b"], out: Int[Tensor, " o"], pieces: Sequence[Float[Tensor, " n"]]) -> None:
        """Add the weighted sum."""
        add_weighted(self.rows, weights, out, pieces[self.number])


Kept = Factored | Formed | GradientRows
