"""Models that book-keeping does not cover: refused where it is asked for, and by vmap to the last bit where it may choose."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mia_audit.errors import UserError
from mia_audit.privacy.book_keeping.engine import checked_pass
from mia_audit.privacy.book_keeping.rules import NotCovered
from mia_audit.privacy.catalogue import PerRecord
from mia_audit.privacy.noise import automatic
from mia_audit.privacy.per_record import ClippedSum


class Model(nn.Module):
    """Two layers of 5 features and a head of 3 classes, used as `how` says."""

    def __init__(self, how: Callable[["Model", Tensor], Tensor]) -> None:
        super().__init__()
        self.how = how
        self.first, self.second, self.head = nn.Linear(5, 5), nn.Linear(5, 5), nn.Linear(5, 3)
        self.shift = nn.Parameter(torch.ones(5))
        self.halved = False

    def forward(self, inputs: Tensor) -> Tensor:
        return self.head(self.how(self, inputs))  # type: ignore[no-any-return]


def used(how: Callable[[Model, Tensor], Tensor]) -> Model:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return Model(how).train()


class Hidden(torch.autograd.Function):
    """A product that torch's functions do not show."""

    @staticmethod
    def forward(ctx, inputs, weight):  # type: ignore[no-untyped-def]
        ctx.save_for_backward(inputs, weight)
        return inputs * weight

    @staticmethod
    def backward(ctx, gradient):  # type: ignore[no-untyped-def, override]
        inputs, weight = ctx.saved_tensors
        return gradient * weight, (gradient * inputs).sum(dim=0)


COVERED: dict[str, Callable[[Model, Tensor], Tensor]] = {
    "layers": lambda m, x: m.second(m.first(x).relu()) * m.shift,
    "an expression of parameters": lambda m, x: m.first(x) + torch.cat([m.shift[:2], m.shift[:3]]).tanh(),
    "a parameter used twice": lambda m, x: m.first(x * m.shift) + m.shift,
    "dropout": lambda m, x: F.dropout(m.first(x), m.first.bias.new_zeros(()).item(), m.training),
}

NOT_COVERED: dict[str, tuple[str, Callable[[Model, Tensor], Tensor]]] = {
    "a layer used twice": ("more than once", lambda m, x: m.first(m.first(x))),
    "a weight shared by two layers": ("more than once", lambda m, x: F.linear(m.first(x), m.first.weight)),
    "a computed weight": ("computed from other", lambda m, x: F.linear(x, m.first.weight / m.first.weight.norm())),
    "a weight in another function": ("there is no rule", lambda m, x: x @ m.first.weight),
    "a weight beside its layer": ("more than once", lambda m, x: m.first(x) * m.first.weight.sum()),
    "records mixed": ("alone", lambda m, x: m.first(x - x.mean(dim=0))),
    "another first dimension": ("first dimension", lambda m, x: m.first(x[None])[0]),
    "randomness": ("randomness", lambda m, x: m.first(x + torch.randn_like(x))),
    "code of its own": ("no function of torch", lambda m, x: Hidden.apply(m.first(x), m.shift)),  # type: ignore[no-untyped-call]
}


@pytest.mark.parametrize("name", COVERED)
def test_layers_and_expressions_are_covered(name: str) -> None:
    assert checked_pass(used(COVERED[name]), (5,)).numbers["held"] > 0


@pytest.mark.parametrize("name", NOT_COVERED)
def test_uses_without_a_rule_are_not_covered(name: str) -> None:
    reason, how = NOT_COVERED[name]
    with pytest.raises(NotCovered, match=reason):
        checked_pass(used(how), (5,))


def test_the_check_leaves_no_trace() -> None:
    model = used(lambda m, x: F.dropout(m.first(x), 0.5, m.training))
    model.second = nn.Dropout(0.5)  # type: ignore[assignment]
    state = torch.get_rng_state()
    weights = [value.clone() for value in model.parameters()]
    with pytest.raises(NotCovered, match="randomness"):
        checked_pass(model, (5,))
    assert torch.equal(torch.get_rng_state(), state)
    assert model.second.p == 0.5  # type: ignore[attr-defined]
    assert all(map(torch.equal, weights, model.parameters())) and all(p.grad is None for p in model.parameters())


def test_a_model_that_is_not_covered_is_taken_by_vmap_and_said(capsys: pytest.CaptureFixture[str]) -> None:
    model = used(lambda m, x: m.first(m.first(x)))
    inputs, labels = torch.randn(12, 5, generator=torch.Generator().manual_seed(0)), torch.arange(12) % 3
    expected = ClippedSum(model, automatic(1.0), 12)(inputs, labels)
    found = ClippedSum(model, automatic(1.0), 12, "auto")(inputs, labels)
    assert all(map(torch.equal, found, expected))
    assert "by vmap" in capsys.readouterr().err
    with pytest.raises(UserError, match="per_record: book-keeping does not cover"):
        ClippedSum(model, automatic(1.0), 12, "book-keeping")(inputs, labels)


def test_calls_that_differ_from_those_checked_are_taken_by_vmap(capsys: pytest.CaptureFixture[str]) -> None:
    model = used(lambda m, x: m.second(m.first(x)) if m.halved else m.first(x) + m.second(x))
    inputs, labels = torch.randn(12, 5, generator=torch.Generator().manual_seed(0)), torch.arange(12) % 3
    clipped = ClippedSum(model, automatic(1.0), 12, "auto")
    clipped(inputs, labels)
    assert not capsys.readouterr().err
    model.halved = True
    expected = ClippedSum(model, automatic(1.0), 12)(inputs, labels)
    assert not torch.equal(clipped(inputs, labels)[0], expected[0])  # the same layers, each used once: the same calls
    model.how = lambda m, x: m.first(x)
    expected = ClippedSum(model, automatic(1.0), 12)(inputs, labels)
    assert torch.equal(clipped(inputs, labels)[0], expected[0])
    assert "other calls" in capsys.readouterr().err


def test_a_gradient_at_another_position_than_checked_is_taken_by_vmap(capsys: pytest.CaptureFixture[str]) -> None:
    model = used(lambda m, x: m.second(m.first(x))[:, 2 if m.halved else 1])
    inputs, labels = torch.randn(12, 3, 5, generator=torch.Generator().manual_seed(0)), torch.arange(12) % 3
    clipped = ClippedSum(model, automatic(1.0), 12, "auto")
    torch.testing.assert_close(clipped(inputs, labels), ClippedSum(model, automatic(1.0), 12)(inputs, labels))
    assert checked_pass(model, (3, 5)).places == {1: 1, 3: 1} and not capsys.readouterr().err
    model.halved = True
    assert torch.equal(clipped(inputs, labels)[0], ClippedSum(model, automatic(1.0), 12)(inputs, labels)[0])
    assert "other positions" in capsys.readouterr().err


@pytest.mark.parametrize("way", ["vmap", "book-keeping"])
def test_a_record_that_is_not_finite_at_a_position_without_gradient_contributes_nothing(way: PerRecord) -> None:
    model = used(lambda m, x: m.second(m.first(x))[:, 1])
    inputs, labels = torch.randn(12, 3, 5, generator=torch.Generator().manual_seed(0)), torch.arange(12) % 3
    expected, _ = ClippedSum(model, automatic(1.0), 12, way)(inputs[1:], labels[1:])
    inputs[0, 2, 3] = torch.inf
    total, _ = ClippedSum(model, automatic(1.0), 12, way)(inputs, labels)
    torch.testing.assert_close(total, expected)
