"""A micro-batch by book-keeping: one pass, the norms of all records, and the sum of the clipped gradients."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from mia_audit.privacy.book_keeping.products import Factored, Formed, Kept, Product, Rows
from mia_audit.privacy.book_keeping.rules import RULES
from mia_audit.privacy.book_keeping.trace import NotCovered, Trace, marked


class Store:
    """Memory for held gradients, reused by every micro-batch."""

    def __init__(self, device: torch.device) -> None:
        self._buffer = torch.empty(0, device=device)
        self._taken = 0

    def clear(self) -> None:
        """Release all rows, and grow the memory to the amount that was used."""
        if self._taken > len(self._buffer):
            self._buffer = self._buffer.new_empty(self._taken)
        self._taken = 0

    def take(self, count: int, width: int) -> Float[Tensor, "count width"]:
        """Return memory for `count` rows of `width` numbers."""
        start, self._taken = self._taken, self._taken + count * width
        fits = self._taken <= len(self._buffer)
        room = self._buffer[start : self._taken] if fits else self._buffer.new_empty(count * width)
        return room.view(count, width)


@dataclass
class Pass:
    """The result of one pass over records: their losses, their norms over all parameters, and what their gradients are summed from."""

    losses: Float[Tensor, " b"]
    norms: Float[Tensor, " b"]
    """Float64."""
    kept: dict[tuple[int, ...], Kept]
    """By the numbers of the parameters."""
    events: list[str]
    numbers: dict[str, int] = field(default_factory=dict)
    """Numbers stored per record for its gradients."""
    places: dict[int, int] = field(default_factory=dict)
    """The position of the gradient of weights that have one at no other."""


class BookKeeping:
    """The clipped sum of per-record gradients of a model whose layers are covered (Bu et al. 2022, algorithm 1).

    `scales` multiply gradients in norms, as in `per_record.add_clipped`. Every pass must agree with the checked one, if any.
    """

    def __init__(self, parameters: Sequence[Tensor], checked: Pass | None = None) -> None:
        self.parameters = list(parameters)
        self._events = checked.events if checked else None
        self._places: dict[int, int] = checked.places if checked else {}
        self._store = Store(self.parameters[0].device)

    def run(
        self,
        model: Callable[[Tensor], Tensor],
        inputs: Tensor,
        labels: Int[Tensor, " b"],
        scales: Sequence[Tensor] = (),
    ) -> Pass:
        """Run a pass over records and keep the factors of their gradients; NotCovered if a call has no rule."""
        self._store.clear()
        trace = Trace(RULES, self.parameters, len(labels), self._places)
        kept: dict[tuple[int, ...], Kept] = {}
        squares = torch.zeros(len(labels), dtype=torch.float64, device=labels.device)
        numbers = {"held": 0, "factors": 0}
        places = dict(self._places)
        others: list[Tensor] = []

        def keep(product: Product) -> None:
            if self._events is None and (place := product.only_place()) is not None:
                places[product.number] = place
            elif product.number in places:
                product, beside = product.at(places[product.number])
                others.append(beside)
            width = self.parameters[product.number].numel()
            scale = scales[product.number] if scales else None
            way = product.way(width, scale is None or len(scale) == 1)
            one: Kept
            if way == "held":
                rows = self._store.take(len(labels), width)
                product.form(rows)
                one = Rows(rows)
                numbers["held"] += width
            else:
                one = Factored(product) if way == "factored" else Formed(product)
                numbers["factors"] += product.gradients[0].numel()
            kept[product.number,] = one
            squares.add_(one.squares(width, scale))  # while the rows are in the caches

        trace.on_product = keep
        for value in self.parameters:
            value.grad = None
        with torch.enable_grad():
            with trace:
                logits = model(marked(inputs))
            if self._events is not None and trace.events != self._events:
                raise NotCovered("a pass made other calls than the checked pass")
            losses = F.cross_entropy(logits, labels, reduction="none")
            with torch.autocast(inputs.device.type, enabled=False):
                losses.sum().backward()  # type: ignore[no-untyped-call]
        if any(value.grad is not None for value in self.parameters):
            raise NotCovered("a parameter is used by code that calls no function of torch")
        if others and bool(((beside := torch.stack(others)).isfinite() & (beside != 0)).any()):
            raise NotCovered("a layer has a gradient at other positions than in the pass that was checked")
        if expanded := self._expanded(trace):
            if any((number,) in kept for number in expanded):
                raise NotCovered("the weight of a layer is used more than once")
            together = Rows(torch.cat([rows.flatten(1) for rows in expanded.values()], dim=1))
            widths = {number: self.parameters[number].numel() for number in expanded}
            scale = torch.cat([scales[n].expand(width) for n, width in widths.items()]) if scales else None
            kept[tuple(expanded)] = together
            squares += together.squares(sum(widths.values()), scale)
            numbers["held"] += sum(widths.values())
        return Pass(losses.detach(), squares.sqrt(), kept, trace.events, numbers, places)

    def _expanded(self, trace: Trace) -> dict[int, Tensor]:
        """Return the gradients of expanded parameters, by backpropagation through the expressions in which they were expanded."""
        of_leaf = {id(value): number for number, value in trace.leaves.items()}
        gradients_of: dict[int, Tensor] = {}
        for value, gradients in trace.expanded.values():
            if id(value) in of_leaf:
                parts = {of_leaf[id(value)]: gradients}
            else:
                given = torch.autograd.grad(
                    value,
                    list(trace.leaves.values()),
                    gradients.to(value.dtype),
                    retain_graph=True,
                    allow_unused=True,
                    is_grads_batched=True,
                )
                parts = {number: part for number, part in zip(trace.leaves, given, strict=True) if part is not None}
            for number, part in parts.items():
                gradients_of[number] = gradients_of[number] + part if number in gradients_of else part
        return gradients_of

    def add(self, done: Pass, factors: Float[Tensor, " b"], total: Float[Tensor, " p"]) -> None:
        """Add Σ factor · gradient to a float64 vector over all parameters; a factor of 0 leaves its record out."""
        chosen = factors > 0
        if not bool(chosen.any()):
            return
        kept = None if bool(chosen.all()) else chosen.nonzero()[:, 0]
        weights = factors if kept is None else factors[kept]
        pieces = torch.split(total, [value.numel() for value in self.parameters])
        for numbers, one in done.kept.items():
            if len(numbers) == 1:
                one.add(kept, weights, pieces[numbers[0]])
            else:
                parts = [pieces[number] for number in numbers]
                together = total.new_zeros(sum(len(part) for part in parts))
                one.add(kept, weights, together)
                torch._foreach_add_(parts, torch.split(together, [len(part) for part in parts]))
