"""Persons as the unit of DP training: sampling, sensitivity, keys, and what a record's guarantee is worth to them."""

import math
import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from dp_accounting.pld import privacy_loss_distribution
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom
from torch import Tensor, nn

from mia_audit.errors import UserError
from mia_audit.models.architecture import build, describe
from mia_audit.pools.persons import Persons
from mia_audit.privacy import per_record
from mia_audit.privacy.accounting import by_group_privacy, epsilon_of_person, noise_multiplier_for
from mia_audit.privacy.catalogue import Job, Mechanism, mechanisms
from mia_audit.privacy.noise import CLIPPINGS, Stream
from mia_audit.privacy.per_record import ClippedSum, People, per_record_gradients
from mia_audit.training.section import Training
from mia_audit.training.shadow import Recipe, train_shadow

CLIP = 0.5


def linear() -> nn.Module:
    model = nn.Linear(3, 2)
    with torch.no_grad():
        for number, parameter in enumerate(model.parameters()):
            parameter.copy_(torch.linspace(-0.3, 0.4, parameter.numel()).view_as(parameter) + 0.1 * number)
    return model


@given(
    others=st.lists(st.integers(1, 4), min_size=0, max_size=4),
    own=st.integers(1, 12),
    size=st.sampled_from([1e-6, 1.0, 1e4, 1e30, math.inf]),
    clipping=st.sampled_from(["flat", "automatic"]),
    micro_batch=st.sampled_from([2, 5, 64]),
    seed=st.integers(0, 99),
)
@settings(deadline=None, max_examples=40)
def test_a_person_moves_a_step_by_at_most_c(
    others: list[int], own: int, size: float, clipping: str, micro_batch: int, seed: int
) -> None:
    """Whatever the number and the size of their records, and whoever stands beside them."""
    random = torch.Generator().manual_seed(seed)
    persons = torch.cat([torch.zeros(own, dtype=torch.long), *(torch.full((k,), i + 1) for i, k in enumerate(others))])
    persons = persons[torch.randperm(len(persons), generator=random)]
    inputs = torch.randn(len(persons), 3, generator=random)
    inputs[persons == 0] *= size
    labels = torch.randint(0, 2, (len(persons),), generator=random)
    summed = ClippedSum(linear(), CLIPPINGS[clipping](CLIP), micro_batch)
    rest = persons != 0
    with_person, _ = summed(inputs, labels, persons)
    without, _ = summed(inputs[rest], labels[rest], persons[rest])
    assert float((with_person - without).norm()) <= summed.clipping.sensitivity * (1 + 1e-6)


@pytest.mark.parametrize("failing", [False, True])
def test_whether_a_person_has_several_records_changes_no_message(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], failing: bool
) -> None:
    """Only their records take vmap, which may warn, fail, or round by position, where book-keeping does not."""
    honest = per_record.per_record_gradients

    def loud(model: nn.Module) -> Any:
        def gradients(inputs: Tensor, labels: Tensor) -> Any:
            warnings.warn("an operation without a rule", stacklevel=1)
            if failing:
                raise RuntimeError("an operation without a rule")
            found, losses = honest(model)(inputs, labels)
            return found, losses * torch.arange(1, len(losses) + 1)

        return gradients

    monkeypatch.setattr(per_record, "per_record_gradients", loud)
    seen = set()
    for persons in ([0, 1, 2, 3], [0, 0, 1, 2]):
        summed = ClippedSum(build("mlp", {}, (3,), 2, 0), CLIPPINGS["automatic"](1.0), 4, "book-keeping")
        ended = ""
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            try:
                summed(torch.ones(4, 3), torch.arange(4) % 2, torch.tensor(persons))
            except UserError as error:
                ended = str(error)
        seen.add((ended, capsys.readouterr(), *{str(one.message) for one in warned}))
    assert len(seen) == 1


def test_what_is_clipped_is_the_mean_of_a_persons_gradients() -> None:
    random = torch.Generator().manual_seed(0)
    inputs, labels = torch.randn(7, 3, generator=random), torch.tensor([0, 1, 0, 1, 1, 0, 1])
    persons, model = torch.tensor([2, 0, 2, 1, 0, 2, 3]), linear()
    total, losses = ClippedSum(model, CLIPPINGS["flat"](CLIP), 3)(inputs, labels, persons)
    gradients, each = per_record_gradients(model)(inputs, labels)
    rows = torch.cat([value.flatten(1) for value in gradients.values()], dim=1).double()
    means = torch.stack([rows[persons == person].mean(dim=0) for person in range(4)])
    expected = (means * (CLIP / means.norm(dim=1)).clamp(max=1)[:, None]).sum(dim=0)
    assert torch.allclose(total, expected, atol=1e-6)
    assert float(losses) == pytest.approx(float(each.sum()), rel=1e-6)


