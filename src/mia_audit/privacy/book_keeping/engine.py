"""A micro-batch by book-keeping: one pass, the norms of all records, and the sum of the clipped gradients.

Check whether book-keeping covers a model: compare its gradients with those of one record at a time, on random records.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.func import functional_call

from mia_audit.privacy.book_keeping.rules import RULES, Factored, Formed, Kept, NotCovered, Product, Rows, Trace, marked
from mia_audit.runtime.device import computing


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


RECORDS = 7
"""Number of records in the check, chosen so that no dimension of a model is likely to equal it."""

TOLERANCE = 1e-3
"""Largest relative error of a parameter's gradient, a thousand times that of rounding."""

MOVED = 0.02
"""Standard deviation of noise added to every parameter for the check, so that no gradient is 0 at the initial weights."""


def checked_pass(model: nn.Module, shape: Sequence[int]) -> Pass:
    """Return a pass over uniform random records of that shape, in the model's mode but without dropout.

    No record of the training set is read. Raises NotCovered, with the reason, if a call has no rule, if the model draws
    randomness other than dropout, or if a norm or a sum of gradients is not that of plain autograd on one record at a
    time. The last happens if a model mixes records.
    """
    own = {name: value for name, value in model.named_parameters() if value.requires_grad}
    device = next(iter(own.values())).device
    random = torch.Generator().manual_seed(0)

    def moved(value: Tensor) -> Tensor:
        return (value.detach() + MOVED * torch.randn(value.shape, generator=random).to(value)).requires_grad_()

    parameters = {name: moved(value) for name, value in own.items()}
    records = torch.rand(RECORDS, *shape, generator=random).to(device)
    labels = torch.zeros(RECORDS, dtype=torch.long, device=device)
    weights = torch.arange(1, RECORDS + 1, dtype=torch.float64, device=device)

    def answer(inputs: Tensor) -> Tensor:
        logits: Tensor = functional_call(model, parameters, (inputs,))
        return logits

    with (
        _without_dropout(model),
        torch.random.fork_rng(),
        computing(model, "float32"),
        torch.autocast(device.type, enabled=False),
    ):
        first = BookKeeping(list(parameters.values())).run(answer, records, labels)
        book = BookKeeping(list(parameters.values()), first)
        before = _random_states(device)
        done = book.run(answer, records, labels)
        if any(not torch.equal(a, b) for a, b in zip(before, _random_states(device), strict=True)):
            raise NotCovered("the model draws randomness other than dropout")
        total = torch.zeros(sum(value.numel() for value in own.values()), dtype=torch.float64, device=device)
        book.add(done, weights, total)
        expected = torch.zeros_like(total)
        for number in range(RECORDS):
            gradient = _alone(answer, records[number : number + 1], labels[:1], list(parameters.values()))
            expected += weights[number] * gradient
            if not bool((done.norms[number] - gradient.norm()).abs() <= TOLERANCE * gradient.norm()):
                raise NotCovered("a norm differs from that of the record alone")
    pieces = (torch.split(vector, [value.numel() for value in own.values()]) for vector in (total, expected))
    for name, ours, right in zip(own, *pieces, strict=True):
        if not bool((ours - right).norm() <= TOLERANCE * (right.norm() + 0.01 * expected.norm())):
            raise NotCovered(f"the gradient of '{name}' differs from that of the records alone")
    return done


def _alone(answer: Callable[[Tensor], Tensor], record: Tensor, label: Tensor, parameters: list[Tensor]) -> Tensor:
    loss = F.cross_entropy(answer(record), label)
    gradients = torch.autograd.grad(loss, parameters, allow_unused=True)
    return torch.cat(
        [
            (torch.zeros_like(value) if one is None else one).double().flatten()
            for one, value in zip(gradients, parameters, strict=True)
        ]
    )


def _random_states(device: torch.device) -> list[Tensor]:
    return [torch.get_rng_state()] + ([torch.cuda.get_rng_state(device)] if device.type == "cuda" else [])


@contextmanager
def _without_dropout(model: nn.Module) -> Iterator[None]:
    """Set the probabilities of dropout and of stochastic depth to 0."""
    before = [
        (module, name, value)
        for module in model.modules()
        for name in ("p", "drop_prob")
        if isinstance(value := getattr(module, name, None), float)
    ]
    for module, name, _ in before:
        setattr(module, name, 0.0)
    try:
        yield
    finally:
        for module, name, value in before:
            setattr(module, name, value)
