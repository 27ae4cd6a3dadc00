"""Check whether book-keeping covers a model: compare its gradients with those of one record at a time, on random records."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call

from mia_audit.privacy.book_keeping.engine import BookKeeping, Pass
from mia_audit.privacy.book_keeping.trace import NotCovered
from mia_audit.runtime.precision import computing

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
