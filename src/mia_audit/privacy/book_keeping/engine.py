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
    """The result of one pass over records: their losses, and the gradients of every parameter that has any."""

    losses: Float[Tensor, " b"]
    kept: dict[int, Kept]
    events: list[str]
    numbers: dict[str, int] = field(default_factory=dict)
    """Numbers stored per record for its gradients."""


class BookKeeping:
    """The clipped sum of per-record gradients of a model whose layers are covered (Bu et al. 2022, algorithm 1).

    `scales` multiply gradients in norms, as in `per_record.add_clipped`. `events` are those of the checked pass.
    """

    def __init__(self, parameters: Sequence[Tensor], events: Sequence[str] | None = None) -> None:
        self.parameters = list(parameters)
        self._events = events
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
        trace = Trace(RULES, self.parameters, len(labels))
        kept: dict[int, Kept] = {}
        numbers = {"held": 0, "factors": 0}

        def keep(product: Product) -> None:
            width = self.parameters[product.number].numel()
            way = product.way(width, not scales or len(scales[product.number]) == 1)
            if way == "held":
                rows = self._store.take(len(labels), width)
                product.form(rows)
                kept[product.number] = Rows(rows)
                numbers["held"] += width
            else:
                kept[product.number] = Factored(product) if way == "factored" else Formed(product)
                numbers["factors"] += product.gradients[0].numel()

        trace.on_product = keep
        for value in self.parameters:
            value.grad = None
        with torch.enable_grad():
            with trace:
                logits = model(marked(inputs))
            if self._events is not None and trace.events != self._events:
                raise NotCovered("a pass made other calls than the checked pass")
            losses = F.cross_entropy(logits, labels, reduction="none")
            losses.sum().backward()  # type: ignore[no-untyped-call]
        if any(value.grad is not None for value in self.parameters):
            raise NotCovered("code that calls no function of torch uses a parameter")
        for number, rows in self._expanded(trace).items():
            if number in kept:
                raise NotCovered("the weight of a layer is used more than once")
            kept[number] = Rows(rows.flatten(1))
            numbers["held"] += self.parameters[number].numel()
        return Pass(losses.detach(), kept, trace.events, numbers)

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

    def norms(self, done: Pass, scales: Sequence[Tensor] = ()) -> Float[Tensor, " b"]:
        """Return every record's norm over all parameters, float64."""
        squares = torch.zeros(len(done.losses), dtype=torch.float64, device=done.losses.device)
        for number, one in done.kept.items():
            squares += one.squares(self.parameters[number].numel(), scales[number] if scales else None)
        return squares.sqrt()

    def add(self, done: Pass, factors: Float[Tensor, " b"], total: Float[Tensor, " p"]) -> None:
        """Add Σ factor · gradient to a float64 vector over all parameters; a factor of 0 leaves its record out."""
        chosen = factors > 0
        kept = None if bool(chosen.all()) else chosen.nonzero()[:, 0]
        weights = factors if kept is None else factors[kept]
        pieces = torch.split(total, [value.numel() for value in self.parameters])
        for number, one in done.kept.items():
            one.add(kept, weights, pieces[number])
