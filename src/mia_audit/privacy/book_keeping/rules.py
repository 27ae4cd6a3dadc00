"""Rules for the calls in which a model's parameters meet its records, and the trace that applies them to a pass.

Why a trace of calls, and not hooks of modules: what has to be kept of a layer is decided by the operation on its
weight (a class token is no module, BEiT's bias is an expression of parameters, attention may be fused or not), and a
parameter that no rule has seen must be an error, not a gradient of 0. `Trace` sees every call of torch's functions
while the model runs. A call on records and a trainable parameter is given to the rule of its name, which runs it with
the parameter fixed and keeps what its per-record gradient needs; a call on parameters alone is an expression, through
which autograd differentiates later; a call for which there is no rule is refused.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from mia_audit.models.passes import attention, cut, pair
from mia_audit.privacy.book_keeping.products import ONE_HOT, Columns, Product

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
    `places` are the positions of the gradient of weights, by number, that have one at a single position; dropout of
    expressions is drawn from the `seed`.
    """

    def __init__(
        self, rules: dict[str, Rule], parameters: Sequence[Tensor], count: int, places: Mapping[int, int], seed: int
    ) -> None:
        super().__init__()
        self.rules = rules
        self.count = count
        self.expanded: dict[int, tuple[Tensor, Tensor]] = {}
        self.leaves: dict[int, Tensor] = {}
        self.operations: set[str] = set()
        """Names of the functions that were called on what was computed from the records."""
        self.on_product: Callable[[Product], bool] = lambda product: False
        """Keeps a product, and returns whether the gradient of its bias is kept with it."""
        self._parameters = {id(value): number for number, value in enumerate(parameters)}
        self._expressions: dict[int, Tensor] = {}
        self._places = places
        self._seed = seed
        self.dropped = 0
        """How often dropout was applied to an expression."""
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
        elif own and "drop" in func.__name__:
            result = self._dropped(func, args, kwargs)
        else:
            result = func(*args, **kwargs)
        if met:
            self.operations.add(func.__name__)
            for value in _tensors((result, args[:1] if in_place(func) else ())):
                setattr(value, MARK, True)
        elif own:
            self._express(own, result)
        return result

    def _dropped(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call dropout of what all records share, with the seed of all passes of a step: else a record's gradient would depend on its pass."""
        with torch.random.fork_rng():
            torch.manual_seed(self._seed + self.dropped)
            self.dropped += 1
            return func(*args, **kwargs)

    def depends(self, value: object) -> bool:
        """Return whether a value is a trainable parameter or an expression of parameters."""
        return id(value) in self._parameters or id(value) in self._expressions

    def fixed(self, value: Tensor | None) -> Tensor | None:
        """Return a tensor without its dependence on parameters."""
        return value.detach() if value is not None and self.depends(value) else value

    def place(self, weight: Tensor) -> int | None:
        """Return the only position at which a weight has a gradient; None if it has several, or if this is not known."""
        number = self.number(weight)
        return None if number is None else self._places.get(number)

    def rows(self, value: Tensor) -> Tensor:
        """Check that a tensor's first dimension is that of the records, and return the tensor."""
        if not of_batch(value) or not value.dim() or value.shape[0] != self.count:
            raise NotCovered("the first dimension of a layer's input is not that of the records")
        return value

    def received(self, outputs: Tensor, receive: Received) -> Tensor:
        """Return a layer's outputs, and register a hook for their gradient.

        A linear layer returns a view of its product, of the same layout. The hook is for the product, because that of a
        view is lost if the model changes the view in place.
        """
        if not outputs.requires_grad:
            outputs = outputs + self._anchor.to(outputs.dtype)
        shape = outputs.shape
        product = outputs if outputs._base is None or not outputs._base.requires_grad else outputs._base
        product.register_hook(lambda gradient: receive(gradient.view(shape)))  # type: ignore[no-untyped-call]
        return outputs

    def product(
        self,
        weight: Tensor,
        bias: Tensor | None,
        groups: int,
        inputs: Tensor,
        columns: Columns,
        gradient: Tensor,
        order: tuple[int, ...] = (),
    ) -> bool:
        """Keep the gradient of a weight: `columns` of the inputs, and the gradient [b, groups, t, p] of the outputs.

        `order` is that of the weight's dimensions in the columns. Return whether it includes the gradient of the bias, which
        must be claimed.
        """
        number, shift = self.number(weight), None if bias is None else self.number(bias)
        assert number is not None
        return self.on_product(
            Product(
                number=number,
                bias=shift,
                groups=groups,
                inputs=inputs,
                columns=columns,
                gradients=gradient,
                order=order,
            )
        )

    def number(self, value: Tensor) -> int | None:
        """Return the number of a trainable parameter; None of another tensor."""
        return self._parameters.get(id(value))

    def claim(self, weight: Tensor) -> None:
        """Claim a parameter for a layer. No other layer may use it."""
        if (number := self.number(weight)) is None:
            raise NotCovered("the weight of a layer is computed from other parameters")
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
        if (number := self.number(value)) is not None:
            if number in self._claimed:
                raise NotCovered("the weight of a layer is used more than once")
            self.leaves[number] = value

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
    fixed, shift, place = trace.fixed(weight), trace.fixed(bias), trace.place(weight)
    if place is None or inputs.dim() != 3 or torch.is_autocast_enabled(inputs.device.type):
        outputs = func(inputs, fixed, shift)
    else:
        outputs = _AtPlace.apply(inputs, fixed, shift, place)  # type: ignore[no-untyped-call]
    return _product(
        trace,
        outputs,
        weight,
        bias=bias,
        groups=1,
        inputs=inputs.to(outputs.dtype),
        columns=_as_features,
        split=_as_features,
    )


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
    fixed, shift = trace.fixed(weight), trace.fixed(bias)
    assert fixed is not None
    pieces = cut(images, weight, stride, padding=padding, dilation=dilation, groups=groups)
    if pieces is not None:
        outputs = F.linear(pieces, fixed.flatten(1), shift)
        kept = pieces.to(outputs.dtype)
        return _product(
            trace, outputs, weight, bias=bias, groups=1, inputs=kept, columns=_as_features, split=_as_features
        ).permute(0, 3, 1, 2)
    outputs = func(images, fixed, shift, stride, padding, dilation, groups)
    margin = [side for side in reversed(pair(padding)) for _ in range(2)]
    # copies are fast if what is next to each other stays so: a row of the outputs' positions, or the channels under a kernel's row
    channels_last = groups == 1 and max(weight.shape[2:]) > 1 and weight.shape[1] * weight.shape[3] > outputs.shape[3]

    def columns(some: Tensor) -> Tensor:
        under = F.pad(some.float(), margin) if any(margin) else some.float()
        if channels_last:
            under = under.contiguous(memory_format=torch.channels_last)
        for side, size, step, apart in zip((2, 3), weight.shape[2:], pair(stride), pair(dilation), strict=True):
            under = under.unfold(side, (size - 1) * apart + 1, step)[..., ::apart]
        if channels_last:
            return under.permute(0, 2, 3, 4, 5, 1).reshape(len(some), 1, -1, weight[0].numel())
        under = under.permute(0, 1, 4, 5, 2, 3).flatten(4)  # ten times as fast as F.unfold on a CPU
        return under.reshape(len(some), groups, weight[0].numel(), -1).transpose(2, 3)

    def split(gradient: Tensor) -> Tensor:
        return gradient.reshape(len(gradient), groups, len(weight) // groups, -1).transpose(2, 3)

    return _product(
        trace,
        outputs,
        weight,
        bias=bias,
        groups=groups,
        inputs=images.to(outputs.dtype),
        columns=columns,
        split=split,
        order=(0, 2, 3, 1) if channels_last else (),
    )


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
    trace.claim(weight)
    outputs = func(indices, trace.fixed(weight))

    def receive(gradient: Tensor) -> None:
        trace.product(
            weight,
            None,
            ONE_HOT,
            inputs=indices.reshape(len(indices), -1),
            columns=_as_given,
            gradient=_as_features(gradient),
        )

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
    return normalised(trace, func, inputs, shape=shape, weight=weight, bias=None, eps=eps)


def elementwise(trace: Trace, func: Call, *values: Any, **options: Any) -> Tensor:
    """Sums and products of records with parameters: class tokens, positions, layer scale, biases of attention."""
    if trace.depends(values[0]) and in_place(func):
        raise NotCovered("a parameter is changed in place")
    of_records = max((value for value in values if of_batch(value)), key=Tensor.dim)
    trace.rows(of_records)
    return func(*(_expanded(trace, value, of_records.dim()) for value in values), **options)


def cat(trace: Trace, func: Call, tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    """A concatenation of records with parameters along any dimension except the first, which is that of the records."""
    if dim % tensors[0].dim() == 0:
        raise NotCovered("a parameter is concatenated with the records along their dimension")
    return func([_expanded(trace, value, value.dim()) for value in tensors], dim)


def expand(trace: Trace, func: Call, value: Tensor, *sizes: Any) -> Tensor:
    """An expansion of a parameter [1, …] to one copy per record; any other expansion is treated as an expression of the parameter."""
    target = tuple(sizes[0] if len(sizes) == 1 and not isinstance(sizes[0], int) else sizes)
    rest_as_it_is = all(size in (-1, 1) or size == own for size, own in zip(target[1:], value.shape[1:], strict=False))
    one_each = len(target) == value.dim() and value.shape[0] == 1 and target[0] == trace.count and rest_as_it_is
    if of_batch(value) or not one_each:
        return func(value, *sizes)
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
    order: tuple[int, ...] = (),
) -> Tensor:
    shift = bias if bias is not None and trace.depends(bias) else None
    own = shift if trace.depends(weight) and shift is not None and trace.number(shift) is not None else None
    if own is not None:
        trace.claim(own)
    elif shift is not None:
        trace.use(shift)
    kept = None
    if trace.depends(weight):
        trace.claim(weight)
        kept = inputs.detach()

    def receive(gradient: Tensor) -> None:
        places = split(gradient)
        joined = kept is not None and trace.product(
            weight, own, groups, inputs=kept, columns=columns, gradient=places, order=order
        )
        if shift is not None and not joined:
            trace.expand(shift, _exact(places).sum(dim=2).flatten(1))

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


def _over_places(values: Tensor, parameter: Tensor, by_channel: bool) -> Tensor:
    """Sum [b, …] to [b, *parameter.shape]; the dimension after that of the records is that of the channels, if any."""
    if by_channel:
        return values.flatten(2).sum(dim=2) if values.dim() > 2 else values
    values = values.reshape(len(values), -1, *parameter.shape)
    return values[:, 0] if values.shape[1] == 1 else values.sum(dim=1)


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
