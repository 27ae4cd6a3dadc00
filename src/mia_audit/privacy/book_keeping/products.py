"""Per-record gradients of weights as sums of outer products over positions: norms and clipped sums are computed without holding the gradients."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from mia_audit.privacy.float64_sums import add_weighted, at_once, squared_norms

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

    `columns` turns the inputs of records into a [b, groups, t, d]; `gradients` are g [b, groups, t, p].
    """

    number: int
    groups: int
    inputs: Tensor
    columns: Columns
    gradients: Tensor

    def sizes(self, width: int) -> tuple[int, int, int]:
        """Return t, p and d for a weight with this number of elements."""
        groups, places, outputs = self.gradients.shape[1:]
        return places, outputs, width // (groups * outputs)

    def way(self, width: int, uniform: bool) -> str:
        """Return how a weight of this size is summed, in every batch: `factored`, `held` or `formed`.

        `factored` computes norms from the Gram matrices of a and g, and the sum from one product over all records and
        positions, both in float64. It does not support norms with a scale per element. `held` keeps a float32 gradient
        per record. `formed` computes gradients a few rows at a time, once for the norm and once for the sum.
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
        """Write the gradients of all records."""
        groups, (_, outputs, features) = self.gradients.shape[1], self.sizes(out.shape[1])
        left, right = self.gradients.float().transpose(2, 3), self.columns(self.inputs).float()
        if groups == 1:
            torch.bmm(left[:, 0], right[:, 0], out=out.view(len(out), outputs, features))
        else:
            torch.matmul(left, right, out=out.view(len(out), groups, outputs, features))


@dataclass(frozen=True)
class Factored:
    """A product whose gradients are never formed; exact to float64's rounding of the float32 factors."""

    product: Product

    def squares(self, width: int, scale: Tensor | None) -> Float[Tensor, " b"]:
        """Return the squared norms, Σ over pairs of positions of ⟨a, a'⟩⟨g, g'⟩."""
        gradients = self.product.gradients[:, 0].double()
        if gradients.shape[1] == 1:
            sides = gradients.square().sum(dim=(1, 2))
            if self.product.groups != ONE_HOT:
                sides = sides * self._columns(None).square().sum(dim=(1, 2))
        else:
            own, alike = gradients @ gradients.transpose(1, 2), self._alike()
            sides = (own * alike).sum(dim=(1, 2)).clamp(min=0) + _rounding(own, alike, width)
        return sides if scale is None else sides * scale.double().square()

    def _columns(self, kept: Tensor | None) -> Tensor:
        inputs = self.product.inputs if kept is None else self.product.inputs[kept]
        columns = self.product.columns(inputs)
        return columns if self.product.groups == ONE_HOT else columns[:, 0].double()

    def _alike(self) -> Float[Tensor, "b t t"]:
        columns = self._columns(None)
        if self.product.groups == ONE_HOT:
            return (columns[:, :, None] == columns[:, None, :]).double()
        return columns @ columns.transpose(1, 2)

    def add(self, kept: Tensor | None, weights: Float[Tensor, " b"], total: Float[Tensor, " n"]) -> None:
        """Add the weighted sum over the records in `kept`, or over all records if it is None."""
        gradients = self.product.gradients if kept is None else self.product.gradients[kept]
        weighted = (gradients[:, 0].double() * weights[:, None, None]).flatten(0, 1)
        columns = self._columns(kept)
        table = (
            total.view(-1, weighted.shape[1]) if self.product.groups == ONE_HOT else total.view(weighted.shape[1], -1)
        )
        if self.product.groups == ONE_HOT:
            table.index_add_(0, columns.flatten(), weighted)
        else:
            table.addmm_(weighted.t(), columns.flatten(0, 1))


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

    def squares(self, width: int, scale: Tensor | None) -> Float[Tensor, " b"]:
        """Return the squared norms of the float32 gradients."""
        parts = torch.zeros(len(self.product.gradients), dtype=torch.float64, device=self.product.gradients.device)
        for part, rows in self._parts(None, width):
            parts += squared_norms(rows, scale if scale is None or len(scale) == 1 else scale[part])
        return parts

    def add(self, kept: Tensor | None, weights: Float[Tensor, " b"], total: Float[Tensor, " n"]) -> None:
        """Add the weighted sum over the records in `kept`, or over all records if it is None."""
        for part, rows in self._parts(kept, len(total)):
            add_weighted(rows, weights, total[part])

    def _parts(self, kept: Tensor | None, width: int) -> Iterator[tuple[slice, Float[Tensor, "b n"]]]:
        gradients = self.product.gradients if kept is None else self.product.gradients[kept]
        columns = self.product.columns(self.product.inputs if kept is None else self.product.inputs[kept]).float()
        _, outputs, features = self.product.sizes(width)
        step = max(1, at_once(gradients.device, len(gradients)) // features)
        for group in range(gradients.shape[1]):
            for first in range(0, outputs, step):
                some = gradients[:, group, :, first : first + step].float()
                start = (group * outputs + first) * features
                rows = torch.bmm(some.transpose(1, 2), columns[:, group]).flatten(1)
                yield slice(start, start + rows.shape[1]), rows


@dataclass(frozen=True)
class Rows:
    """Gradients that are held, a float32 row per record."""

    rows: Float[Tensor, "b n"]

    def squares(self, width: int, scale: Tensor | None) -> Float[Tensor, " b"]:
        """Return the squared norms."""
        return squared_norms(self.rows, scale)

    def add(self, kept: Tensor | None, weights: Float[Tensor, " b"], total: Float[Tensor, " n"]) -> None:
        """Add the weighted sum over the records in `kept`, or over all records if it is None."""
        add_weighted(self.rows if kept is None else self.rows[kept], weights, total)


Kept = Factored | Formed | Rows
