"""No record adds more than the sensitivity."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mia_audit.privacy.noise import CLIPPINGS


@pytest.mark.parametrize("name", sorted(CLIPPINGS))
@settings(deadline=None, max_examples=60, derandomize=True)
@given(norm=st.floats(0, 2.0**60, width=32), clip_norm=st.floats(0.001, 100))
def test_a_clipped_norm_is_at_most_the_sensitivity(name: str, norm: float, clip_norm: float) -> None:
    clipping = CLIPPINGS[name](clip_norm)
    factor = clipping.factors(torch.tensor([norm]))
    assert 0 <= factor.item() * norm <= clipping.sensitivity * (1 + 1e-5)


def test_flat_leaves_short_gradients_alone() -> None:
    assert torch.allclose(
        CLIPPINGS["flat"](2.0).factors(torch.tensor([0.0, 1.0, 2.0, 8.0])), torch.tensor([1, 1, 1, 0.25])
    )


def test_automatic_is_one_over_the_norm_plus_a_hundredth() -> None:
    assert torch.allclose(CLIPPINGS["automatic"](5.0).factors(torch.tensor([0.0, 0.99])), torch.tensor([100.0, 1.0]))
