"""Rules for layers that apply parameters to records.

Each runs the forward pass with fixed weights, and computes gradients from the output's gradient.

Per-record gradients of weights as sums of outer products over positions: norms and clipped sums are computed without holding the gradients.

Trace a model's pass: every call that uses trainable parameters.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor
from torch.overrides import TorchFunctionMode

from mia_audit.models.passes import attention, cut, pair
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

MARK = "_mia_audit_of_batch"
"""The attribute of tensors that were computed from the records of the pass."""

Rule = Callable[..., Tensor]
Received = Callable[[Tensor], None]


class NotCovered(Exception):
    """A model uses its parameters in a way for which book-keeping has no rule."""


class Trace(TorchFunctionMode):
    """A context that traces a model's calls, and applies rules where a trainable parameter meets the records.

    A call whose inputs depend on parameters but not on records is an *expression* of the parameters: autograd keeps its
    graph. Where parameters meet the records, a rule of `rules` runs the layer on fixed weights and receives the
    gradient of its output. The gradient of a weight is kept as a `Product`. Any other parameter is expanded to one copy
    per record, so that the gradient of a copy is that of its record. Raises NotCovered where no rule applies.
    `places` are the positions of the gradient of weights, by number, that have one at a single position.
    """

    def __init__(
        self, rules: dict[str, Rule], parameters: Sequence[Tensor], count: int, places: Mapping[int, int]
    ) -> None:
        super().__init__()
        self.rules = rules
        self.count = count
        self.products: list[Product] = []
        self.expanded: dict[int, tuple[Tensor, Tensor]] = {}
        self.leaves: dict[int, Tensor] = {}
        self.events: list[str] = []
        self.operations: set[str] = set()
        """Names of the functions that were called on what was computed from the records."""
        self.on_product: Callable[[Product], None] = self.products.append
        self._parameters = {id(value): (number, value) for number, value in enumerate(parameters)}
        self._expressions: dict[int, Tensor] = {}
        self._places = places
        self._claimed: set[int] = set()
        self._anchor = torch.zeros((), device=parameters[0].device, requires_grad=True)

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        tensors = _tensors((args, kwargs))
        met = any(map(of_batch, tensors))
        own = [value for value in tensors if self.depends(value)]
        if own and (met or func.__name__ in EXPANDING):
            if (rule := self.rules.get(func.__name__)) is None:
                raise NotCovered(f"there is no rule for {func.__name__} of a parameter and records")
            result = rule(self, func, *args, **kwargs)
            met = met or of_batch(result)
        else:
            result = func(*args, **kwargs)
        if met:
            self.operations.add(func.__name__)
            for value in _tensors((result, args[:1] if in_place(func) else ())):
                setattr(value, MARK, True)
        elif own:
            self._express(own, result)
        return result

    def depends(self, value: object) -> bool:
        """Return whether a value is a trainable parameter or an expression of parameters."""
        return id(value) in self._parameters or id(value) in self._expressions

    def fixed(self, value: Tensor | None) -> Tensor | None:
        """Return a tensor without its dependence on parameters."""
        return value.detach() if value is not None and self.depends(value) else value

    def place(self, weight: Tensor) -> int | None:
        """Return the only position at which a weight has a gradient; None if it has several, or if this is not known."""
        number, _ = self._parameters.get(id(weight), (-1, weight))
        return self._places.get(number)

    def note(self, kind: str, *values: object) -> None:
        """Record the use of a rule. Every pass of a model must record the same uses."""
        names = [str(self._parameters[id(value)][0]) if id(value) in self._parameters else "" for value in values]
        self.events.append(f"{kind} {','.join(names)}")

    def rows(self, value: Tensor) -> Tensor:
        """Check that a tensor's first dimension is that of the records, and return the tensor."""
        if not of_batch(value) or not value.dim() or value.shape[0] != self.count:
            raise NotCovered("the first dimension of a layer's input is not that of the records")
        return value

    def received(self, outputs: Tensor, receive: Received) -> Tensor:
        """Return a layer's outputs, and register a hook for their gradient."""
        if not outputs.requires_grad:
            outputs = outputs + self._anchor.to(outputs.dtype)
        outputs.register_hook(receive)  # type: ignore[no-untyped-call]
        return outputs

    def product(self, weight: Tensor, groups: int, inputs: Tensor, columns: Columns, gradient: Tensor) -> None:
        """Keep the gradient of a weight: `columns` of the inputs, and the gradient [b, groups, t, p] of the outputs."""
        number, _ = self._parameters[id(weight)]
        self.on_product(Product(number, groups, inputs, columns, gradient))

    def claim(self, weight: Tensor) -> None:
        """Claim a parameter for a layer. No other layer may use it."""
        if id(weight) not in self._parameters:
            raise NotCovered("the weight of a layer is computed from other parameters")
        number, _ = self._parameters[id(weight)]
        if number in self._claimed or number in self.leaves:
            raise NotCovered("the weight of a layer is used more than once")
        self._claimed.add(number)

    def expand(self, value: Tensor, gradient: Tensor) -> None:
        """Add the gradients [b, …] of a parameter or expression [ …]."""
        gradient = gradient.reshape(len(gradient), *value.shape)
        gradient = gradient.to(torch.promote_types(gradient.dtype, torch.float32))
        before = self.expanded.get(id(value))
        self.expanded[id(value)] = (value, gradient if before is None else before[1] + gradient)

    def use(self, value: Tensor) -> None:
        """Claim a parameter or expression for uses other than as a layer's weight."""
        if id(value) in self._parameters:
            number, leaf = self._parameters[id(value)]
            if number in self._claimed:
                raise NotCovered("the weight of a layer is used more than once")
            self.leaves[number] = leaf

    def per_record(self, value: Tensor, dimensions: int) -> Tensor:
        """Return one copy of a parameter or expression for every record, [b, 1, …] with this number of dimensions."""
        inner = tuple(value.shape[1:] if value.dim() == dimensions and value.shape[0] == 1 else value.shape)
        if len(inner) >= dimensions:
            raise NotCovered("a parameter has as many dimensions as the records with which it is combined")
        self.use(value)
        shape = (self.count, *[1] * (dimensions - 1 - len(inner)), *inner)
        copies: Tensor = _Copies.apply(  # type: ignore[no-untyped-call]
            self._anchor, value.detach(), shape, lambda gradient: self.expand(value, gradient)
        )
        setattr(copies, MARK, True)
        return copies

    def _express(self, own: list[Tensor], result: Any) -> None:
        computed = [value for value in _tensors((result,)) if value.requires_grad]
        for value in own if computed else ():  # reading a type or a device uses no parameter
            self.use(value)
        self._expressions |= {id(value): value for value in computed}


