"""What is written out for vmap equals the operation that it stands in for."""

from collections.abc import Sequence

import pytest
import torch
import torch.nn.functional as F
from torch.func import vmap

from mia_audit.privacy.per_record import Batchable


@pytest.mark.parametrize(
    ("stride", "padding", "size", "groups"),
    [(2, 0, 8, 1), ((2, 2), (0, 0), 6, 1), (2, 0, 7, 1), (1, 0, 8, 1), (2, 1, 8, 1), (2, "valid", 8, 1), (2, 0, 8, 2)],
)
def test_convolutions(
    stride: int | tuple[int, int], padding: str | int | Sequence[int], size: int, groups: int
) -> None:
    torch.manual_seed(0)
    images, weight, bias = torch.randn(3, 4, size, size), torch.randn(6, 4 // groups, 2, 2), torch.randn(6)
    arguments = (images, weight, bias, stride, padding, 1, groups)
    with Batchable():
        found = F.conv2d(*arguments)  # type: ignore[arg-type]
    assert torch.allclose(found, F.conv2d(*arguments), atol=1e-5)  # type: ignore[arg-type]


@pytest.mark.parametrize("variant", ["plain", "scale", "bias", "boolean", "causal"])
def test_attention(variant: str) -> None:
    torch.manual_seed(0)
    query, key, value = torch.randn(3, 2, 2, 5, 4)
    options = {
        "plain": {},
        "scale": {"scale": 0.3},
        "bias": {"attn_mask": torch.randn(2, 5, 5)},
        "boolean": {"attn_mask": torch.ones(5, 5).tril().bool()},
        "causal": {"is_causal": True},
    }[variant]
    expected = F.scaled_dot_product_attention(query, key, value, **options)  # type: ignore[arg-type]
    with Batchable():
        found = vmap(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, **options))(  # type: ignore[arg-type]
            query[None], key[None], value[None]
        )
    assert torch.allclose(found[0], expected, atol=1e-6)