@given(ids=st.lists(st.integers(0, 9), min_size=1, max_size=40), most=st.integers(1, 5), seed=st.integers(0, 9))
@settings(deadline=None, max_examples=40)
def test_sampling_takes_a_person_or_leaves_them(ids: list[int], most: int, seed: int) -> None:
    of = torch.from_numpy(Persons.numbered(np.array(ids)).of)
    people = People(of, most)
    drawn = torch.rand(len(people), generator=torch.Generator().manual_seed(seed)) < 0.5
    rows = people.records(drawn, Stream(b"key", "records"))
    taken = torch.bincount(of[rows], minlength=len(people))
    assert torch.equal(taken, torch.where(drawn, torch.bincount(of).clamp(max=most), 0))
    assert torch.equal(rows, rows.sort().values)


def test_which_records_count_is_drawn_anew_and_evenly() -> None:
    people, stream = People(torch.tensor([0, 0, 1, 0, 0, 0]), 2), Stream(b"key", "records")
    drawn = torch.tensor([True, False])
    counts = torch.bincount(torch.cat([people.records(drawn, stream) for _ in range(1500)]), minlength=6)
    assert counts[2] == 0 and int(counts.sum()) == 3000
    assert ((counts[[0, 1, 3, 4, 5]] - 600).abs() < 100).all()


def trained(persons: np.ndarray | None, unit: str = "person", architecture: str = "mlp", **section: Any) -> Any:
    """Train a model of 20 of 40 records under dp-sgd with one key."""
    random = np.random.default_rng(0)
    inputs = torch.from_numpy(random.standard_normal((40, 5)).astype(np.float32))
    labels = torch.from_numpy((inputs[:, 0] > 0).long().numpy())
    parameters: dict[str, Any] = {"mlp": {"width": 4}, "locally-linear-maps": {"maps": 2}}[architecture]
    mechanism = Mechanism(mechanism="dp-sgd", unit=unit, accountant="rdp", **section)  # type: ignore[call-arg]
    metadata = describe("a", architecture, parameters, (5,), 2)
    recipe = Recipe(metadata, None, mechanism, Training(epochs=2, batch=5), 8.0, 8, ("key",))
    members = np.arange(40) % 2 == 0
    return train_shadow(recipe, 0, inputs, labels, members, persons=persons)


def weights(shadow: Any) -> Tensor:
    return torch.cat([value.flatten() for value in shadow.model.state_dict().values()])


@pytest.mark.parametrize("architecture", ["mlp", "locally-linear-maps"])
def test_with_one_record_a_person_training_is_that_of_records(architecture: str) -> None:
    by_person = trained(np.arange(40), architecture=architecture)
    by_record = trained(None, "record", architecture)
    assert torch.equal(weights(by_person), weights(by_record))
    assert by_person.epochs == by_record.epochs and by_person.epsilon == by_record.epsilon
    assert by_person.terms == replace(by_record.terms, unit="person", records_per_person=8)


