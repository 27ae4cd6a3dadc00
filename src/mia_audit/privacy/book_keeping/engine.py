"""Book-keeping (Bu et al. 2022): the clipped sum of a micro-batch's gradients from one pass, and the check of a model.

DP-SGD needs the norm of every record's gradient over all parameters, and then one weighted sum of the gradients. Per-
record gradients themselves (`vmap`) cost as many numbers as records times parameters, and most of a step's time. One
backward pass that computes no gradient of a weight already has all that both results need: the inputs of every layer
and the gradients of its outputs. `BookKeeping.run` keeps these, or what `products` makes of them, and returns the
norms; `BookKeeping.add` adds the sum for any factors.

What it must not do is be wrong without a message, for a norm that is too short or a parameter that is left out breaks
the guarantee. So a model is covered by what it is (`kinds`), and `checked_pass` compares each covered model with plain
autograd in float64, one synthetic record at a time, over all scales, before a ledger is charged. Both depend on the
model alone: a decision that depended on records would be released with the weights.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.func import functional_call

from mia_audit.errors import first_line
from mia_audit.privacy.book_keeping.kinds import ZEROING
from mia_audit.privacy.book_keeping.products import Factored, Formed, GradientRows, Kept, Product
from mia_audit.privacy.book_keeping.rules import RULES, NotCovered, Trace, marked
from mia_audit.privacy.noise import left_out, squared_norms
from mia_audit.runtime.device import computing


class GradientStore:
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
    kept: list[Kept]
    numbers: dict[str, int] = field(default_factory=dict)
    """Numbers stored per record for its gradients."""
    places: dict[int, int] = field(default_factory=dict)
    """The position of the gradient of weights that have one at no other."""
    operations: set[str] = field(default_factory=set)
    """Names of the functions that were called on what was computed from the records."""
    drops_parameters: bool = False
    """Whether dropout is applied to what is computed from parameters alone."""


class BookKeeping:
    """The clipped sum of per-record gradients of a model whose layers are covered (Bu et al. 2022, algorithm 1).

    `scales` multiply gradients in norms, as in `per_record.add_clipped`. The norm of a record that has gradients
    where the checked pass has none is NaN, so that it adds nothing, whatever the other records are.
    """

    def __init__(self, parameters: Sequence[Tensor], checked: Pass | None = None) -> None:
        self.parameters = list(parameters)
        self._places: dict[int, int] | None = checked.places if checked else None
        self._store = GradientStore(self.parameters[0].device)
        self.drops_parameters = bool(checked and checked.drops_parameters)
        self.seed = 0
        """The seed of dropout of what is computed from parameters alone, which all records share: one for all passes of a step."""

    def run(
        self,
        model: Callable[[Tensor], Tensor],
        inputs: Tensor,
        labels: Int[Tensor, " b"],
        scales: Sequence[Tensor] = (),
    ) -> Pass:
        """Run a pass over records and keep the factors of their gradients; NotCovered if a call has no rule."""
        self._store.clear()
        trace = Trace(RULES, self.parameters, len(labels), places=self._places or {}, seed=self.seed)
        kept: list[Kept] = []
        squares = torch.zeros(len(labels), dtype=torch.float64, device=labels.device)
        numbers = {"held": 0, "factors": 0}
        places = dict(self._places or {})
        others: list[Tensor] = []

        def scale_of(number: int, order: tuple[int, ...]) -> Tensor | None:
            if not scales:
                return None
            scale, shape = scales[number], self.parameters[number].shape
            return scale.view(shape).permute(order).flatten() if order and len(scale) > 1 else scale

        def hold(number: int, rows: Tensor, order: tuple[int, ...] = ()) -> None:
            kept.append(GradientRows(number, rows, order))
            squares.add_(squared_norms(rows, scale_of(number, order)))  # while the rows are in the caches
            numbers["held"] += rows.shape[1]

        def keep(product: Product) -> bool:
            if self._places is None and (place := product.only_place()) is not None:
                places[product.number] = place
            elif product.number in places:
                product, beside = product.at(places[product.number])
                others.append(beside)
            width = self.parameters[product.number].numel()
            own = [number for number in (product.number, product.bias) if number is not None]
            way = product.way(width, not scales or all(len(scales[number]) == 1 for number in own))
            if way == "held":
                rows = self._store.take(len(labels), width)
                product.form(rows)
                hold(product.number, rows, product.order)
                return False
            if way == "formed":
                numbers["factors"] += product.gradients[0].numel()
                formed = Formed(product)
                squares.add_(formed.squares(width, scale_of(product.number, product.order)))
                kept.append(formed)
                return False
            scale, shift = (
                0.0 if number is None else scales[number].double() if scales else 1.0
                for number in (product.number, product.bias)
            )
            factored = Factored(product)
            numbers["factors"] += 2 * (factored.gradients[0].numel() + factored.columns[0].numel())
            squares.add_(factored.squares(width, scale, shift))
            kept.append(factored)
            return product.bias is not None

        trace.on_product = keep
        for value in self.parameters:
            value.grad = None
        with torch.enable_grad():
            with trace:
                logits = model(marked(inputs))
            losses = F.cross_entropy(logits, labels, reduction="none")
            with torch.autocast(inputs.device.type, enabled=False):
                losses.sum().backward()  # type: ignore[no-untyped-call]
        if any(value.grad is not None for value in self.parameters):
            raise NotCovered("a parameter is used by code that calls no function of torch")
        for beside in others:
            squares.masked_fill_(beside.isfinite() & (beside != 0), torch.nan)
        for number, rows in self._expanded(trace).items():
            hold(number, rows.reshape(len(rows), -1))
        return Pass(
            losses=losses.detach(),
            norms=squares.sqrt(),
            kept=kept,
            numbers=numbers,
            places=places,
            operations=trace.operations,
            drops_parameters=trace.dropped > 0,
        )

    def _expanded(self, trace: Trace) -> dict[int, Tensor]:
        """Return the gradients of expanded parameters, by backpropagation through the expressions in which they were expanded."""
        gradients_of: dict[int, Tensor] = {}
        for value, gradients in trace.expanded.values():
            if (number := trace.number(value)) is not None:
                parts = {number: gradients}
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
            for which, part in parts.items():
                gradients_of[which] = gradients_of[which] + part if which in gradients_of else part
        return gradients_of

    def add(self, done: Pass, factors: Float[Tensor, " b"], total: Float[Tensor, " p"]) -> None:
        """Add Σ factor · gradient to a float64 vector over all parameters; a factor of 0 leaves its record out."""
        pieces = torch.split(total, [value.numel() for value in self.parameters])
        out = left_out(factors)
        for one in done.kept:
            if not one.order:
                one.add(factors, out, pieces)
                continue
            own = list(pieces)
            own[one.number] = torch.zeros_like(pieces[one.number])
            one.add(factors, out, own)
            turned = pieces[one.number].view(self.parameters[one.number].shape).permute(one.order)
            turned.add_(own[one.number].view(turned.shape))


SCALES = (1.0, 1.0, 1e3, 1e6, 0.0, 1e-3, 1e-8)
"""Factors of the check's records, which are as many as no dimension of a model is likely to have."""

