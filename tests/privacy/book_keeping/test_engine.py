"""Book-keeping against plain autograd in float64, one record at a time, for every parameter and every way of summing."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mia_audit.models.architecture import build
from mia_audit.privacy.book_keeping import products
from mia_audit.privacy.book_keeping.engine import BookKeeping, Pass, checked_pass
from mia_audit.privacy.per_record import per_record_gradients
from mia_audit.runtime.device import computing

WAYS = {"factored": (10**9, 2**18), "held": (-1, 2**30), "formed": (-1, -(10**9))}


def seeded(make: type[nn.Module]) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return make().train()


def drawn(shape: tuple[int, ...], count: int = 9) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(3)
    return torch.randn(count, *shape, generator=generator), torch.randint(3, (count,), generator=generator)


def trained(model: nn.Module) -> dict[str, Tensor]:
    return {name: value for name, value in model.named_parameters() if value.requires_grad}


def alone(model: nn.Module, inputs: Tensor, labels: Tensor) -> Tensor:
    """Gradients [b, p] by plain autograd in float64."""
    model = model.double()
    rows = []
    for record, label in zip(inputs.double() if inputs.is_floating_point() else inputs, labels, strict=True):
        given = torch.autograd.grad(F.cross_entropy(model(record[None]), label[None]), list(trained(model).values()))
        rows.append(torch.cat([value.flatten() for value in given]))
    model.float()
    return torch.stack(rows)


def compare(model: nn.Module, inputs: Tensor, labels: Tensor, checked: Pass | None = None) -> None:
    """Norms and a weighted sum, parameter by parameter; in float64, rounded to float32 where gradients are held."""
    expected = alone(model, inputs, labels)
    weights = torch.linspace(0.1, 1, len(labels), dtype=torch.float64)
    weights[2] = 0
    model.double()
    book = BookKeeping(list(trained(model).values()), checked)
    done = book.run(model, inputs.double() if inputs.is_floating_point() else inputs, labels)
    total = torch.zeros(expected.shape[1], dtype=torch.float64)
    book.add(done, weights, total)
    model.float()
    torch.testing.assert_close(done.norms, expected.norm(dim=1), rtol=1e-6, atol=0)
    sizes = [value.numel() for value in trained(model).values()]
    for name, ours, right in zip(trained(model), total.split(sizes), (weights @ expected).split(sizes), strict=True):
        assert (ours - right).norm() <= 1e-6 * right.norm() + 1e-12, name


def test_every_parameter_is_exact(model_and_shape: tuple[nn.Module, tuple[int, ...]]) -> None:
    model, shape = model_and_shape
    compare(model, *drawn(shape))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", ["vit", "cnn"])
def test_every_way_of_summing_is_exact(way: str, name: str, models, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    few, large = WAYS[way]
    monkeypatch.setattr(products, "FEW", few)
    monkeypatch.setattr(products, "LARGE", large)
    monkeypatch.setattr("mia_audit.privacy.noise.DOUBLED", {"cpu": 300})  # several parts
    if way == "formed":
        monkeypatch.setattr(products.Product, "way", lambda self, width, uniform: "formed")
    model, shape = models[name]()
    compare(model.train(), *drawn(shape))


def test_layers_after_the_last_attention_have_a_gradient_at_the_class_token_only(models) -> None:  # type: ignore[no-untyped-def]
    model, shape = models["vit"]()
    checked = checked_pass(model.train(), shape)
    names = [name for name, _ in model.named_parameters()]
    last = {"blocks.1.attn.proj.weight", "blocks.1.mlp.fc1.weight", "blocks.1.mlp.fc2.weight"}
    assert {names[number]: place for number, place in checked.places.items()} == dict.fromkeys(last, 0)
    compare(model, *drawn(shape), checked)


def test_agrees_with_vmap_in_float32(model_and_shape: tuple[nn.Module, tuple[int, ...]]) -> None:
    model, shape = model_and_shape
    inputs, labels = drawn(shape)
    expected, losses = per_record_gradients(model)(inputs, labels)
    rows = torch.cat([value.flatten(1) for value in expected.values()], dim=1).double()
    book = BookKeeping(list(model.parameters()))
    done = book.run(model, inputs, labels)
    total = torch.zeros(rows.shape[1], dtype=torch.float64)
    book.add(done, torch.ones(9, dtype=torch.float64), total)
    torch.testing.assert_close(done.norms, rows.norm(dim=1), rtol=1e-6, atol=0)
    assert (total - rows.sum(dim=0)).norm() <= 1e-6 * rows.sum(dim=0).norm()
    torch.testing.assert_close(done.losses, losses, rtol=1e-6, atol=1e-6)


class Words(nn.Module):
    """An embedding, RMSNorm and a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(6, 4)
        self.norm = nn.RMSNorm(4)
        self.head = nn.Linear(4, 3)

    def forward(self, indices: Tensor) -> Tensor:
        return self.head(self.norm(self.words(indices)).mean(dim=1))  # type: ignore[no-any-return]


class Grouped(nn.Sequential):
    """A strided convolution in groups, dilated, a depthwise one, one of single pixels, and activations in place."""

    def __init__(self) -> None:
        super().__init__(
            nn.Conv2d(4, 8, 3, stride=2, padding=2, dilation=2, groups=2),
            nn.GroupNorm(2, 8),
            nn.ReLU(inplace=True),
            nn.Conv2d(8, 8, 3, padding=1, groups=8, bias=False),
            nn.SiLU(inplace=True),
            nn.Conv2d(8, 8, 1),
            nn.SiLU(inplace=True),
            nn.Flatten(2),
            nn.Linear(16, 16),
            nn.ReLU(inplace=True),
            nn.Flatten(),
            nn.Linear(128, 3),
        )


