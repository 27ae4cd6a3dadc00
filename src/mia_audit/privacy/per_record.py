"""The clipped sum of a batch's per-record (per-person) gradients, exactly and in bounded memory.

`ClippedSum` takes one of three ways, which the model alone decides before the first record: a closed form that the
model brings, book-keeping where every module is of a covered kind, or `torch.func`'s vmap, which takes any model, with
replacements of the operations that it batches badly. `People` chooses the records of persons in a step.
"""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value, vmap
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from mia_audit.errors import UserError, first_line
from mia_audit.models.architecture import check_state
from mia_audit.models.passes import attention, patches
from mia_audit.privacy.book_keeping.engine import TOLERANCE, BookKeeping, checked_pass, without_dropout
from mia_audit.privacy.book_keeping.kinds import check_kinds, check_operations
from mia_audit.privacy.book_keeping.rules import NotCovered
from mia_audit.privacy.catalogue import HELD, PerRecord
from mia_audit.privacy.noise import Clipping, add_weighted, at_once, left_out, squared_norms
from mia_audit.runtime.device import AdaptiveBatchSize, computing, is_retryable

if TYPE_CHECKING:
    from jaxtyping import Bool, Int

    from mia_audit.privacy.noise import Stream


class Batchable(TorchFunctionMode):
    """A context that replaces fused attention, and convolutions that cut images into patches, by plain matrix products.

    vmap has no rule for the fused attention kernels: it loops over records and warns at every call. For per-record
    gradients of a convolution it uses a grouped convolution, which is several times slower than a matrix product of
    patches. Layer normalisation is computed in float32, whatever the precision of the pass. If a record is passed
    `alone`, torch's group norm misreads the memory layout of an image and raises an error, so it receives a copy in the
    usual layout.
    """

    def __init__(self, alone: bool = False) -> None:
        super().__init__()
        self._replacements = REPLACEMENTS | ({F.group_norm: copied_group_norm} if alone else {})

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        return self._replacements.get(func, func)(*args, **(kwargs or {}))


