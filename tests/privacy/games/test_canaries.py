"""The mechanism keeps its promise under a white-box audit that catches every mechanism that does not."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from mia_audit.privacy import per_record
from mia_audit.privacy.catalogue import Job, Mechanism, Protection, mechanisms
from mia_audit.privacy.noise import Clipping, automatic
from mia_audit.privacy.per_record import ClippedSum, Gradients

from .canaries import CANARIES, Game, audit, channel_scene, person

CLAIMED = 4.0


@pytest.fixture(autouse=True)
def equal_gradients_are_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the gradients of every batch at every value of the weights: thousands of trials repeat a few of them exactly."""
    compute = per_record.per_record_gradients
    known: dict[bytes, tuple[Gradients, Tensor]] = {}

    def remembering(model: nn.Module) -> Callable[[Tensor, Tensor], tuple[Gradients, Tensor]]:
        gradients = compute(model)

        def call(inputs: Tensor, labels: Tensor) -> tuple[Gradients, Tensor]:
            tensors = (*(value.detach() for value in model.parameters()), inputs, labels)
            key = b"|".join(value.numpy().tobytes() for value in tensors)
            if key not in known:
                known[key] = gradients(inputs, labels)
            return known[key]

        return call

    monkeypatch.setattr(per_record, "per_record_gradients", remembering)


def honest(job: Job, **section: Any) -> Any:
    return mechanisms["dp-sgd"](Mechanism(mechanism="dp-sgd", **section), job)


@pytest.mark.parametrize(
    ("section", "steps"),
    [
        pytest.param({}, 1, id="automatic"),
        pytest.param({}, 8, id="many-steps", marks=pytest.mark.slow),
        pytest.param({"clipping": "flat", "clip_norm": 0.3}, 1, id="flat", marks=pytest.mark.slow),
    ],
)
def test_the_bound_is_below_the_accountants_epsilon_and_near_it(section: dict[str, Any], steps: int) -> None:
    proof = audit(
        lambda job: honest(job, **section),
        Game(CLAIMED, steps=steps, trials=1800 if steps == 1 else 700, pilot=100, alpha=0.05),
        CANARIES["weight"],
    )
    assert 0.75 * CLAIMED <= proof.gaussian <= CLAIMED


@pytest.mark.slow
def test_a_canary_in_the_bias_proves_no_more() -> None:
    assert 0.5 * CLAIMED <= audit(honest, Game(CLAIMED, trials=1200), CANARIES["bias"]).gaussian <= CLAIMED


@pytest.mark.slow
def test_the_bound_holds_under_poisson_sampling() -> None:
    proof = audit(honest, Game(CLAIMED, share=0.5, steps=2, trials=800, pilot=200), CANARIES["weight"])
    assert 0.1 <= proof.any_mechanism <= CLAIMED


def no_noise(job: Job) -> Protection:
    protection = honest(job)
    protection.terms = replace(protection.terms, noise_multiplier=0.0)
    return protection  # type: ignore[no-any-return]


def noise_on_the_mean(job: Job) -> Protection:
    """Noise scaled for the mean of the batch, added to its sum."""
    protection = honest(job)
    protection.terms = replace(
        protection.terms, noise_multiplier=protection.terms.noise_multiplier / job.training.batch
    )
    return protection  # type: ignore[no-any-return]


def per_batch_clipping(job: Job) -> Protection:
    """The batch's summed gradient is clipped, not each record's."""

    class Whole(ClippedSum):
        def __call__(self, inputs: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
            keep = Clipping("none", torch.ones_like, 1.0)
            total, losses = ClippedSum(job.model, keep, 64)(inputs, labels)
            return total * self.clipping.factors(total.norm()[None]), losses

    protection = honest(job)
    protection.clipped_sum = Whole(job.model, automatic(1.0), 64)
    return protection  # type: ignore[no-any-return]


def clip_norm_doubled(job: Job) -> Protection:
    protection = honest(job, clipping="flat", clip_norm=2.0)
    protection.clipped_sum.clipping = replace(protection.clipped_sum.clipping, sensitivity=1.0)
    return protection  # type: ignore[no-any-return]


def calibrated_for_five_times_the_records(job: Job) -> Protection:
    protection = honest(replace(job, records=5 * job.records))
    protection.job, protection.rate, protection.steps_per_epoch = job, 1.0, 1
    return protection  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    "sabotage",
    [
        pytest.param(no_noise, marks=pytest.mark.slow),
        pytest.param(noise_on_the_mean, marks=pytest.mark.slow),
        pytest.param(per_batch_clipping, marks=pytest.mark.slow),
        clip_norm_doubled,
    ],
    ids=lambda sabotage: sabotage.__name__,
)
def test_sabotage_is_caught(sabotage: Callable[[Job], Protection]) -> None:
    assert audit(sabotage, Game(CLAIMED, trials=1000, pilot=200), CANARIES["weight"]).gaussian > CLAIMED