class ChannelsLast(nn.Sequential):
    """Convolutions with more numbers under a row of the kernel than in a row of outputs; kernels, strides and paddings are not square."""

    def __init__(self) -> None:
        super().__init__(
            nn.Conv2d(5, 6, (3, 2), stride=(2, 1), padding=(1, 0), dilation=(1, 2)),
            nn.Tanh(),
            nn.Conv2d(6, 4, (2, 3), padding=(0, 1), bias=False),
            nn.Flatten(),
            nn.Linear(72, 3),
        )


def test_an_embedding_is_exact() -> None:
    generator = torch.Generator().manual_seed(0)
    indices = torch.randint(6, (9, 5), generator=generator)
    compare(seeded(Words), indices, torch.arange(9) % 3)


def test_convolutions_in_groups_are_exact() -> None:
    compare(seeded(Grouped), *drawn((4, 8, 8)))


@pytest.mark.parametrize("part", ["head", "bias"])
def test_frozen_parameters_have_no_gradient(part: str, models) -> None:  # type: ignore[no-untyped-def]
    model, shape = models["beit"]()
    for name, value in model.named_parameters():
        value.requires_grad_(name.startswith("head") if part == "head" else name.endswith("bias"))
    compare(model.train(), *drawn(shape))


@pytest.mark.parametrize("way", [None, *WAYS])
def test_convolutions_with_channels_last_are_exact(way: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    if way:
        monkeypatch.setattr(products.Product, "way", lambda self, width, uniform: way)
    compare(seeded(ChannelsLast), *drawn((5, 8, 8)))


@pytest.mark.parametrize("way", ["held", "formed"])
@pytest.mark.parametrize("name", ["mlp", "channels-last"])
def test_norms_are_scaled_number_by_number(name: str, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products.Product, "way", lambda self, width, uniform: way)
    model = build("mlp", {"width": 8}, (5,), 3, 0).train() if name == "mlp" else seeded(ChannelsLast)
    inputs, labels = drawn((5,) if name == "mlp" else (5, 8, 8))
    expected = alone(model, inputs, labels)
    generator = torch.Generator().manual_seed(1)
    scales = [
        torch.rand(value.numel() if index % 3 else 1, generator=generator) + 0.5
        for index, value in enumerate(model.parameters())
    ]
    every = torch.cat([scale.expand(value.numel()) for scale, value in zip(scales, model.parameters(), strict=True)])
    book = BookKeeping(list(model.parameters()))
    norms = book.run(model, inputs, labels, scales).norms
    torch.testing.assert_close(norms, (expected * every.double()).norm(dim=1), rtol=1e-6, atol=0)


def test_gradients_of_large_layers_are_not_held(models, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    model, shape = models["vit"]()
    monkeypatch.setattr(products, "FEW", -1)
    monkeypatch.setattr(products, "LARGE", 0)
    inputs, labels = drawn(shape)
    done = BookKeeping(list(model.parameters())).run(model.train(), inputs, labels)
    held = {one.number for one in done.kept if isinstance(one, products.GradientRows)}
    small = {n for n, value in enumerate(model.parameters()) if value.dim() == 1 or value.shape[0] == 1}
    no_larger = {n for n, (name, _) in enumerate(model.named_parameters()) if name.endswith("attn.proj.weight")}
    assert held == small | no_larger  # 64 numbers made of 5 places of 8 + 8


def test_a_records_gradient_is_the_same_bits_whichever_records_stand_beside_it(models) -> None:  # type: ignore[no-untyped-def]
    for name in ("vit", "relative-position", "cnn"):
        model, shape = models[name]()
        inputs, labels = drawn(shape, 13)
        book = BookKeeping(list(model.eval().parameters()), checked_pass(model, shape))
        among = book.run(model, inputs, labels).norms
        fewer = book.run(model, torch.cat([inputs[:1], 100 * inputs[5:12]]), labels[[0, *range(5, 12)]]).norms
        assert torch.equal(among[0], fewer[0]), name


def test_bfloat16_gradients_are_near_those_of_vmap(models) -> None:  # type: ignore[no-untyped-def]
    model, shape = models["vit"]()
    inputs, labels = drawn(shape)
    with computing(model.train(), "bf16"):
        expected, _ = per_record_gradients(model)(inputs, labels)
        book = BookKeeping(list(model.parameters()))
        done = book.run(model, inputs, labels)
    rows = torch.cat([value.flatten(1) for value in expected.values()], dim=1).double()
    torch.testing.assert_close(done.norms, rows.norm(dim=1), rtol=0.02, atol=0)


def test_a_small_gradient_of_large_features_has_its_norm() -> None:
    """Squares of either alone are 0 or infinite in float32; their product is neither."""
    generator = torch.Generator().manual_seed(0)
    features = 1e18 * torch.rand(8, 4096, generator=generator)
    gradients = 1e-23 * torch.rand(8, 1, 2048, generator=generator)
    one = products.Product(0, None, 1, features, lambda some: some[:, None, None], gradients[:, None])
    found = products.Factored(one).squares(4096 * 2048, 1.0, 0.0).sqrt()
    expected = features.double().norm(dim=1) * gradients[:, 0].double().norm(dim=1)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=0)