TOLERANCE = 1e-3
"""Largest relative error of a parameter's gradient, far above rounding where gradients are held in float32."""

SHORT = 1e-12
"""Norm at which squares underflow in float32, and which no clipping shortens."""

APART = 1e-6
"""Largest relative difference between the logits of a record in a batch and alone, in float64."""

MOVED = 0.02
"""Standard deviation of noise added to every parameter for the check, so that no gradient is 0 at the initial weights."""


def checked_pass(model: nn.Module, shape: Sequence[int]) -> Pass:
    """Return a pass over random records of that shape and of many scales, in the model's mode but without dropout.

    No record of the training set is read. Raises NotCovered, with the reason, if a call has no rule, if the model draws
    randomness other than dropout, or if a logit, a norm or a sum of gradients is not that of plain autograd on one
    record at a time, in float64. The last happens if a model mixes records.
    """
    names = [name for name, value in model.named_parameters() if value.requires_grad]
    device = next(value.device for value in model.parameters() if value.requires_grad)
    random = torch.Generator().manual_seed(0)
    state = {name: _doubled(value) for name, value in (*model.named_parameters(), *model.named_buffers())}
    for name in names:
        noise = MOVED * torch.randn(state[name].shape, generator=random, dtype=torch.float64)
        state[name] = (state[name] + noise.to(device)).requires_grad_()
    parameters = [state[name] for name in names]
    records = torch.randn(len(SCALES), *shape, generator=random, dtype=torch.float64)
    records[::2] = torch.rand(records[::2].shape, generator=random, dtype=torch.float64)
    records = (records * torch.tensor(SCALES).double().view(-1, *[1] * len(shape))).to(device)

    def answer(inputs: Tensor) -> Tensor:
        logits: Tensor = functional_call(model, state, (inputs,))
        return logits

    with (
        without_dropout(model),
        torch.random.fork_rng(),
        computing(model, "float32"),
        torch.autocast(device.type, enabled=False),
    ):
        try:
            return _compared(answer, records, names, parameters)
        except (RuntimeError, TypeError, ValueError, IndexError) as error:
            raise NotCovered(f"a pass in float64 fails: {first_line(error)}") from None


