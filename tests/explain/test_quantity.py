"""Quantities and their derivatives against autograd and against the decimals of a model that is sure."""

from decimal import Decimal, localcontext

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mia_audit.explain.batch import QUANTITIES

LOGITS = st.lists(st.floats(-20, 20), min_size=2, max_size=6)


@pytest.mark.parametrize("name", QUANTITIES)
@given(LOGITS, st.data())
@settings(deadline=None, max_examples=40, derandomize=True)
def test_gradient_is_autograds(name: str, values: list[float], data: st.DataObject) -> None:
    logits = torch.tensor([values], dtype=torch.float64, requires_grad=True)
    classes = torch.tensor([data.draw(st.integers(0, len(values) - 1))])
    quantity = QUANTITIES[name]
    (expected,) = torch.autograd.grad(quantity.value(logits, classes).sum(), logits)
    torch.testing.assert_close(quantity.gradient(logits.detach(), classes), expected, rtol=1e-9, atol=1e-15)


def test_probability_gradient_keeps_its_digits_where_the_model_is_sure() -> None:
    with localcontext() as context:
        context.prec = 60
        odds = Decimal(-40).exp() * 2  # logits (40, 0, 0)
        expected = odds / (1 + odds) ** 2
    logits = torch.tensor([[40.0, 0.0, 0.0]], dtype=torch.float64)
    gradient = QUANTITIES["probability"].gradient(logits, torch.tensor([0]))[0].tolist()
    assert gradient[0] == pytest.approx(float(expected), rel=1e-12, abs=0)
    assert gradient[1] == pytest.approx(-float(expected) / 2, rel=1e-12, abs=0)