def copied_group_norm(
    images: Tensor, groups: int, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> Tensor:
    """Group normalisation of a copy of the images in torch's usual memory layout."""
    return F.group_norm(images.clone(memory_format=torch.contiguous_format), groups, weight, bias, eps)


def float32_layer_norm(
    inputs: Tensor, shape: Sequence[int], weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> Tensor:
    """Layer normalisation in float32. Under vmap, torch's own fails because it mixes bfloat16 gradients with float32 weights."""
    return F.layer_norm(inputs.float(), shape, weight, bias, eps)


REPLACEMENTS: dict[Callable[..., Any], Callable[..., Any]] = {
    F.scaled_dot_product_attention: attention,
    F.conv2d: patches,
    F.layer_norm: float32_layer_norm,
}


def each_apart(passed: Callable[[Tensor], tuple[Tensor, ...]]) -> Callable[[Tensor], tuple[Tensor, ...]]:
    """Return a function that passes every record [B, …] apart from all others, as a batch of one; UserError if a pass depends on values."""
    alone = vmap(lambda record: tuple(value[0] for value in passed(record[None])))

    def through(records: Tensor) -> tuple[Tensor, ...]:
        with Batchable(alone=len(records) == 1), refusing():
            values: tuple[Tensor, ...] = alone(records)
        return values

    return through


APART = (1.0, 1.0, 30.0, 0.0, 1e-3)
"""Factors of the records that are compared with each of them alone."""
BESIDE = (0.0, 1e6, -1e6, 1e30)
"""Factors of a record that may not change a bit of what is computed from the one beside it."""


def check_apart(found: Callable[[Tensor], Sequence[Tensor]], shape: tuple[int, ...], like: Tensor) -> None:
    """Raise UserError if what is found of records [b, …] by vmap depends on others, as operations with a rule of their own may do.

    The first tensor of what is found is compared with that of each record alone, up to rounding.
    """
    records = torch.randn(len(APART), *shape, generator=torch.Generator().manual_seed(0))
    records = (records * torch.tensor(APART).view(-1, *[1] * len(shape))).to(like)
    alone = torch.cat([found(record[None])[0] for record in records])
    pairs = [slice(first, first + 2) for first in range(len(records) - 1)]
    mixed = not all(
        torch.allclose(found(records[pair])[0], alone[pair], rtol=TOLERANCE, atol=TOLERANCE, equal_nan=True)
        for pair in pairs
    )
    bits = digests(found(records[:2]))
    for place, factor in itertools.product((0, 1), BESIDE):
        pair = records[:2].clone()
        pair[1 - place] *= factor
        mixed = mixed or not torch.equal(digests(found(pair))[place], bits[place])
    if mixed:
        raise UserError(
            "the model cannot be trained privately: one record of a batch changes what is computed from another (an operation's own"
            " rule for vmap mixes records)"
        )


@contextmanager
def refusing() -> Iterator[None]:
    """Turn errors of vmap, which the model alone decides, into UserErrors; other errors pass."""
    try:
        yield
    except RuntimeError as error:
        if "vmap" not in str(error):
            raise
        raise UserError(
            f"the model cannot be trained privately: its passes depend on values or state of a batch ({first_line(error)})"
        ) from None


ONE_A_PASS = (
    "per-record gradients: one record a pass, as those of more depend on their positions (by rounding, or because the model draws"
    " randomness outside of modules of dropout)"
)
PROBES = 256
"""Numbers of the narrowest layer that are compared at each length."""
FEW = 4
"""Lengths of passes are multiples of this number, and of an eighth of the power of two below them: fewer have to be compared."""
WHOLE = 32
"""Kernels compute what a number of elements exceeds a multiple of this one by, at the end, by other functions than the rest.

Of these results one in thirty differs.
"""
ASKED = 5
"""Records of the pass whose numbers are counted: as many as no dimension of a parameter is a multiple of by chance."""
GRAIN = 2**15
"""Numbers of which torch gives a thread at least as many."""
EXACT = {
    "abs",
    "add",
    "clamp_min",
    "clone",
    "div",
    "mul",
    "neg",
    "reciprocal",
    "relu",
    "sqrt",
    "sub",
    "threshold_backward",
    "where",
}
"""Operations that give the same by any function, if nothing scales their results: these are rounded once, or not at all."""


class Pointwise(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A context that notes how many numbers of each record the elementwise operations of a pass compute.

    Tensors of more bits than the model's do not count.
    """

    def __init__(self, records: int, bytes_each: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._records, self._bytes = records, bytes_each
        self.found: set[int] = set()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        given = func(*args, **(kwargs or {}))
        if torch.Tag.pointwise in func.tags and isinstance(given, Tensor):
            parts = 2 if given.is_complex() else 1
            numbers, rest = divmod(parts * given.numel(), self._records)
            if any(isinstance(value, Tensor) and value.is_complex() for value in (given, *args)):
                counts = True
            else:
                exact = func.overloadpacket.__name__.rstrip("_") in EXACT and "alpha" not in (kwargs or {})
                counts = given.is_floating_point() and not exact
            if counts and not rest and given.element_size() // parts <= self._bytes:
                self.found.add(numbers)
        return given


class Lengths:
    """The numbers of records of a pass with which the bits of a record's gradient depend on that record alone.

    Matrix products choose their kernels by the number of rows, also for the last rows of many, and kernels add in
    different orders. One more record in a pass would then round the gradients of the others in another way. That is
    little, unless large inputs cancel in a layer, so that rounding is all that is left of a gradient; then it may be
    several times what the noise covers. So passes are filled up to a length with which no elementwise operation has an
    end that is computed otherwise, and with which `seen`, a function from records [b, …] to values [b, k] that have all
    bits of a record's gradient, returned the same for random records at every position, and the same as in the longest
    pass. `narrowest` layers have few numbers that could differ, and are asked more often. Model and machine decide
    this, not the records; models of one kind may share what is `known`.
    """

    def __init__(
        self,
        seen: Callable[[Tensor], Tensor],
        shape: Sequence[int],
        like: Tensor,
        narrowest: int = 1,
        silent: bool = False,
        known: dict[Any, Any] | None = None,
    ) -> None:
        """Take `seen`, and the shape and type of records; `silent` lengths, which not all records need, print no message."""
        self._seen, self._shape, self._like, self._silent = seen, tuple(shape), like, silent
        self._narrowest = narrowest
        self._known = {} if known is None else known
        self._values: dict[int, Tensor] = {}

    def cut(self, count: int, size: int) -> Iterator[tuple[Int[Tensor, " length"], int]]:
        """Return the records of each pass, of at most `size`, and how many of them are new; the others fill up the pass."""
        whole = self.longest(size)
        for start in range(0, count, whole):
            new = min(whole, count - start)
            length = min(new + -new % _step(new), whole)
            while length < whole and not self._as_longest(length, whole):
                length = min(length + _step(length + 1), whole)
            yield torch.arange(start, start + length, device=self._like.device) % count, new

    def longest(self, size: int) -> int:
        """Return the largest length up to `size`; a single record has one place."""
        if size not in self._known:
            length = size - size % _step(size) or size
            while length > 1 and not (self._has_no_end(length) and self._anywhere(length)):
                length = max(length - _step(length), 1)
            if length == 1 < size and not self._silent:
                print(ONE_A_PASS, file=sys.stderr)
            self._known[size] = length
        return int(self._known[size])

    def _anywhere(self, length: int) -> bool:
        """Return whether the values of random records in passes of this length do not depend on the place of a record."""
        return all(
            torch.equal(self._seen(records), self._seen(records.roll(1, 0)).roll(-1, 0))
            for records in self._drawn(length)
        )

    def _as_longest(self, length: int, whole: int) -> bool:
        """Return whether random records have the same values in passes of these two lengths."""
        if (length, whole) not in self._known:
            if whole not in self._values:
                self._values[whole] = torch.cat([self._seen(records) for records in self._drawn(whole)])
            values, places = self._values[whole], torch.arange(length)
            records = self._random(len(values))
            parts = ((places + length * number) % len(values) for number in range(self._passes(length)))
            self._known[length, whole] = self._has_no_end(length) and all(
                torch.equal(self._seen(records[part]), values[part]) for part in parts
            )
        return bool(self._known[length, whole])

    def _has_no_end(self, length: int) -> bool:
        """Return whether no elementwise operation, nor what one thread gets of it, has an end that is computed by other functions."""
        if self._like.device.type != "cpu":
            return True
        if "pointwise" not in self._known:
            with Pointwise(ASKED, self._like.element_size()) as mode:
                self._seen(self._random(ASKED))
            self._known["pointwise"] = mode.found
        threads = torch.get_num_threads()
        counts = [numbers * length for numbers in self._known["pointwise"]]
        return all(math.ceil(count / max(1, min(threads, math.ceil(count / GRAIN)))) % WHOLE == 0 for count in counts)

    def _passes(self, length: int) -> int:
        return math.ceil(PROBES / (length * self._narrowest))

    def _drawn(self, length: int) -> tuple[Tensor, ...]:
        return torch.split(self._random(length * self._passes(length)), length)

    def _random(self, count: int) -> Tensor:
        return torch.randn(count, *self._shape, generator=torch.Generator().manual_seed(0)).to(self._like)


@contextmanager
def drawn_weights(model: nn.Module) -> Iterator[None]:
    """Give a model's parameters random values, always the same."""
    random = np.random.default_rng(0)
    before = [value.detach().clone() for value in model.parameters()]
    with torch.no_grad():
        for value in model.parameters():
            deviation = max(1, math.prod(value.shape[1:])) ** -0.5
            value.copy_(torch.from_numpy(random.normal(0, deviation, value.shape)))
    try:
        yield
    finally:
        with torch.no_grad():
            for value, own in zip(model.parameters(), before, strict=True):
                value.copy_(own)


WORDS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def digests(parts: Sequence[Tensor]) -> Int[Tensor, "b 1"]:
    """Return a number for the bits of every row of all parts [b, …]: their sum, each times an odd random number, modulo 2⁶⁴."""
    total = torch.zeros(len(parts[0]), dtype=torch.int64, device=parts[0].device)
    random = torch.Generator().manual_seed(0)
    for part in parts:
        words = part.reshape(len(part), -1).contiguous().view(WORDS[part.element_size()])
        for some in torch.split(words, at_once(part.device, len(part)), dim=1):
            factors = 2 * torch.randint(2**62, some.shape[1:], generator=random) + 1
            total += (some.long() * factors.to(part.device)).sum(dim=1)
    return total[:, None]


def _step(length: int) -> int:
    return max(FEW, 1 << max((length - 1).bit_length() - 4, 0))


Gradients = dict[str, Float[Tensor, "b ..."]]


def per_record_gradients(model: nn.Module) -> Callable[[Tensor, Tensor], tuple[Gradients, Float[Tensor, " b"]]]:
    """Return a function from inputs [B, …] and labels [B] to the gradients [B, …] of every trainable parameter and losses [B].

    It is torch.func's vmap over grad of one record's cross-entropy, exact for every parameter of any model that treats
    records independently. Random layers draw anew for every record.
    """
    trainable = {name: value for name, value in model.named_parameters() if value.requires_grad}

    def loss(parameters: dict[str, Tensor], record: Tensor, label: Tensor) -> Tensor:
        logits = functional_call(model, parameters, (record[None],))
        return F.cross_entropy(logits, label[None])

    batched = vmap(grad_and_value(loss), in_dims=(None, 0, 0), randomness="different")

    def gradients(inputs: Tensor, labels: Tensor) -> tuple[Gradients, Tensor]:
        parameters = {name: value.detach() for name, value in trainable.items()}
        with Batchable(alone=len(inputs) == 1):
            computed: tuple[Gradients, Tensor] = batched(parameters, inputs, labels)
        return computed

    return gradients


def add_clipped(
    gradients: Gradients,
    clipping: Clipping,
    total: Float[Tensor, " p"],
    scales: Sequence[Tensor] = (),
    losses: Float[Tensor, " b"] | None = None,
) -> None:
    """Add the sum of clipped per-record gradients to a float64 vector over all parameters, in the order of the mapping.

    A record's norm is over all parameters together. `scales`, if given, multiply each parameter's gradient in the norm
    by one number, or by one number per element. Norms and sums are float64 for gradients of any type; at most `RUN`
    squares are first summed in float32. A record whose gradient (or loss, if given) is not finite adds nothing.
    """
    rows = _rows(gradients)
    factors = bounded_factors(clipping, _norms(rows, scales), losses)
    out = left_out(factors)
    for piece, row in zip(torch.split(total, [row.shape[1] for row in rows]), rows, strict=True):
        add_weighted(row, factors, out, piece)


def _rows(gradients: Gradients) -> list[Float[Tensor, "b n"]]:
    return [value.reshape(len(value), -1) for value in gradients.values()]


def _norms(rows: Sequence[Float[Tensor, "b n"]], scales: Sequence[Tensor] = ()) -> Float[Tensor, " b"]:
    squares = map(squared_norms, rows, scales) if scales else map(squared_norms, rows)
    return torch.stack(list(squares)).sum(dim=0).sqrt()


def bounded_factors(
    clipping: Clipping, norms: Float[Tensor, " b"], losses: Float[Tensor, " b"] | None = None
) -> Float[Tensor, " b"]:
    """Return the factors of records' gradients: 0 if a norm or a loss is not finite."""
    finite = norms.isfinite() if losses is None else norms.isfinite() & losses.isfinite()
    return torch.where(finite, clipping.factors(norms), 0.0)


def _ours(model: nn.Module) -> bool:
    """Return whether a class of model belongs to this package, so that tests prove what it says of itself."""
    return type(model).__module__.partition(".")[0] == __name__.partition(".")[0]


Factors = Callable[[Float[Tensor, " b"], Float[Tensor, " b"]], Float[Tensor, " b"]]


@runtime_checkable
class ClosedForm(Protocol):
    """A model of this package with a closed form of the clipped sum, which does not compute per-record gradients."""

    def clipped_gradients(
        self, inputs: Tensor, labels: Int[Tensor, " b"], factors: Factors
    ) -> tuple[list[Tensor], Float[Tensor, " b"]]:
        """Return Σ factor_i g_i of every parameter (float64, in the parameters' order) and the losses; a factor of 0 omits its record.

        `factors` is a function of the norms of all records, float64, and their losses.
        """


def _whole_persons(owners: Int[Tensor, " b"], size: int) -> list[slice]:
    """Cut records, sorted by owner, into slices of at most `size` that do not split an owner. An owner with more records has a slice of their own."""
    _, counts = torch.unique_consecutive(owners, return_counts=True)
    ends = counts.cumsum(0).tolist()
    parts, start, last = [], 0, 0
    for end in ends:
        if end - start > size and last > start:
            parts.append(slice(start, last))
            start = last
        last = end
    return [*parts, slice(start, last)] if last > start else parts


class ClippedSum:
    """The sum of a batch's clipped per-record gradients, accumulated over micro-batches.

    A micro-batch holds at most `micro_batch` records, and at most as many gradients as fit in memory. If a model has a
    closed form of the sum and all its parameters are trained, the closed form is used. `way` is `vmap`, `book-keeping`
    (UserError if it does not cover the model) or `auto`: book-keeping if it covers the model, else vmap. The model
    alone decides, at the first batch, and the decision stays. Raises UserError for a model whose state changes in a
    pass, because that state would be released without noise. Models of one kind may share what is `known` of passes.
    """

    def __init__(
        self,
        model: nn.Module,
        clipping: Clipping,
        micro_batch: int,
        way: PerRecord = "vmap",
        known: dict[Any, dict[Any, Any]] | None = None,
    ) -> None:
        self.model = model
        self._known = {} if known is None else known
        self.way = way
        self.micro_batch = micro_batch
        self.parameters = [value for value in model.parameters() if value.requires_grad]
        self.size = sum(value.numel() for value in self.parameters)
        self.clipping = clipping
        held = HELD[self.parameters[0].device.type] // (4 * self.size)
        self.at_once = AdaptiveBatchSize(max(1, min(micro_batch, max(held, 4))))
        self._at_once_by_vmap = AdaptiveBatchSize(self.at_once.size)
        whole = self.size == sum(value.numel() for value in model.parameters())
        self._closed = model.clipped_gradients if whole and isinstance(model, ClosedForm) and _ours(model) else None
        self._scales: list[Tensor] = []
        self._groups: list[tuple[Tensor, Clipping]] = []
        self._gradients = per_record_gradients(model)
        self._book: BookKeeping | None = None
        self._lengths: Lengths
        self._lengths_by_vmap: Lengths
        self._decided = False

    def scale_norms(self, scales: Float[Tensor, " p"]) -> None:
        """Clip by the norm of gradients multiplied by these numbers. The summed gradients are not scaled."""
        pieces = torch.split(scales, [value.numel() for value in self.parameters])
        self._closed = None  # the closed form clips by the norm without scales
        self._scales = [piece[:1] if bool((piece == piece[0]).all()) else piece for piece in pieces]

    def clip_groups(self, groups: Sequence[tuple[Int[Tensor, " g"], Clipping]]) -> None:
        """Clip groups of coordinates (given by their indices in the vector over all parameters) separately, each by its own norm.

        Raises UserError under book-keeping, which does not compute the norms of groups.
        """
        if self.way == "book-keeping":
            raise UserError(
                "training.per_record: book-keeping does not compute the norms of groups (group_clips): choose auto or vmap"
            )
        self.way, self._closed = "vmap", None
        self._groups = list(groups)

    def _add_clipped(self, gradients: Gradients, total: Float[Tensor, " p"], losses: Float[Tensor, " b"]) -> None:
        if not self._groups:
            add_clipped(gradients, self.clipping, total, self._scales, losses)
            return
        rows = torch.cat(_rows(gradients), dim=1)
        for places, clipping in self._groups:
            part = total.new_zeros(len(places))
            add_clipped({"": rows[:, places]}, clipping, part, losses=losses)
            total[places] += part

    def __call__(
        self, inputs: Tensor, labels: Int[Tensor, " b"], persons: Int[Tensor, " b"] | None = None
    ) -> tuple[Float[Tensor, " p"], Float[Tensor, ""]]:
        """Return the sum over all parameters in one float64 vector (zero for an empty batch), and the sum of the finite losses.

        If the `persons` of the records are given, the mean gradient of each person is clipped and summed.
        """
        if not self._decided:
            self.decide(tuple(inputs.shape[1:]), by_person=persons is not None)
        if self._book is not None and self._book.drops_parameters:
            self._book.seed = int(torch.randint(2**62, ()))
        if persons is None:
            return self.at_once(lambda size: self._summed(inputs, labels, size))
        return self._summed_by_person(inputs, labels, persons.to(labels.device))

    def decide(self, shape: tuple[int, ...], by_person: bool = False) -> None:
        """Refuse a model whose state changes in a pass, and choose how gradients are computed, from the model alone.

        Persons with several records take vmap. `by_person`, it is tried whether or not there are any, because what it
        says or refuses must not depend on that.
        """
        check_state(self.model, shape)
        by_vmap = self._closed is None and (self.way == "vmap" or not self._covers(shape))
        if by_vmap or by_person:
            self._try_vmap(shape)
        like = self.parameters[0]
        narrowest = min(
            len(value) if value.dim() > 1 and len(value) > 1 else value.numel() for value in self.parameters
        )

        def lengths(vmapped: bool, narrowest: int, silent: bool = False) -> Lengths:
            known = self._known.setdefault((vmapped, shape), {})
            return Lengths(partial(self._bits, vmapped), shape, like, narrowest=narrowest, silent=silent, known=known)

        self._lengths_by_vmap = lengths(True, narrowest, silent=not by_vmap)
        self._lengths = self._lengths_by_vmap
        if not by_vmap:
            self._lengths = lengths(False, 1 if self._closed is not None else narrowest)
        if by_person:  # whether anybody has several records must not decide what is said, or when
            self._at_once_by_vmap(self._lengths_by_vmap.longest)
        self._decided = True

    def _bits(self, vmapped: bool, inputs: Tensor) -> Int[Tensor, "b 1"]:
        """Return digests of all that one pass says of each record."""
        return digests(self._passed(vmapped, inputs))

    def _passed(self, vmapped: bool, inputs: Tensor) -> list[Tensor]:
        """Return norms and losses [b, 2] of one pass without dropout, and what gradients are summed from; a closed form has no more.

        The weights are drawn: those of a training would let a training that goes on choose other lengths.
        """
        labels = torch.zeros(len(inputs), dtype=torch.long, device=inputs.device)
        found: list[Tensor] = []

        def keep(norms: Tensor, losses: Tensor) -> Tensor:
            found.append(torch.stack([norms.double(), losses.double()], dim=1))
            return torch.zeros_like(norms)

        with torch.random.fork_rng(), without_dropout(self.model), drawn_weights(self.model):
            if vmapped:
                gradients, losses = self._gradients(inputs, labels)
                rows = _rows(gradients)
                keep(_norms(rows), losses)
                found += rows
            elif self._closed is not None:
                self._closed(inputs, labels, keep)
            elif self._book is not None:
                done = self._book.run(self.model, inputs, labels, self._scales)
                keep(done.norms, done.losses)
                found += [tensor for one in done.kept for tensor in one.tensors]
        return found

    def _covers(self, shape: tuple[int, ...]) -> bool:
        """Prepare book-keeping, and return whether it covers the model; if not, say so, or refuse the model if it was asked for."""
        try:
            check_kinds(self.model)
            done = checked_pass(self.model, shape)
            check_operations(done.operations)
            book = BookKeeping(self.parameters, done)
            with torch.random.fork_rng():
                book.run(self.model, *self._blank(shape), self._scales)
        except NotCovered as reason:
            if self.way == "book-keeping":
                raise UserError(
                    f"training.per_record: book-keeping does not cover this model: {reason}; choose auto or vmap"
                ) from None
            print(f"per-record gradients by vmap: book-keeping does not cover this model: {reason}", file=sys.stderr)
            return False
        self._book = book
        taken = HELD[self.parameters[0].device.type] // (4 * max(1, sum(done.numbers.values())))
        self.at_once = AdaptiveBatchSize(max(1, min(self.micro_batch, max(taken, 8))))
        return True

    def _try_vmap(self, shape: tuple[int, ...]) -> None:
        """Raise UserError, before any record is seen or charged for, if the model's passes cannot be run record by record."""
        try:
            with torch.random.fork_rng(), refusing():
                for _ in range(2):  # the second may meet what the first one kept
                    self._gradients(*self._blank(shape))
                self._check_apart(shape)
        except Exception as error:  # a model of one's own may raise any
            if isinstance(error, UserError) or is_retryable(error):
                raise
            raise UserError(
                f"the model cannot be trained privately: a pass of one record by vmap fails ({first_line(error)})"
            ) from None

    def _check_apart(self, shape: tuple[int, ...]) -> None:
        """Raise UserError if records change one another's losses or gradients. Models that draw randomness other than dropout are not compared."""

        def found(some: Tensor, seed: int = 0) -> list[Tensor]:
            torch.manual_seed(seed)
            return self._passed(True, some)

        like = self.parameters[0]
        known = self._known.setdefault((True, shape), {})
        if known.get("apart"):
            return
        with computing(self.model, "float32"), torch.autocast(like.device.type, enabled=False):
            some = torch.randn(1, *shape, generator=torch.Generator().manual_seed(0)).to(like)
            if torch.equal(digests(found(some, seed=1)), digests(found(some))):
                check_apart(found, shape, like)
        known["apart"] = True

    def _blank(self, shape: tuple[int, ...]) -> tuple[Tensor, Int[Tensor, " 2"]]:
        like = self.parameters[0]
        return like.new_zeros(2, *shape), torch.zeros(2, dtype=torch.long, device=like.device)

    def _summed_by_person(
        self, inputs: Tensor, labels: Int[Tensor, " b"], persons: Int[Tensor, " b"]
    ) -> tuple[Tensor, Tensor]:
        """Sum over persons. Those with a single record are summed like records, then the others, a few persons at a time."""
        _, owners, counts = torch.unique(persons, return_inverse=True, return_counts=True)
        alone = counts[owners] == 1
        if bool(alone.all()):
            return self.at_once(lambda size: self._summed(inputs, labels, size))
        total, losses = self.at_once(lambda size: self._summed(inputs[alone], labels[alone], size))
        rows = torch.argsort(owners, stable=True)
        rows = rows[~alone[rows]]

        def others(size: int) -> tuple[Tensor, Tensor]:
            added = torch.zeros_like(total)
            lost = torch.zeros_like(losses)
            for part in _whole_persons(owners[rows], size):
                lost += self._add_persons(inputs, labels, rows[part], owners=owners[rows[part]], size=size, total=added)
            return added, lost

        added, lost = self._at_once_by_vmap(others)
        return total + added, losses + lost

    def _add_persons(
        self, inputs: Tensor, labels: Tensor, rows: Tensor, owners: Tensor, size: int, total: Float[Tensor, " p"]
    ) -> Float[Tensor, ""]:
        """Add the clipped mean gradient of every owner of the rows to the total; return the sum of the finite losses."""
        _, places, counts = torch.unique(owners, return_inverse=True, return_counts=True)
        means: Gradients = {}
        lost = torch.zeros(len(counts), device=labels.device)
        known = torch.zeros((), dtype=torch.float64, device=labels.device)
        for chunk, new in self._lengths_by_vmap.cut(len(rows), size):
            gradients, losses = self._gradients(inputs[rows[chunk]], labels[rows[chunk]])
            owned, losses = places[chunk[:new]], losses[:new]
            for name, value in gradients.items():
                if name not in means:
                    means[name] = value.new_zeros((len(counts), *value.shape[1:]))
                means[name].index_add_(0, owned, value[:new])
            lost = lost.index_add(0, owned, losses.float())
            known += torch.where(losses.isfinite(), losses.double(), 0.0).sum()
        for value in means.values():
            value /= counts.reshape(-1, *[1] * (value.dim() - 1))
        self._add_clipped(means, total, lost)
        return known

    def _summed(self, inputs: Tensor, labels: Int[Tensor, " b"], size: int) -> tuple[Tensor, Tensor]:
        total = torch.zeros(self.size, dtype=torch.float64, device=inputs.device)
        losses = torch.zeros((), dtype=torch.float64, device=inputs.device)
        for rows, new in self._lengths.cut(len(labels), size):
            found = self._add(inputs[rows], labels[rows], new, total).double()
            losses += torch.where(found.isfinite(), found, 0.0).sum()
        return total, losses

    def _add(
        self, inputs: Tensor, labels: Int[Tensor, " b"], new: int, total: Float[Tensor, " p"]
    ) -> Float[Tensor, " new"]:
        """Add the clipped gradients of the first `new` records of a pass to the total; return their losses."""

        def factors(norms: Tensor, losses: Tensor) -> Tensor:
            return bounded_factors(self.clipping, norms, losses) * (torch.arange(len(norms), device=norms.device) < new)

        if self._closed is not None:
            sums, losses = self._closed(inputs, labels, factors)
            total += torch.cat([value.flatten() for value in sums])
            return losses[:new]
        if self._book is not None:
            with suppress(NotCovered):  # by vmap then, without a message; no covered model comes to it
                done = self._book.run(self.model, inputs, labels, self._scales)
                self._book.add(done, factors(done.norms, done.losses), total)
                return done.losses[:new]
        gradients, losses = self._gradients(inputs, labels)
        self._add_clipped({name: value[:new] for name, value in gradients.items()}, total, losses[:new])
        return losses[:new]

    def assign(self, vector: Float[Tensor, " p"]) -> None:
        """Set every parameter's `grad` from a vector over all parameters."""
        pieces = torch.split(vector, [value.numel() for value in self.parameters])
        for value, piece in zip(self.parameters, pieces, strict=True):
            value.grad = piece.view_as(value).to(value.dtype)


@dataclass(frozen=True, eq=False)
class People:
    """The person of every record of a training set [n], numbered from 0, and the largest number of a person's records in a step."""

    of: Int[Tensor, " n"]
    most: int

    def __len__(self) -> int:
        return len(self._counts)

    @cached_property
    def _counts(self) -> Int[Tensor, " P"]:
        return torch.bincount(self.of)

    def records(self, drawn: Bool[Tensor, " P"], stream: Stream) -> Int[Tensor, " b"]:
        """Return the records of the drawn persons, in order. If a person has more than `most` records, draw `most` of them uniformly.

        The choice for a person does not depend on the other persons drawn.
        """
        rows = drawn[self.of].nonzero().squeeze(1)
        if int(self._counts.max()) <= self.most:
            return rows
        keys = stream.uniform(len(self.of))[rows]
        order = torch.argsort(keys)
        order = order[torch.argsort(self.of[rows[order]], stable=True)]
        owners = self.of[rows[order]]
        starts = torch.searchsorted(owners, owners)
        kept = order[torch.arange(len(order)) - starts < self.most]
        chosen: Tensor = rows[kept.sort().values]
        return chosen