class _Copies(torch.autograd.Function):
    """One copy of a tensor per record, without using memory; the copies' gradients are kept separate and not summed."""

    @staticmethod
    def forward(ctx: Any, anchor: Tensor, value: Tensor, shape: tuple[int, ...], receive: Received) -> Tensor:
        ctx.receive = receive
        return value.reshape(1, *shape[1:]).expand(shape)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, None, None, None]:
        ctx.receive(gradients[0])
        return None, None, None, None


EXPANDING = ("expand", "repeat")
"""Methods that copy a parameter for every record, and need only the number of records."""


def of_batch(value: object) -> bool:
    """Return whether a value was computed from the records of the pass."""
    return hasattr(value, MARK)


def marked(records: Tensor) -> Tensor:
    """Return the records of a pass, marked as such."""
    records = records.detach()
    setattr(records, MARK, True)
    return records


def in_place(func: Callable[..., Any]) -> bool:
    """Return whether a function changes its first argument."""
    name = func.__name__
    return name == "__setitem__" or name.startswith("__i") or (name.endswith("_") and not name.startswith("__"))


def _tensors(values: Iterable[Any]) -> list[Tensor]:
    """Return the tensors among values and the collections in them."""
    found: list[Tensor] = []
    for value in values:
        if isinstance(value, Tensor):
            found.append(value)
        elif isinstance(value, dict):
            found += _tensors(value.values())
        elif isinstance(value, tuple | list):
            found += _tensors(value)
    return found


Call = Callable[..., Tensor]