def test_persons_with_several_records_have_noise_of_their_own() -> None:
    """Two releases of one training set with the same noise would give the noise away by their difference."""
    persons = np.arange(40) // 4
    runs = [
        trained(persons),
        trained(None, "record"),
        trained(persons, records_per_person=1),
        trained(np.arange(40) // 8),
    ]
    assert len({run.terms.noise_multiplier for run in runs}) > 1
    assert len({tuple(weights(run).tolist()) for run in runs}) == len(runs)
    assert (runs[0].persons, runs[0].records, runs[1].persons) == (10, 20, None)
    assert runs[0].terms.sampling_rate == 5 / 10 and runs[1].terms.sampling_rate == 5 / 20


def test_a_batch_of_more_persons_than_there_are_is_refused() -> None:
    with pytest.raises(UserError, match="5 persons per step, but the training set has only 4"):
        trained(np.arange(40) // 10)


def test_a_mechanism_of_persons_without_persons_is_refused() -> None:
    job = Job(
        model=build("mlp", {"width": 4}, (5,), 2, 0),
        records=20,
        epsilon=8.0,
        training=Training(batch=5, epochs=1),
        micro_batch=8,
        key=b"key",
    )
    with pytest.raises(UserError, match="needs the person of every record"):
        mechanisms["dp-sgd"].protect(Mechanism(mechanism="dp-sgd", unit="person"), job)  # type: ignore[call-arg]


def test_fadp_protects_persons_too() -> None:
    model = build("cnn", {"img_size": 8, "first": 2, "second": 2, "hidden": 2}, (1, 8, 8), 2, 0)
    persons = torch.arange(20) // 4
    job = Job(
        model=model,
        records=20,
        epsilon=8.0,
        training=Training(batch=2, epochs=1),
        micro_batch=8,
        key=b"key",
        persons=persons,
    )
    section = Mechanism(mechanism="fadp", importance="past", unit="person", records_per_person=2)  # type: ignore[call-arg]
    protection = mechanisms["fadp"].protect(section, job)
    assert protection.terms.unit == "person" and protection.terms.sampling_rate == 2 / 5
    for batch in protection.batches():
        protection.backward(torch.zeros(len(batch), 1, 8, 8), torch.zeros(len(batch), dtype=torch.long), persons[batch])


def test_a_records_epsilon_is_worth_little_to_a_person() -> None:
    """The figures of METHODS section 12: ε = 8 for a record, q = .1, 100 steps, δ = 1e-5."""
    multiplier = noise_multiplier_for(8, 0.1, 100, 1e-5, "pld")
    found = [epsilon_of_person(multiplier, 0.1, 100, 1e-5, records) for records in (1, 2, 5)]
    assert found[0] == pytest.approx(8, rel=5e-3)
    assert found[1] == pytest.approx(18.5, abs=0.1)
    assert found[2] == pytest.approx(61.2, abs=0.3)
    assert epsilon_of_person(0.05, 1.0, 1, 1e-5, 5) == math.inf  # nothing is left
    assert epsilon_of_person(0.0, 0.1, 100, 1e-5, 2) == math.inf and epsilon_of_person(1.0, 0.1, 0, 1e-5, 2) == 0


@pytest.mark.parametrize(("multiplier", "rate", "steps", "records"), [(3.0, 0.1, 20, 3), (0.8, 0.3, 4, 2)])
def test_several_records_of_a_person_are_composed_as_dp_accounting_composes_them(
    multiplier: float, rate: float, steps: int, records: int
) -> None:
    counts = np.arange(records + 1)
    one = privacy_loss_distribution.from_mixture_gaussian_mechanism(
        multiplier, counts.tolist(), binom.pmf(counts, records, rate).tolist(), value_discretization_interval=5e-3
    )
    theirs = one.self_compose(steps).get_epsilon_for_delta(1e-5)
    assert epsilon_of_person(multiplier, rate, steps, 1e-5, records) == pytest.approx(theirs, rel=2e-3)


def test_group_privacy_of_any_mechanism() -> None:
    assert by_group_privacy(1.0, 1e-5, 1) == (1.0, pytest.approx(1e-5))
    epsilon, delta = by_group_privacy(1.0, 1e-5, 3)
    assert epsilon == 3 and delta == pytest.approx(1e-5 * (1 + math.e + math.e**2))
    assert by_group_privacy(8.0, 1e-5, 5) == (math.inf, 1.0)
    assert by_group_privacy(8.0, 1e-5, 500) == (math.inf, 1.0)


def test_the_records_of_a_person_take_no_more_memory_than_others_by_vmap(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only they take vmap, which holds gradients; its passes were as long as those of book-keeping, which holds none."""
    monkeypatch.setattr(per_record, "HELD", {"cpu": 2**18})
    clipped = ClippedSum(build("mlp", {"width": 32}, (8,), 3, 0).train(), CLIPPINGS["flat"](1.0), 64, "book-keeping")
    by_vmap, sizes = clipped._gradients, []

    def counted(inputs: Tensor, labels: Tensor) -> Any:
        sizes.append(len(inputs))
        return by_vmap(inputs, labels)

    clipped._gradients = counted
    clipped.decide((8,), by_person=True)
    before, found = max(sizes), torch.randn(40, 8)
    clipped(found, torch.zeros(40, dtype=torch.long), torch.arange(40) // 2)
    assert max(sizes) == before <= 2**18 // (4 * clipped.size) < clipped.at_once.size == 64
