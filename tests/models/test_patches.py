"""A convolution written as a product of patches against torch's own, there and back."""

import pytest
import torch
import torch.nn.functional as F
from torch.overrides import TorchFunctionMode

from mia_audit.models.patches import PatchesAsProducts


class Counting(TorchFunctionMode):
    """Counts the convolutions that are left."""

    left = 0

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.left += func is F.conv2d
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize(
    ("kernel", "options", "left"),
    [
        ((4, 4), {"stride": 4}, 0),
        ((4, 2), {"stride": (4, 2), "padding": 0}, 0),
        ((4, 4), {"stride": 2}, 1),
        ((4, 4), {"stride": 4, "padding": 2}, 1),
        ((3, 3), {"stride": 3}, 1),  # a border of pixels is left over
        ((2, 2), {"stride": 2, "groups": 3}, 1),
        ((1, 1), {"stride": 1}, 1),
    ],
)
def test_values_and_gradients_are_the_convolution_s(kernel, options, left):
    torch.manual_seed(0)
    images = torch.randn(2, 3, 8, 16, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(6, 3 // options.get("groups", 1), *kernel, dtype=torch.float64)
    bias = torch.randn(6, dtype=torch.float64)
    plain = F.conv2d(images, weight, bias, **options)
    with Counting() as counting, PatchesAsProducts():
        ours = F.conv2d(images, weight, bias, **options)
    assert counting.left == left
    torch.testing.assert_close(ours, plain)
    towards = torch.randn_like(plain)
    found, expected = (torch.autograd.grad(made, images, towards)[0] for made in (ours, plain))
    torch.testing.assert_close(found, expected)