def linear(trace: Trace, func: Call, inputs: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """A linear layer on features: the gradient of the weight is Σ over positions of g aᵀ."""
    trace.rows(inputs)
    trace.note("linear", weight, bias)
    fixed, shift, place = trace.fixed(weight), trace.fixed(bias), trace.place(weight)
    if place is None or inputs.dim() != 3 or torch.is_autocast_enabled(inputs.device.type):
        outputs = func(inputs, fixed, shift)
    else:
        outputs = _AtPlace.apply(inputs, fixed, shift, place)  # type: ignore[no-untyped-call]
    return _product(trace, outputs, weight, bias, 1, inputs.to(outputs.dtype), _as_features, _as_features)


def conv2d(
    trace: Trace,
    func: Call,
    images: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: int | Sequence[int] = 1,
    padding: str | int | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
) -> Tensor:
    """A convolution is a linear layer on the patches under its kernel, and is computed as one if the patches are disjoint."""
    trace.rows(images)
    if isinstance(padding, str) or images.dim() != 4:
        raise NotCovered("the padding of a convolution is a word, or its input is not a batch of images")
    trace.note("conv2d", weight, bias)
    fixed, shift = trace.fixed(weight), trace.fixed(bias)
    assert fixed is not None
    pieces = cut(images, weight, stride, padding, dilation, groups)
    if pieces is not None:
        outputs = F.linear(pieces, fixed.flatten(1), shift).permute(0, 3, 1, 2)
        return _product(trace, outputs, weight, bias, 1, pieces.to(outputs.dtype), _as_features, _as_channels)
    outputs = func(images, fixed, shift, stride, padding, dilation, groups)
    unfold = partial(
        F.unfold,
        kernel_size=tuple(weight.shape[2:]),
        dilation=pair(dilation),
        padding=pair(padding),
        stride=pair(stride),
    )

    def columns(some: Tensor) -> Tensor:
        return unfold(some.float()).reshape(len(some), groups, weight[0].numel(), -1).transpose(2, 3)

    split = partial(_as_channels, groups=groups)
    return _product(trace, outputs, weight, bias, groups, images.to(outputs.dtype), columns, split)


def embedding(
    trace: Trace,
    func: Call,
    indices: Tensor,
    weight: Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Tensor:
    """An embedding: a linear layer on one-hot features."""
    trace.rows(indices)
    if padding_idx is not None or max_norm is not None or scale_grad_by_freq or sparse:
        raise NotCovered("an embedding uses padding_idx, max_norm, scale_grad_by_freq or sparse")
    trace.note("embedding", weight)
    trace.claim(weight)
    outputs = func(indices, trace.fixed(weight))

    def receive(gradient: Tensor) -> None:
        trace.product(weight, ONE_HOT, indices.reshape(len(indices), -1), _as_given, _as_features(gradient))

    return trace.received(outputs, receive)


def normalised(
    trace: Trace,
    func: Call,
    inputs: Tensor,
    shape: Any,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float | None = 1e-5,
) -> Tensor:
    """Layer, group or RMS normalisation: the gradient of the weight is Σ over positions of g x̂, and that of the bias is Σ g."""
    trace.rows(inputs)
    trace.note(func.__name__, weight, bias)
    for value in (weight, bias):
        if value is not None and trace.depends(value):
            trace.use(value)
    given = [trace.fixed(weight)] + ([] if func is F.rms_norm else [trace.fixed(bias)])
    outputs = func(inputs, shape, *given, eps)
    kept = _exact(inputs.detach())
    by_channel = func is F.group_norm

    def receive(gradient: Tensor) -> None:
        if weight is not None and trace.depends(weight):
            bare = [None] * len(given)
            trace.expand(weight, _over_places(_exact(gradient) * func(kept, shape, *bare, eps), weight, by_channel))
        if bias is not None and trace.depends(bias):
            trace.expand(bias, _over_places(_exact(gradient), bias, by_channel))

    return trace.received(outputs, receive)


def rms_norm(
    trace: Trace, func: Call, inputs: Tensor, shape: Any, weight: Tensor | None = None, eps: float | None = None
) -> Tensor:
    """RMS normalisation, which has no bias."""
    return normalised(trace, func, inputs, shape, weight, None, eps)


def elementwise(trace: Trace, func: Call, *values: Any, **options: Any) -> Tensor:
    """Sums and products of records with parameters: class tokens, positions, layer scale, biases of attention."""
    if trace.depends(values[0]) and in_place(func):
        raise NotCovered("a parameter is changed in place")
    of_records = max((value for value in values if of_batch(value)), key=Tensor.dim)
    trace.rows(of_records)
    trace.note("elementwise", *values)
    return func(*(_expanded(trace, value, of_records.dim()) for value in values), **options)


def cat(trace: Trace, func: Call, tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    """A concatenation of records with parameters along any dimension except the first, which is that of the records."""
    if dim % tensors[0].dim() == 0:
        raise NotCovered("a parameter is concatenated with the records along their dimension")
    trace.note("cat", *tensors)
    return func([_expanded(trace, value, value.dim()) for value in tensors], dim)


def expand(trace: Trace, func: Call, value: Tensor, *sizes: Any) -> Tensor:
    """An expansion of a parameter [1, …] to one copy per record; any other expansion is treated as an expression of the parameter."""
    target = tuple(sizes[0] if len(sizes) == 1 and not isinstance(sizes[0], int) else sizes)
    rest_as_it_is = all(size in (-1, 1) or size == own for size, own in zip(target[1:], value.shape[1:], strict=False))
    one_each = len(target) == value.dim() and value.shape[0] == 1 and target[0] == trace.count and rest_as_it_is
    if of_batch(value) or not one_each:
        return func(value, *sizes)
    trace.note("copies", value)
    return trace.per_record(value, value.dim())


def scaled_dot_product_attention(
    trace: Trace,
    func: Call,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    **options: Any,
) -> Tensor:
    """Attention with a bias of relative positions, computed as matrix products, because fused kernels compute no gradient for the bias."""
    if attn_mask is None or any(map(trace.depends, (query, key, value))):
        raise NotCovered("attention has no additive mask, or its query, key or value is a parameter")
    trace.rows(query)
    trace.note("attention", attn_mask)
    return attention(query, key, value, trace.per_record(attn_mask, query.dim()), dropout_p, **options)


def _product(
    trace: Trace,
    outputs: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    groups: int,
    inputs: Tensor,
    columns: Callable[[Tensor], Tensor],
    split: Callable[[Tensor], Tensor],
) -> Tensor:
    trained = trace.depends(weight)
    shifted = bias is not None and trace.depends(bias)
    if trained:
        trace.claim(weight)
    if shifted and bias is not None:
        trace.use(bias)
    kept = inputs.detach() if trained else None

    def receive(gradient: Tensor) -> None:
        places = split(gradient)
        if shifted and bias is not None:
            trace.expand(bias, _exact(places).flatten(0, 1).sum(dim=1).view(len(places), -1))
        if kept is not None:
            trace.product(weight, groups, kept, columns, places)

    return trace.received(outputs, receive)


class _AtPlace(torch.autograd.Function):
    """A linear layer whose outputs have a gradient at one position: only there is it multiplied by the weight."""

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, weight: Tensor, bias: Tensor | None, place: int) -> Tensor:
        ctx.weight, ctx.place = weight, place
        return F.linear(inputs, weight, bias)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        (gradient,) = gradients
        back = gradient.new_zeros(*gradient.shape[:2], ctx.weight.shape[1])
        back[:, ctx.place] = gradient[:, ctx.place] @ ctx.weight
        return back, None, None, None


def _exact(values: Tensor) -> Tensor:
    """Return values in float32 or a more precise type."""
    return values.to(torch.promote_types(values.dtype, torch.float32))


def _as_given(values: Tensor) -> Tensor:
    return values


def _as_features(values: Tensor) -> Tensor:
    """Return [b, …, n] as [b, 1, t, n]."""
    return values.reshape(len(values), 1, -1, values.shape[-1])


def _as_channels(values: Tensor, groups: int = 1) -> Tensor:
    """Return [b, groups · p, h, w] as [b, groups, h · w, p]."""
    return values.reshape(len(values), groups, values.shape[1] // groups, -1).transpose(2, 3)


def _over_places(values: Tensor, parameter: Tensor, by_channel: bool) -> Tensor:
    """Sum [b, …] to [b, *parameter.shape]; the dimension after that of the records is that of the channels, if any."""
    if by_channel:
        return values.flatten(2).sum(dim=2) if values.dim() > 2 else values
    return values.reshape(len(values), -1, *parameter.shape).sum(dim=1)


def _expanded(trace: Trace, value: Any, dimensions: int) -> Any:
    return trace.per_record(value, dimensions) if isinstance(value, Tensor) and trace.depends(value) else value


SIGNS = ("add", "sub", "mul")
RULES: dict[str, Rule] = {
    "linear": linear,
    "conv2d": conv2d,
    "embedding": embedding,
    "layer_norm": normalised,
    "group_norm": normalised,
    "rms_norm": rms_norm,
    **{f"{before}{sign}{after}": elementwise for sign in SIGNS for before, after in (("", ""), ("", "_"))},
    **{f"__{before}{sign}__": elementwise for sign in SIGNS for before in ("", "r", "i")},
    "cat": cat,
    "expand": expand,
    "repeat": expand,
    "scaled_dot_product_attention": scaled_dot_product_attention,
}
"""Rules by the name of the function that is called."""
