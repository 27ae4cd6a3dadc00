"""Every mechanism, way of computing gradients and unit, exactly: sound ones hold and nearly reach their μ, broken ones do not."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from mia_audit.privacy import noise
from mia_audit.privacy.catalogue import Job, Mechanism, PerRecord, Protection, mechanisms
from mia_audit.privacy.noise import Clipping, automatic
from mia_audit.privacy.per_record import ClippedSum

from .canaries import CANARIES, Scene, channel_scene, person
from .white_box import DELTA, Measured, measure

EPSILON = 4.0
WAYS = ("vmap", "book-keeping")
PERSON = {"unit": "person", "records_per_person": 5}
FLAT = {"clipping": "flat", "clip_norm": 0.3}


def built(job: Job, mechanism: str = "dp-sgd", **section: Any) -> Any:
    return mechanisms[mechanism](Mechanism(mechanism=mechanism, delta=DELTA, **section), job)


def scene_of(mechanism: str, by_person: bool) -> Scene:
    if mechanism == "dp-sgd":
        return person() if by_person else CANARIES["weight"]
    scene = channel_scene(depth=1)
    if by_person:  # the canary has two records
        first = [torch.cat([value[:1], value]) for value in (scene.inputs, scene.labels)]
        owners = torch.cat([torch.zeros(2, dtype=torch.long), torch.arange(1, len(scene.labels))])
        return replace(scene, inputs=first[0], labels=first[1], persons=owners)
    return scene


SOUND: dict[str, tuple[str, dict[str, Any], int]] = {
    "dp-sgd": ("dp-sgd", {}, 1),
    "dp-sgd, three steps": ("dp-sgd", {}, 3),
    "dp-sgd, flat": ("dp-sgd", FLAT, 1),
    "fadp, public": ("fadp", {"importance": "public"}, 1),
    "fadp, renewed": ("fadp", {"importance": "renewed"}, 1),
    "fadp, past": ("fadp", {"importance": "past"}, 1),
}


@pytest.mark.parametrize("by_person", [False, True], ids=["record", "person"])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "name", [n if n in ("dp-sgd", "fadp, past") else pytest.param(n, marks=pytest.mark.slow) for n in SOUND]
)
def test_sound_mechanisms_hold_and_nearly_reach_their_mu(name: str, way: PerRecord, by_person: bool) -> None:
    mechanism, section, steps = SOUND[name]
    unit = PERSON if by_person else {}
    found = measure(
        lambda job: built(job, mechanism, **section, **unit),
        scene_of(mechanism, by_person),
        EPSILON,
        way,
        steps,
        by_person,
    )
    assert not found.refuted, found
    assert found.share >= 0.6, found


@pytest.mark.parametrize("by_person", [False, True], ids=["record", "person"])
def test_groups_clipped_apart_hold(by_person: bool) -> None:
    section = {"clipping": "flat", "group_clips": (0.5, 0.5, 0.5, 1.0), **(PERSON if by_person else {})}
    found = measure(
        lambda job: built(job, "fadp", **section), scene_of("fadp", by_person), EPSILON, by_person=by_person
    )
    assert not found.refuted, found
    assert found.share >= 0.3, found


def half_the_noise(job: Job, **section: Any) -> Protection:
    protection = built(job, **section)
    protection.terms = replace(protection.terms, noise_multiplier=protection.terms.noise_multiplier / 2)
    return protection  # type: ignore[no-any-return]


def clip_after_averaging(job: Job, **section: Any) -> Protection:
    class Averaged(ClippedSum):
        def __call__(self, inputs: Tensor, labels: Tensor, *persons: Tensor) -> tuple[Tensor, Tensor]:
            keep = Clipping("none", torch.ones_like, 1.0)
            total, losses = ClippedSum(job.model, keep, 64, self.way)(inputs, labels)
            mean = total / len(labels)
            return len(labels) * mean * automatic(1.0).factors(mean.norm()[None]), losses

    protection = built(job, **section)
    protection.clipped_sum = Averaged(job.model, automatic(1.0), 64, job.training.per_record or "vmap")
    return protection  # type: ignore[no-any-return]


def batch_size_from_the_data(job: Job, **section: Any) -> Protection:
    protection = built(job, **section)
    honest = protection.backward

    def backward(inputs: Tensor, labels: Tensor, *persons: Tensor) -> Tensor:
        losses = honest(inputs, labels, *persons)
        units = len(torch.unique(persons[0])) if persons else len(labels)
        for value in job.model.parameters():
            value.grad *= job.training.batch / units
        return losses  # type: ignore[no-any-return]

    protection.backward = backward
    return protection  # type: ignore[no-any-return]


def forgotten_last_batch(job: Job, **section: Any) -> Protection:
    """An epoch has a batch more than is accounted for."""
    protection = built(job, **section)
    honest = protection.batches
    protection.batches = lambda: [*honest(), *honest()]
    return protection  # type: ignore[no-any-return]


def noise_used_twice(job: Job, **section: Any) -> Protection:
    protection = built(job, **section)
    honest = protection._noise.add_noise

    def add_noise(total: Tensor, deviation: Any) -> Tensor:
        protection._noise.counter = 0
        return honest(total, deviation)  # type: ignore[no-any-return]

    protection._noise.add_noise = add_noise
    return protection  # type: ignore[no-any-return]


def keys_of_16_bits(job: Job, **section: Any) -> Protection:
    return built(replace(job, key=job.key[:2] + bytes(30)), **section)  # type: ignore[no-any-return]


def clip_norm_doubled(job: Job, **section: Any) -> Protection:
    protection = built(job, clipping="flat", clip_norm=2.0, **section)
    protection.clipped_sum.clipping = replace(protection.clipped_sum.clipping, sensitivity=1.0)
    return protection  # type: ignore[no-any-return]


BROKEN: dict[Callable[..., Protection], tuple[int, Callable[[Measured], bool]]] = {
    half_the_noise: (1, lambda found: found.share > 1.5),
    clip_norm_doubled: (1, lambda found: found.share > 1.5),
    clip_after_averaging: (1, lambda found: found.share > 1.2),
    batch_size_from_the_data: (1, lambda found: not found.constant),
    forgotten_last_batch: (1, lambda found: found.share > 1.2),
    noise_used_twice: (3, lambda found: not found.fresh),
    keys_of_16_bits: (1, lambda found: not found.keyed),
}


@pytest.mark.parametrize("by_person", [False, True], ids=["record", "person"])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("sabotage", BROKEN, ids=lambda sabotage: sabotage.__name__)
def test_sabotages_are_refuted(sabotage: Callable[..., Protection], way: PerRecord, by_person: bool) -> None:
    steps, shows = BROKEN[sabotage]
    section = PERSON if by_person else {}
    found = measure(lambda job: sabotage(job, **section), scene_of("dp-sgd", by_person), EPSILON, way, steps, by_person)
    assert found.refuted and shows(found), found


def test_masks_from_the_private_batch_are_refuted() -> None:
    literal = lambda job: built(job, "fadp-literal", acknowledge_no_guarantee=True)  # noqa: E731
    assert measure(literal, channel_scene(depth=8), 3.0).refuted


def test_noise_of_the_stream_reads_every_bit_of_its_key() -> None:
    """A generator of torch reads 32 bits of its seed."""

    class LowBits(noise.Stream):
        def add_noise(self, total: Tensor, deviation: float | Tensor) -> Tensor:
            generator = torch.Generator().manual_seed(int.from_bytes(self._key[:4], "little"))
            return (total + deviation * torch.randn(len(total), generator=generator, dtype=torch.float64)).float()

    def low(job: Job) -> Protection:
        protection = built(job)
        protection._noise = LowBits(job.key, "noise", job.summands)
        protection._noise._key = job.key
        return protection  # type: ignore[no-any-return]

    found = measure(low, CANARIES["weight"], EPSILON)
    assert not found.keyed
