"""Rules for layers that apply parameters to records.

Each runs the forward pass with fixed weights, and computes gradients from the output's gradient.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from mia_audit.models.products import attention, cut, pair
from mia_audit.privacy.book_keeping.products import ONE_HOT
from mia_audit.privacy.book_keeping.trace import NotCovered, Rule, Trace, in_place, of_batch

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
