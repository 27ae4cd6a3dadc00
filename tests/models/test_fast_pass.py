"""The replaced operations of a pass against torch's own, there and back."""

import importlib

import pytest
import torch
import torch.nn.functional as F
from torch.overrides import TorchFunctionMode

from mia_audit.models.passes import FEW_TOKENS, FastPass
from mia_audit.runtime.torchvision_guard import guard

REPLACED = (F.conv2d, F.scaled_dot_product_attention, F.gelu)


class Counting(TorchFunctionMode):
    """Counts torch's own operations that are left."""

    left = 0

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.left += func in REPLACED
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
def test_values_and_gradients_of_convolutions_are_the_same(kernel, options, left):
    torch.manual_seed(0)
    images = torch.randn(2, 3, 8, 16, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(6, 3 // options.get("groups", 1), *kernel, dtype=torch.float64)
    bias = torch.randn(6, dtype=torch.float64)
    same_with_and_without(lambda: F.conv2d(images, weight, bias, **options), images, left)


@pytest.mark.parametrize(
    ("tokens", "options", "left"),
    [
        (FEW_TOKENS, {}, 0),
        (5, {"dropout_p": 0.0, "is_causal": False, "attn_mask": None}, 0),
        (5, {"attn_mask": torch.randn(5, 5, dtype=torch.float64)}, 0),
        (5, {"scale": 0.3}, 0),
        (5, {"attn_mask": torch.ones(5, 5, dtype=torch.bool).tril()}, 1),
        (5, {"is_causal": True}, 1),
        (FEW_TOKENS + 1, {}, 1),
    ],
)
def test_values_and_gradients_of_attention_are_the_same(tokens, options, left):
    torch.manual_seed(0)
    joint = torch.randn(3, 2, 4, tokens, 6, dtype=torch.float64, requires_grad=True)
    same_with_and_without(lambda: F.scaled_dot_product_attention(*joint, **options), joint, left)


@pytest.mark.parametrize(("approximate", "left"), [("none", 1), ("tanh", 1)])
def test_values_and_gradients_of_gelu_are_the_same(approximate, left):
    values = torch.linspace(-6, 6, 101, dtype=torch.float64, requires_grad=True)
    same_with_and_without(lambda: F.gelu(values, approximate=approximate), values, left)


@pytest.mark.parametrize(
    ("family", "name", "options"),
    [("vision_transformer", "VisionTransformer", {}), ("beit", "Beit", {"use_rel_pos_bias": True})],
)
def test_transformers_have_the_same_gradients_and_one_result_with_and_without_them(family, name, options):
    guard()
    torch.manual_seed(0)
    kind = getattr(importlib.import_module(f"timm.models.{family}"), name)
    module = kind(img_size=8, patch_size=2, embed_dim=24, depth=2, num_heads=2, num_classes=5, **options)
    module = module.eval().requires_grad_(False)
    images = torch.randn(4, 3, 8, 8, requires_grad=True)
    same_with_and_without(lambda: module(images), images, None)
    with torch.no_grad(), FastPass():
        without = module(images)
    with FastPass():
        assert torch.equal(module(images), without)


def same_with_and_without(compute, inputs, left):
    """Check a result and its gradients, twice through one graph, and the number of torch's own operations that are left."""
    plain = compute()
    with Counting() as counting, FastPass():
        ours = compute()
    assert left is None or counting.left == left
    torch.testing.assert_close(ours, plain)
    for seed in range(2):
        towards = torch.randn(plain.shape, dtype=plain.dtype, generator=torch.Generator().manual_seed(seed))
        gradients = (torch.autograd.grad(result, inputs, towards, retain_graph=True)[0] for result in (ours, plain))
        torch.testing.assert_close(*gradients)