@pytest.mark.slow
def test_noise_calibrated_for_five_times_the_records_is_caught() -> None:
    game = Game(CLAIMED, steps=4, trials=300, pilot=60)
    assert audit(calibrated_for_five_times_the_records, game, CANARIES["weight"]).gaussian > CLAIMED


def without(left_out: str) -> Callable[..., None]:
    """A clipped sum whose norms forget a parameter."""

    def partial_norm(gradients: Gradients, clipping: Clipping, total: Tensor, *_: object) -> None:
        kept = [value.flatten(1) for name, value in gradients.items() if name != left_out]
        factors = clipping.factors(torch.cat(kept, dim=1).norm(dim=1))
        total += torch.cat([factors @ value.flatten(1) for value in gradients.values()])

    return partial_norm


@pytest.mark.parametrize("left_out", ["weight", pytest.param("bias", marks=pytest.mark.slow)])
def test_a_parameter_left_out_of_the_norm_is_caught(left_out: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(per_record, "add_clipped", without(left_out))
    proofs = [audit(honest, Game(CLAIMED, trials=500, pilot=100), canary).gaussian for canary in CANARIES.values()]
    assert max(proofs) > CLAIMED


def by_importance(mechanism: str, **section: Any) -> Callable[[Job], Protection]:
    return lambda job: mechanisms[mechanism](Mechanism(mechanism=mechanism, **section), job)


def first_channel(gradient: Tensor) -> Tensor:
    """Where the canary's gradient lies: nine weights of one mask, so that its direction is soon found."""
    return gradient[:9]


@pytest.mark.slow
def test_noise_by_public_importance_keeps_its_promise() -> None:
    game = Game(8.0, trials=500, pilot=120, alpha=0.05, view=first_channel)
    assert 0.6 * 8 <= audit(by_importance("fadp"), game, channel_scene(depth=1)).gaussian <= 8


def test_public_masks_tell_nothing_by_their_noise() -> None:
    assert (
        audit(by_importance("fadp"), Game(3.0, trials=150, pilot=25, view=torch.square), channel_scene()).any_mechanism
        <= 3
    )


@pytest.mark.slow
def test_noise_by_past_gradients_keeps_its_promise() -> None:
    game = Game(8.0, steps=2, trials=200, pilot=50, afresh=True, view=first_channel)
    assert 2 <= audit(by_importance("fadp", importance="past"), game, channel_scene(depth=1)).gaussian <= 8


GROUPS: dict[str, Any] = {"clipping": "flat", "group_clips": (0.5, 0.5, 0.5, 1.0)}


def in_units_of_the_noise(gradient: Tensor) -> Tensor:
    """The convolution's weights over the factors of their channels' noise: what the canary moves in all groups then adds up."""
    return gradient[:27] / torch.tensor([1.0, 0.6, 0.6]).repeat_interleave(9)


def without_the_normaliser(job: Job) -> Protection:
    """Groups clipped apart, each with the noise of a whole gradient's clip."""
    protection: Any = by_importance("fadp", **GROUPS)(job)
    protection.mask = protection.mask / protection.mask[-1]
    return protection  # type: ignore[no-any-return]


@pytest.mark.slow
def test_groups_clipped_apart_keep_their_promise() -> None:
    game = Game(8.0, trials=300, pilot=120, alpha=0.05, view=in_units_of_the_noise)
    assert 0.4 * 8 <= audit(by_importance("fadp", **GROUPS), game, channel_scene(depth=1)).gaussian <= 8


@pytest.mark.slow
def test_groups_without_the_noise_of_their_number_break_it() -> None:
    game = Game(8.0, trials=300, pilot=120, alpha=0.05, view=in_units_of_the_noise)
    assert audit(without_the_normaliser, game, channel_scene(depth=1)).gaussian > 8


def test_masks_from_the_private_batch_are_caught_at_the_epsilon_that_their_paper_claims() -> None:
    """One record moves 1,152 weights from the most important band to the least: the noise itself says whether it was there."""
    game = Game(3.0, trials=250, pilot=25, view=torch.square, delta=1e-5)
    literal = by_importance("fadp-literal", acknowledge_no_guarantee=True)
    assert audit(literal, game, channel_scene()).any_mechanism > 3


def of_persons(job: Job) -> Protection:
    return honest(job, unit="person", records_per_person=5)  # type: ignore[no-any-return]


def test_a_person_with_five_records_breaks_the_guarantee_of_a_record() -> None:
    """The ε of a record, sold as that of a person."""
    assert audit(honest, Game(CLAIMED, trials=800, pilot=100), person(5)).gaussian > 1.5 * CLAIMED


@pytest.mark.slow
def test_a_person_with_five_records_proves_no_more_than_the_guarantee_of_persons() -> None:
    proof = audit(of_persons, Game(CLAIMED, trials=2600, pilot=200, alpha=0.05, by_person=True), person(5))
    assert 0.75 * CLAIMED <= proof.gaussian <= CLAIMED
