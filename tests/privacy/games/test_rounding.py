"""Neighbouring batches of records that cancel in the first layer, so that gradients consist of rounding errors."""

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from mia_audit.models.architecture import build
from mia_audit.privacy.catalogue import PerRecord
from mia_audit.privacy.noise import automatic
from mia_audit.privacy.per_record import ClippedSum, Lengths

FEATURES, WIDTH = 300, 16
COUNTS = (9, 13, 17, 24, 32, 33, 47, 64, 65)
"""Lengths of the longer batch of two neighbours."""


def cancelling(
    count: int, width: int = WIDTH, features: int = FEATURES, seed: int = 0
) -> tuple[torch.nn.Module, Tensor, Tensor]:
    """Return a model, and records of large features that its first layer maps to 0 but for rounding."""
    model = build("mlp", {"width": width}, (features,), 3, seed).train()
    first = next(module for module in model.modules() if isinstance(module, torch.nn.Linear))
    null = torch.linalg.svd(first.weight.detach().double())[2][width:]
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randn(count, len(null), generator=generator, dtype=torch.float64)
    return model, (1e9 * drawn @ null).float(), torch.randint(3, (count,), generator=generator)


def moved(way: PerRecord, by_person: bool) -> float:
    """Return how far one record, or one person, moves the clipped sum at most, as a share of its sensitivity."""
    model, inputs, labels = cancelling(66)
    persons = torch.arange(len(labels)) // 2 if by_person else None
    clipped = ClippedSum(model, automatic(1.0), 64, way)

    def summed(rows: Tensor) -> Tensor:
        total: Tensor = clipped(inputs[rows], labels[rows], None if persons is None else persons[rows])[0]
        return total

    def neighbours() -> Iterator[float]:
        for count in COUNTS:
            rows, more = torch.arange(1, count), torch.arange(count)
            yield float((summed(more) - summed(rows)).norm())
            yield float((summed(more.roll(-1)) - summed(rows)).norm())

    if by_person:  # the first person has one record more, or is gone
        return max(float((summed(torch.arange(2, n)) - summed(torch.arange(n))).norm()) for n in (12, 24, 34, 66))
    return max(neighbours())


@pytest.mark.parametrize("way", ["vmap", "book-keeping"])
@pytest.mark.parametrize("by_person", [False, True], ids=["record", "person"])
def test_no_record_changes_how_the_others_are_rounded(way: PerRecord, by_person: bool) -> None:
    assert moved(way, by_person) <= 1 + 1e-6


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("way", ["vmap", "book-keeping"])
def test_no_record_changes_how_the_others_are_rounded_in_narrow_layers(way: PerRecord, seed: int) -> None:
    """With layers of two numbers, and two of them per record to tell lengths apart, a record moved the sum by up to 7.3 C."""
    model, inputs, labels = cancelling(34, width=2, features=40, seed=seed)
    clipped = ClippedSum(model, automatic(1.0), 8, way)
    for count in (3, 4, 5, 8, 33):
        fewer = clipped(inputs[1 : 1 + count], labels[1 : 1 + count])[0]
        for first in (inputs[:1], torch.full_like(inputs[:1], torch.nan)):
            rows = torch.cat([first, inputs[1 : 1 + count]])
            assert float((clipped(rows, labels[: 1 + count])[0] - fewer).norm()) <= 1 + 1e-6


@pytest.mark.parametrize("way", ["vmap", "book-keeping"])
def test_passes_as_long_as_the_batch_are_refuted(way: PerRecord, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Lengths, "cut", lambda self, count, size: [(torch.arange(count), count)])
    model, inputs, _ = cancelling(66)
    if all(torch.equal(model(inputs[:count]), model(inputs)[:count]) for count in COUNTS):
        pytest.skip("this processor's kernels round products of any number of rows alike")
    assert moved(way, by_person=False) > 2


def test_lengths_that_round_by_position_are_not_used() -> None:
    def seen(records: Tensor) -> Tensor:
        """Round as a kernel might that handles 64 rows, and the rest of more, in another way."""
        last = torch.arange(len(records)) >= 64
        return torch.where(last, records[:, 0].bfloat16().float(), records[:, 0])

    lengths = Lengths(seen, (1,), torch.zeros(0))
    cuts = [(rows.tolist(), new) for rows, new in lengths.cut(70, 96)]
    assert cuts == [(list(range(64)), 64), ([*range(64, 70), *range(2)], 6)]
    alone = Lengths(lambda records: records[:, 0] + torch.arange(len(records)), (1,), torch.zeros(0))
    assert [(rows.tolist(), new) for rows, new in alone.cut(2, 96)] == [([0], 1), ([1], 1)]
    assert list(lengths.cut(0, 96)) == []


