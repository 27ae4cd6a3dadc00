"""Clipped sums of per-record gradients against a loop over batches of one record."""

import itertools
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from mia_audit.errors import UserError
from mia_audit.models.architecture import build
from mia_audit.privacy import per_record
from mia_audit.privacy.catalogue import PerRecord
from mia_audit.privacy.noise import Clipping, automatic, flat
from mia_audit.privacy.per_record import ClippedSum, Gradients, add_clipped, per_record_gradients
from mia_audit.runtime.device import computing


def records_for(shape: tuple[int, ...], count: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(2)
    return torch.randn(count, *shape, generator=generator), torch.randint(3, (count,), generator=generator)


def loop(model: nn.Module, inputs: Tensor, labels: Tensor, clipping: Clipping) -> Tensor:
    """Sum of clipped gradients, by plain autograd on one record at a time."""
    parameters = [value for value in model.parameters() if value.requires_grad]
    total = torch.zeros(sum(value.numel() for value in parameters), dtype=torch.float64)
    for record, label in zip(inputs, labels, strict=True):
        found = torch.autograd.grad(F.cross_entropy(model(record[None]), label[None]), parameters)
        gradient = torch.cat([value.flatten().double() for value in found])
        total += clipping.factors(gradient.norm()[None]) * gradient
    return total


@pytest.mark.parametrize("clipping", [automatic(1.0), flat(0.3)], ids=lambda clipping: clipping.name)
def test_equals_a_loop_over_single_records(
    model_and_shape: tuple[nn.Module, tuple[int, ...]], clipping: Clipping
) -> None:
    model, shape = model_and_shape
    inputs, labels = records_for(shape, 7)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # fused attention falls back without a warning
        found, losses = ClippedSum(model, clipping, micro_batch=7)(inputs, labels)
    expected = loop(model, inputs, labels, clipping)
    assert torch.allclose(found.double(), expected, rtol=0, atol=1e-5 * expected.norm().item())
    assert losses.item() == pytest.approx(F.cross_entropy(model(inputs), labels, reduction="sum").item(), rel=1e-5)


def test_one_record_alone_has_the_gradient_that_it_has_among_others() -> None:
    small = {"width": 0.25, "stages": 1, "stem_stride": 1, "added": 8}
    model = build("mobilenet_groupnorm", small, (1, 8, 8), 3, seed=0).train()  # torch's group norm stops at one record
    inputs, labels = records_for((1, 8, 8), 3)
    among, losses = per_record_gradients(model)(inputs, labels)
    alone, loss = per_record_gradients(model)(inputs[:1], labels[:1])
    assert loss.item() == pytest.approx(losses[0].item(), rel=1e-5)
    for name, values in alone.items():
        torch.testing.assert_close(values[0], among[name][0], rtol=1e-4, atol=1e-6)


def test_every_trainable_parameter_is_covered(model_and_shape: tuple[nn.Module, tuple[int, ...]]) -> None:
    model, shape = model_and_shape
    inputs, labels = records_for(shape, 3)
    gradients, _ = per_record_gradients(model)(inputs, labels)
    expected = {name: (3, *value.shape) for name, value in model.named_parameters()}
    assert {name: tuple(value.shape) for name, value in gradients.items()} == expected
    summed = ClippedSum(model, automatic(1.0), 3)
    summed.assign(summed(inputs, labels)[0])
    assert all(value.grad is not None and value.grad.shape == value.shape for value in model.parameters())


def test_micro_batches_change_nothing(model_and_shape: tuple[nn.Module, tuple[int, ...]]) -> None:
    model, shape = model_and_shape
    inputs, labels = records_for(shape, 9)
    whole, _ = ClippedSum(model, automatic(1.0), 9)(inputs, labels)
    for micro_batch in (1, 2, 4):
        parts, _ = ClippedSum(model, automatic(1.0), micro_batch)(inputs, labels)
        assert torch.allclose(parts, whole, rtol=0, atol=1e-5 * whole.norm().item())


def test_memory_does_not_grow_with_the_batch(mlp: nn.Module, monkeypatch: pytest.MonkeyPatch) -> None:
    size = sum(value.numel() for value in mlp.parameters())
    monkeypatch.setitem(per_record.HELD, "cpu", 6 * 4 * size)  # bytes of six records' gradients
    held: list[int] = []

    def spy(gradients: Gradients, *rest: object) -> None:
        held.append(len(next(iter(gradients.values()))))

    monkeypatch.setattr(per_record, "add_clipped", spy)
    for count in (16, 256):
        ClippedSum(mlp, automatic(1.0), micro_batch=1000)(*records_for((5,), count))
    assert max(held) <= 6 and sum(held) == 16 + 256


def test_an_empty_batch_sums_to_zero(mlp: nn.Module) -> None:
    total, losses = ClippedSum(mlp, automatic(1.0), 4)(torch.zeros(0, 5), torch.zeros(0, dtype=torch.long))
    assert total.count_nonzero() == 0 and losses == 0 and len(total) == sum(p.numel() for p in mlp.parameters())


def test_frozen_parameters_have_no_gradient(mlp: nn.Module) -> None:
    inputs, labels = records_for((5,), 4)
    mlp.requires_grad_(False)
    mlp[-1].requires_grad_(True)
    gradients, _ = per_record_gradients(mlp)(inputs, labels)
    assert list(gradients) == ["6.weight", "6.bias"]
    found, _ = ClippedSum(mlp, flat(1.0), 4)(inputs, labels)
    assert torch.allclose(found.double(), loop(mlp, inputs, labels, flat(1.0)), atol=1e-6)


def test_the_norm_is_over_all_parameters_together() -> None:
    gradients = {"a": torch.tensor([[3.0]]), "b": torch.tensor([[0.0, 4.0]])}
    total = torch.ones(3, dtype=torch.float64)
    add_clipped(gradients, flat(1.0), total)
    assert torch.allclose(total, torch.tensor([1.6, 1.0, 1.8], dtype=torch.float64))


@pytest.mark.parametrize("value", [float("inf"), float("nan"), 1e30])
def test_a_record_whose_gradient_is_not_finite_adds_nothing(value: float) -> None:
    gradients = {"a": torch.tensor([[3.0, 4.0], [value, 0.0]])}
    total = torch.zeros(2, dtype=torch.float64)
    add_clipped(gradients, flat(1.0), total)
    assert torch.allclose(total, torch.tensor([0.6, 0.8], dtype=torch.float64))


@pytest.mark.parametrize("value", [float("inf"), float("nan")])
def test_a_record_whose_loss_is_not_finite_adds_nothing(value: float) -> None:
    gradients = {"a": torch.tensor([[3.0, 4.0], [1.0, 0.0]])}
    total = torch.zeros(2, dtype=torch.float64)
    add_clipped(gradients, flat(1.0), total, losses=torch.tensor([0.5, value]))
    assert torch.allclose(total, torch.tensor([0.6, 0.8], dtype=torch.float64))


def model_named(
    name: str, models: Mapping[str, Callable[[], tuple[nn.Module, tuple[int, ...]]]]
) -> tuple[nn.Module, tuple[int, ...]]:
    if not name.startswith("maps"):
        return models[name]()
    projection = {"projection": 10} if name == "maps-projected" else {}
    return build("locally-linear-maps", {"maps": 3, **projection}, (20,), 3, 0), (20,)


@pytest.mark.parametrize(
    ("name", "precision", "way"),
    [(name, "float32", "vmap") for name in ("vit", "beit", "mlp", "cnn", "maps", "maps-projected")]
    + [(name, "bf16", "vmap") for name in ("vit", "beit", "mlp", "cnn", "maps", "maps-projected")]
    + [pytest.param(name, "float32", "book-keeping", marks=pytest.mark.slow) for name in ("vit", "mlp", "cnn")]
    + [pytest.param("vit", "bf16", "book-keeping", marks=pytest.mark.slow)],
)
def test_one_record_moves_the_sum_by_no_more_than_the_sensitivity(
    models: Mapping[str, Callable[[], tuple[nn.Module, tuple[int, ...]]]], name: str, precision: Any, way: Any
) -> None:
    """With bf16 in the closed form of locally linear maps, it moved the sum by up to 1.7 C."""
    model, shape = model_named(name, models)
    for layer in model.modules():
        if isinstance(layer, nn.Dropout):
            layer.p = 0.0
    generator = torch.Generator().manual_seed(0)
    with computing(model.train(), precision):
        for clipping, micro_batch in itertools.product((flat(1e-3), automatic(1.0)), (4, 16)):
            clipped_sum = ClippedSum(model, clipping, micro_batch, way)  # which decides once how to compute
            for count, scale in itertools.product((1, 9) if micro_batch == 4 else (3, 33), (1.0, 100.0)):
                inputs = scale * torch.randn(count, *shape, generator=generator)
                labels = torch.randint(3, (count,), generator=generator)
                whole, _ = clipped_sum(inputs, labels)
                for gone in {0, count // 2, count - 1}:
                    kept = torch.arange(count) != gone
                    moved = (whole - clipped_sum(inputs[kept], labels[kept])[0]).norm()
                    assert moved <= clipping.sensitivity * (1 + 1e-6)


def test_dropout_is_drawn_for_every_record_apart() -> None:
    model = build("mlp", {"width": 64, "dropout": 0.5}, (5,), 3, 0).train()
    same = torch.ones(2, 5)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        gradients, _ = per_record_gradients(model)(same, torch.zeros(2, dtype=torch.long))
    assert not torch.equal(gradients["0.weight"][0], gradients["0.weight"][1])


@pytest.mark.parametrize("clipping", [automatic(1.0), flat(0.3)], ids=lambda clipping: clipping.name)
def test_book_keeping_sums_what_vmap_sums(mlp: nn.Module, clipping: Clipping) -> None:
    """Over micro-batches, with persons, with scaled norms, with records that are not finite, and of nothing."""
    inputs, labels = records_for((5,), 23)
    inputs[4] = float("inf")
    persons = torch.arange(23) // 2
    scales = torch.rand(sum(value.numel() for value in mlp.parameters()), generator=torch.Generator().manual_seed(0))
    by_vmap, by_book = (ClippedSum(mlp, clipping, 9, way) for way in ("vmap", "book-keeping"))  # type: ignore[arg-type]
    for scaled in (False, True):
        if scaled:
            by_vmap.scale_norms(scales), by_book.scale_norms(scales)
        for records, truth, *rest in ((inputs, labels), (inputs[:3], labels[:3]), (inputs, labels, persons)):
            expected, found = by_vmap(records, truth, *rest), by_book(records, truth, *rest)
            assert (found[0] - expected[0]).norm() <= 1e-6 * expected[0].norm()
            assert found[1].item() == pytest.approx(expected[1].item(), rel=1e-6)
    assert by_book(inputs[:0], labels[:0])[0].count_nonzero() == 0


class Passing(nn.Module):
    """A layer and a head, between which records pass through a function."""

    def __init__(self, through: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.through, self.layer, self.head = through, nn.Linear(3, 4), nn.Linear(4, 2)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.head(self.through(self.layer(inputs)))  # type: ignore[no-any-return]


UNPASSABLE: dict[str, Callable[[], nn.Module]] = {
    "single values": lambda: nn.Sequential(nn.Linear(3, 4), nn.GroupNorm(4, 4), nn.Linear(4, 2)),
    "checkpoints": lambda: Passing(lambda x: checkpoint(torch.relu, x, use_reentrant=False)),
    "NumPy": lambda: Passing(lambda x: x * torch.from_numpy(x.detach().numpy())),
    "logits of three dimensions": lambda: nn.Sequential(nn.Linear(3, 2), nn.Unflatten(1, (2, 1))),
}


@pytest.mark.parametrize("way", ["auto", "vmap"])
@pytest.mark.parametrize("name", UNPASSABLE)
def test_a_model_whose_pass_fails_record_by_record_is_refused_before_any_record(name: str, way: PerRecord) -> None:
    with pytest.raises(UserError, match="a pass of one record by vmap fails"):
        ClippedSum(UNPASSABLE[name](), automatic(1.0), 8, way).decide((3,))


@pytest.mark.parametrize("way", ["auto", "vmap"])
def test_parameters_of_any_shape_are_as_they_were_after_the_choice_of_lengths(way: PerRecord) -> None:
    class Tempered(nn.Linear):
        def __init__(self) -> None:
            super().__init__(5, 3)
            self.temperature = nn.Parameter(torch.tensor(2.0))

        def forward(self, inputs: Tensor) -> Tensor:
            return super().forward(inputs) * self.temperature

    model = Tempered()
    inputs, labels = records_for((5,), 7)
    found, _ = ClippedSum(model, automatic(1.0), 64, way)(inputs, labels)
    expected = loop(model, inputs, labels, automatic(1.0))
    assert torch.allclose(found, expected, rtol=0, atol=1e-5 * expected.norm().item())
    assert model.temperature.item() == 2.0