def _doubled(value: Tensor) -> Tensor:
    value = value.detach()
    return value.double() if value.is_floating_point() else value


def _compared(
    answer: Callable[[Tensor], Tensor], records: Tensor, names: Sequence[str], parameters: list[Tensor]
) -> Pass:
    """Compare a pass over all records with passes over each of them alone."""
    labels = torch.zeros(len(records), dtype=torch.long, device=records.device)
    weights = torch.arange(1, len(records) + 1, dtype=torch.float64, device=records.device)
    first = BookKeeping(parameters).run(answer, records, labels)
    if first.operations & ZEROING:
        first.places = {}
    first.kept.clear()  # memory of a pass in float64
    book = BookKeeping(parameters, first)
    before = _random_states(records.device)
    done = book.run(answer, records, labels)
    if any(not torch.equal(a, b) for a, b in zip(before, _random_states(records.device), strict=True)):
        raise NotCovered("the model draws randomness other than dropout")
    total = torch.zeros(sum(value.numel() for value in parameters), dtype=torch.float64, device=records.device)
    book.add(done, torch.where(done.norms.isfinite(), weights, 0.0), total)
    done.kept.clear()
    del book
    expected = torch.zeros_like(total)
    with torch.no_grad():
        together = answer(records)
    for number in range(len(records)):
        logits, gradient = _alone(answer, records[number : number + 1], labels[:1], parameters)
        if not bool((together[number] - logits).norm() <= APART * logits.norm()):
            raise NotCovered("the logits of a record differ from those of the record alone")
        if not bool(done.norms[number].isfinite()):
            raise NotCovered("a gradient is not finite")
        expected += weights[number] * gradient
        if not bool((done.norms[number] - gradient.norm()).abs() <= TOLERANCE * gradient.norm() + SHORT):
            raise NotCovered("a norm differs from that of the record alone")
    sizes = [value.numel() for value in parameters]
    for name, ours, right in zip(names, torch.split(total, sizes), torch.split(expected, sizes), strict=True):
        if not bool((ours - right).norm() <= TOLERANCE * (right.norm() + 0.01 * expected.norm())):
            raise NotCovered(f"the gradient of '{name}' differs from that of the records alone")
    return done


def _alone(
    answer: Callable[[Tensor], Tensor], record: Tensor, label: Tensor, parameters: list[Tensor]
) -> tuple[Tensor, Tensor]:
    """Return a record's logits [classes] and its gradient over all parameters."""
    logits = answer(record)
    gradients = torch.autograd.grad(F.cross_entropy(logits, label), parameters, allow_unused=True)
    parts = (torch.zeros_like(value) if one is None else one for one, value in zip(gradients, parameters, strict=True))
    return logits[0].detach(), torch.cat([part.double().flatten() for part in parts])


def _random_states(device: torch.device) -> list[Tensor]:
    return [torch.get_rng_state()] + ([torch.cuda.get_rng_state(device)] if device.type == "cuda" else [])


DROPPING = re.compile("drop|stochastic", re.IGNORECASE)
"""Names of modules whose `p` or `prob` is a probability; in others it may be an exponent."""


@contextmanager
def without_dropout(model: nn.Module) -> Iterator[None]:
    """Set the probabilities of dropout and of stochastic depth to 0, where an attribute of a module has them."""
    before = [
        (module, name, value)
        for module in model.modules()
        for name in (
            "drop_prob",
            "drop_rate",
            "dropout",
            *(("p", "prob") if DROPPING.search(type(module).__name__) else ()),
        )
        if isinstance(value := getattr(module, name, None), float)
    ]
    for module, name, _ in before:
        setattr(module, name, 0.0)
    try:
        yield
    finally:
        for module, name, value in before:
            setattr(module, name, value)