@pytest.mark.parametrize("odd", ["shorter passes", "the last places"])
def test_lengths_are_not_taken_by_chance(odd: str) -> None:
    """One number in twenty shows that a kernel rounds in another way."""

    def seen(records: Tensor) -> Tensor:
        shows = (records[:, 0].double() * 1e4).frac().abs() < 0.05
        there = torch.arange(len(records)) >= 4 if odd == "the last places" else torch.tensor(len(records) < 8)
        return torch.where(shows & there, records[:, 0] + 1, records[:, 0])

    lengths = Lengths(seen, (1,), torch.zeros(0), narrowest=2)
    assert {len(rows) for count in range(1, 9) for rows, _ in lengths.cut(count, 8)} == {
        8 if odd == "shorter passes" else 4
    }


@pytest.mark.parametrize("activation", [torch.nn.SiLU, torch.nn.Sigmoid, torch.nn.ELU])
def test_the_last_numbers_of_a_pass_are_not_rounded_otherwise(activation: type[torch.nn.Module]) -> None:
    """Kernels compute up to 31 last numbers with other functions, of which one in twenty differs: 18 of 72 models had such a pass."""
    torch.manual_seed(0)
    size, model = 36, torch.nn.Sequential(torch.nn.Linear(20, 7), activation(), torch.nn.Linear(7, 3))
    clipped = ClippedSum(model, automatic(1.0), size, "vmap")
    clipped.decide((20,))
    assert clipped._lengths.longest(size) == 32
    records = torch.randn(512, 20, generator=torch.Generator().manual_seed(5))
    labels = torch.zeros(len(records), dtype=torch.long)

    def gradients(length: int) -> Tensor:
        parts = torch.split(torch.arange(len(records) // length * length), length)
        rows = [
            torch.cat([one.flatten(1) for one in clipped._gradients(records[p], labels[p])[0].values()], 1)
            for p in parts
        ]
        return torch.cat(rows)

    lengths = {len(rows) for count in range(1, size + 1) for rows, _ in clipped._lengths.cut(count, size)}
    alone = gradients(max(lengths))
    for length in lengths:
        found = gradients(length)
        both = min(len(found), len(alone))
        assert torch.equal(found[:both], alone[:both]), length
        turned = records.roll(length // 2, 0)
        records, found = turned, found.roll(length // 2, 0)
        again = gradients(length)
        assert torch.equal(again[length : both - length], found[length : both - length]), length
        records = turned.roll(-(length // 2), 0)


@pytest.mark.parametrize("way", ["vmap", "auto"])
def test_a_parameter_without_numbers_is_summed_with_the_others(way: PerRecord) -> None:
    model = build("mlp", {"width": 8}, (4,), 3, 0).train()
    model.unused = torch.nn.Parameter(torch.empty(3, 0))
    clipped = ClippedSum(model, automatic(1.0), 8, way)
    assert 0 < float(clipped(torch.randn(9, 4), torch.zeros(9, dtype=torch.long))[0].norm()) <= 9


class Scaled(torch.nn.Module):
    """A model that scales large inputs itself, and multiplies each record by one number computed from it."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.body = torch.nn.Linear(24, 1), torch.nn.Linear(24, 4)
        self.norm, self.head = torch.nn.LayerNorm(4), torch.nn.Linear(4, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        scores: Tensor = self.head(self.norm(self.body(inputs * self.gate(inputs * 1e-9).exp())))
        return scores


@pytest.mark.parametrize(("size", "taken"), [(20, 1), (64, 64)])
def test_ends_that_only_large_records_show_are_not_met(size: int, taken: int) -> None:
    """Random records of one scale did not show how the gate's last numbers were rounded, and a record moved the sum by 4 C."""
    torch.manual_seed(3)
    model = Scaled()
    null = torch.linalg.svd(model.body.weight.detach().double())[2][4:]
    inputs = (1e9 * torch.randn(200, len(null), generator=torch.Generator().manual_seed(3)).double() @ null).float()
    labels = torch.arange(200) % 3
    clipped = ClippedSum(model, automatic(1.0), size, "vmap")
    assert float((clipped(inputs, labels)[0] - clipped(inputs[1:], labels[1:])[0]).norm()) <= 1 + 1e-6
    assert clipped._lengths.longest(size) == taken


class Spectrum(torch.nn.Module):
    """A model that divides complex numbers, as filters of spectra do."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = torch.nn.Linear(20, 40), torch.nn.Linear(21, 100)

    def forward(self, inputs: Tensor) -> Tensor:
        turned = torch.fft.rfft(self.first(inputs))
        scores: Tensor = self.last((turned / (turned.abs() + 1e-3)).real)
        return scores


def test_ends_of_complex_numbers_are_not_met() -> None:
    """A complex number is divided by other functions at the end of a tensor; of 100 classes few numbers of a record are compared."""
    torch.manual_seed(0)
    clipped = ClippedSum(Spectrum(), automatic(1.0), 36, "vmap")
    clipped.decide((20,))
    lengths = {len(rows) for count in range(1, 37) for rows, _ in clipped._lengths.cut(count, 36)}
    assert lengths <= {1, 32}
