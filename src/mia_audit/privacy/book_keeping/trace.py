"""Trace a model's pass: every call that uses trainable parameters."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from mia_audit.privacy.book_keeping.products import Columns, Product

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
        for value in own:
            self.use(value)
        for value in _tensors((result,)):
            if value.requires_grad:
                self._expressions[id(value)] = value


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
