"""Noise by feature importance, sound and literal, against its definition in float64 and against dp-sgd."""

import math
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from scipy import stats
from torch import Tensor, nn

from mia_audit.errors import UserError
from mia_audit.models.architecture import build
from mia_audit.privacy.catalogue import Job, Mechanism, mechanisms
from mia_audit.privacy.masks import banded
from mia_audit.privacy.per_record import per_record_gradients
from mia_audit.training.checkpoints import Checkpoint
from mia_audit.training.loop import fit
from mia_audit.training.section import Training
from mia_audit.training.trainable import choose_part

from ...killing import Killed
from .test_dp_sgd import flat_gradient

VIT = {"img_size": 8, "patch_size": 4, "embed_dim": 12, "depth": 2, "num_heads": 2, "global_pool": "avg"}
EMPTY = torch.zeros(0, 1, 8, 8), torch.zeros(0, dtype=torch.long)


def cnn(width: int = 6) -> nn.Module:
    """Two convolutions, of which the last writes the channels, and a head."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        layers = [nn.Conv2d(1, 4, 3, padding=1), nn.GroupNorm(2, 4), nn.ReLU(), nn.Conv2d(4, width, 3), nn.ReLU()]
        return nn.Sequential(*layers, nn.Flatten(), nn.Linear(36 * width, 3))


def records(count: int = 24, seed: int = 1) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(count, 1, 8, 8, generator=generator), torch.randint(3, (count,), generator=generator)


def protect(mechanism: str, model: nn.Module, **section: Any) -> Any:
    epsilon = section.pop("epsilon", 4.0)
    if mechanism == "fadp-literal":
        section = {key: value for key, value in section.items() if key != "importance"}
        section |= {"acknowledge_no_guarantee": True}
    keys = {"clipping": "flat", "clip_norm": 0.5} | section
    job = Job(
        model=model,
        records=24,
        epsilon=epsilon,
        training=Training(batch=8, epochs=3),
        micro_batch=16,
        key=b"test",
        public=records(seed=2),
    )
    return mechanisms[mechanism].protect(Mechanism(mechanism=mechanism, **keys), job)


@pytest.mark.parametrize("clipping", ["flat", "automatic"])
@pytest.mark.parametrize(
    ("mechanism", "importance"), [("fadp", "public"), ("fadp", "renewed"), ("fadp", "past"), ("fadp-literal", "public")]
)
def test_with_all_factors_one_it_is_dp_sgd_bit_for_bit(mechanism: str, importance: str, clipping: str) -> None:
    trained = []
    for name, section in (("dp-sgd", {}), (mechanism, {"factors": (1, 1, 1), "importance": importance})):
        model = cnn()
        protection = protect(name, model, clipping=clipping, **section)
        fit(protection.job, protection, *records())
        trained.append(torch.cat([value.flatten() for value in model.parameters()]))
    assert torch.equal(*trained)


@pytest.mark.parametrize("mechanism", ["fadp", "fadp-literal"])
@pytest.mark.parametrize("model", [cnn(48), build("vision_transformer", {**VIT, "embed_dim": 48}, (1, 8, 8), 3, 0)])
def test_the_noise_of_a_group_is_z_times_c_times_its_mask(
    mechanism: str, model: nn.Module, monkeypatch: pytest.MonkeyPatch
) -> None:
    protection = protect(mechanism, model)
    if mechanism == "fadp-literal":
        channels = protection.channels
        monkeypatch.setattr(channels, "importance", lambda *_: torch.arange(48.0))
        monkeypatch.setattr(protection, "clipped_sum", _Silent(protection.clipped_sum))
        protection.backward(*records(8))
        mask = channels.spread(protection._factors)
    else:
        mask = protection.mask
        protection.backward(*EMPTY)
    noise = flat_gradient(model) * 8
    groups = mask.unique()
    assert len(groups) == 3 if mechanism == "fadp-literal" else len(groups) >= 3
    for factor in groups:
        drawn = noise[mask == factor].numpy()
        expected = stats.norm(scale=protection.terms.noise_multiplier * 0.5 * float(factor))
        assert len(drawn) > 30 and stats.kstest(drawn, expected.cdf).pvalue > 0.001


class _Silent:
    """A clipped sum of nothing, so that noise alone is left."""

    def __init__(self, inner: Any) -> None:
        self.clipping, self.assign, self._inner = inner.clipping, inner.assign, inner

    def __call__(self, inputs: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        total, losses = self._inner(inputs, labels)
        return torch.zeros_like(total), losses


@pytest.mark.parametrize("mechanism", ["fadp", "fadp-literal"])
def test_the_multiplier_is_that_of_dp_sgd(mechanism: str) -> None:
    ours, theirs = protect(mechanism, cnn()), protect("dp-sgd", cnn())
    assert ours.terms.noise_multiplier == theirs.terms.noise_multiplier
    assert ours.terms.sampling_rate == theirs.terms.sampling_rate
    promised = theirs.spent(9) if mechanism == "fadp" else (math.inf, math.inf)
    assert ours.spent(9) == promised


@pytest.mark.parametrize("clip_norm", [0.5, 50.0])
def test_scale_clip_unscale_is_its_definition(clip_norm: float) -> None:
    model = cnn()
    protection = protect("fadp", model, clip_norm=clip_norm)
    inputs, labels = records()
    gradients, _ = per_record_gradients(model)(inputs, labels)
    scaled = torch.cat([value.flatten(1) for value in gradients.values()], dim=1).double() / protection.mask.double()
    clipped = scaled * (clip_norm / scaled.norm(dim=1, keepdim=True)).clamp(max=1)
    expected = protection.mask.double() * clipped.sum(dim=0)
    ours, _ = protection.clipped_sum(inputs, labels)
    torch.testing.assert_close(ours.double(), expected, rtol=1e-4, atol=1e-5)


def test_masks_are_those_of_the_channels_and_their_geometric_mean_over_coordinates_is_one() -> None:
    model = cnn()
    protection = protect("fadp", model)
    assert protection.mask.double().log().mean().item() == pytest.approx(0, abs=1e-6)
    rows = torch.split(protection.mask, [value.numel() for value in model.parameters()])
    named = dict(zip([name for name, _ in model.named_parameters()], rows, strict=True))
    weight, bias = named.pop("3.weight").reshape(6, 36), named.pop("3.bias")
    assert torch.equal(weight, bias[:, None].expand(6, 36))
    rest = torch.cat(list(named.values())).unique()
    assert len(rest) == 1
    assert {round(float(value / rest), 5) for value in bias} <= {0.6, 0.8, 1.0} and len(bias.unique()) > 1
    next(protection.batches())
    found = protection.masks()
    assert (found.source, found.layers) == ("public records", ("3",)) and found.rest[0] == rest
    assert torch.equal(found.channels[0], bias)


def test_a_transformers_mask_is_on_what_writes_its_last_blocks_channels() -> None:
    model = build("vision_transformer", VIT, (1, 8, 8), 3, 0)
    protection = protect("fadp", model)
    rest = protection.mask_of_rest
    rows = torch.split(protection.mask, [value.numel() for value in model.parameters()])
    masked = {
        name
        for (name, _), row in zip(model.named_parameters(), rows, strict=True)
        if not torch.allclose(row, torch.tensor(rest))
    }
    layers = ("blocks.1.attn.proj", "blocks.1.mlp.fc2")
    assert masked == {f"{layer}.{kind}" for layer in layers for kind in ("weight", "bias")}


def test_past_gradients_make_the_mask_of_the_next_epoch() -> None:
    model = cnn()
    protection = protect("fadp", model, importance="past")
    sizes = [value.numel() for value in model.parameters()]
    before = protection.mask
    assert torch.equal(before, torch.ones_like(before))
    steps = protection.batches()
    next(steps)
    released = torch.zeros(sum(sizes))
    weight = torch.split(released, sizes)[4].view(6, 36)
    weight[2], weight[4] = 3.0, -1.6  # views: this is written into `released`
    protection.released(released)
    assert torch.equal(protection.mask, before)
    for _ in steps:
        pass
    next(protection.batches())
    ratios = protection.mask_of_channels / protection.mask_of_rest
    assert ratios.tolist() == pytest.approx([1, 1, 0.6, 1, 0.8, 1])
    masks = protection.masks()
    assert masks.source == "past noisy gradients" and masks.channels.shape == (2, 6) and masks.rest.shape == (2,)
    assert masks.channels[0].unique().tolist() == [1.0]


def test_the_literal_mask_comes_of_the_private_batch() -> None:
    model = cnn()
    protection = protect("fadp-literal", model)
    seen = []
    for label in (0, 2):
        protection.backward(records(8)[0], torch.full((8,), label))
        seen.append(protection._factors.clone())
    assert not torch.equal(*seen)
    protection.backward(*EMPTY)
    assert protection._factors.unique().tolist() == [1.0]
    for batch in protection.batches():
        protection.backward(*(part[batch] for part in records()))
    assert protection.masks().source == "the private batch itself" == protection.terms.noise_mask
    assert (protection.terms.delta, protection.terms.accountant) == (0.0, "none")


CLIPS = (0.5, 0.8, 1.0, 1.5)


def test_groups_are_clipped_apart_and_their_multiplier_is_that_of_dp_sgd() -> None:
    model = cnn()
    protection = protect("fadp", model, group_clips=CLIPS, clip_norm=0.3)
    noise = protection.deviation().double()
    gradients, _ = per_record_gradients(model)(*records())
    rows = torch.cat([value.flatten(1) for value in gradients.values()], dim=1).double()
    band = dict(zip((0.6, 0.8, 1.0), range(3), strict=True))
    factors = banded(protection.channels.importance(*records(seed=2), 16), (0.6, 0.8, 1.0))
    group = protection.channels.spread(torch.tensor([band[float(factor)] for factor in factors]), 3)
    assert sorted(set(group.tolist())) == [0, 1, 2, 3]
    share, expected = 0.0, torch.zeros(rows.shape[1], dtype=torch.float64)
    for number, clip in enumerate(CLIPS):
        own = rows[:, group == number]
        clipped = own * (0.3 * clip / own.norm(dim=1, keepdim=True)).clamp(max=1)
        expected[group == number] = clipped.sum(dim=0)
        (deviation,) = set(noise[group == number].tolist())
        assert deviation / noise[group == 3][0] == pytest.approx(clip / 1.5 * (0.6, 0.8, 1.0, 1.0)[number])
        share += (0.3 * clip / deviation) ** 2
    ours, _ = protection.clipped_sum(*records())
    torch.testing.assert_close(ours, expected, rtol=1e-4, atol=1e-6)
    assert share**-0.5 == pytest.approx(protect("dp-sgd", cnn()).terms.noise_multiplier)
    assert protection.terms.clipping == "flat 0.3 × 0.5/0.8/1/1.5 by group"


@pytest.mark.parametrize("way", ["auto", "book-keeping"])
def test_groups_are_never_clipped_by_book_keeping(way: Literal["auto", "book-keeping"]) -> None:
    section = Mechanism(mechanism="fadp", clipping="flat", group_clips=CLIPS)
    sums = []
    for chosen in ("vmap", way):
        training = Training(batch=8, epochs=3, per_record=chosen)
        job = Job(
            model=cnn(), records=24, epsilon=4.0, training=training, micro_batch=16, key=b"test", public=records(seed=2)
        )
        if chosen == "book-keeping":
            with pytest.raises(UserError, match=r"book-keeping does not compute the norms of groups \(group_clips\)"):
                mechanisms["fadp"].protect(section, job)
            return
        sums.append(mechanisms["fadp"].protect(section, job).clipped_sum(*records())[0])
    assert torch.equal(*sums)


def test_clips_of_groups_are_multiples_of_a_norm() -> None:
    with pytest.raises(ValueError, match="group_clips: these are multiples of clip_norm, but clipping is automatic"):
        protect("fadp", cnn(), group_clips=CLIPS, clipping="automatic")
    with pytest.raises(ValueError, match="group_clips: times clip_norm, 1e-10, each must be at least 1e-12"):
        protect("fadp", cnn(), group_clips=(1e-3, 1, 1, 1), clipping="flat", clip_norm=1e-10)


def test_a_renewed_mask_is_that_of_the_weights_at_the_start_of_the_epoch() -> None:
    model = cnn()
    protection = protect("fadp", model, importance="renewed")
    next(protection.batches())
    first = protection.mask
    with torch.no_grad():
        model[-1].weight.copy_(model[-1].weight.flip(1))
    assert torch.equal(protection.mask, first)
    next(protection.batches())
    model_of_now = protect("fadp", model)
    assert torch.equal(protection.mask, model_of_now.mask) and not torch.equal(protection.mask, first)
    assert len(protection.masks().rest) == 2 and 0 < protection.masks().coverage < 1


def test_algorithm_2_clips_each_feature_map_of_the_batch_and_calibrates_one_step() -> None:
    model = cnn()
    literal = {"clipping": "batch", "calibration": "single-step", "clip_norm": 0.01}
    protection = protect("fadp-literal", model, **literal)
    assert protection.terms.noise_multiplier == pytest.approx(math.sqrt(2 * math.log(1.25e5)) / 4)
    assert protection.terms.clipping == "batch 0.01" and protection.spent(3) == (math.inf, math.inf)
    quiet = protect("fadp-literal", model, clipping="batch", clip_norm=0.01, epsilon=math.inf, noise_multiplier=1e-9)
    quiet.backward(*records(8))
    ours = flat_gradient(model)
    model.zero_grad()
    torch.nn.functional.cross_entropy(model(records(8)[0]), records(8)[1]).backward()
    mean = flat_gradient(model)
    written = quiet.channels.spread(torch.arange(1.0, quiet.channels.count + 1), 0.0)  # 0 is all that writes no map
    for group in range(quiet.channels.count + 1):
        part = mean[written == group]
        torch.testing.assert_close(ours[written == group], part * min(1, 0.01 / part.norm()), rtol=1e-4, atol=1e-8)
    assert mean.norm() > 0.02 and float(ours.norm()) > 0.01
    protection.backward(*EMPTY)  # noise alone, on the mean: not divided by the batch
    assert float(flat_gradient(model).std()) == pytest.approx(protection.terms.noise_multiplier * 0.01, rel=0.1)


def test_all_but_the_most_important_channels_may_have_the_noise_of_a_smaller_epsilon() -> None:
    protection = protect("fadp-literal", cnn(), calibration="single-step", base_epsilon=0.1, factors=(0.6, 0.8, 1))
    protection.backward(*records(8))
    assert {round(factor, 9) for factor in protection._factors.tolist()} <= {0.6, 32.0, 40.0}
    assert protection._rest == pytest.approx(40)
    with pytest.raises(
        ValueError, match="base_epsilon: sets the noise of a nominal ε, but noise_multiplier states the noise"
    ):
        protect("fadp-literal", cnn(), base_epsilon=0.1, noise_multiplier=1.0)


@pytest.mark.parametrize("mechanism", ["dp-sgd", "fadp"])
def test_no_mechanism_with_a_guarantee_clips_a_batch(mechanism: str) -> None:
    with pytest.raises(ValueError, match="clipping"):
        Mechanism(mechanism=mechanism, clipping="batch")


@pytest.mark.parametrize(
    ("mechanism", "model", "mend"),
    [
        ("fadp", build("mlp", {"width": 8}, (64,), 3, 0), "choose a CNN such as 'mobilenet_groupnorm'"),
        ("fadp-literal", build("mlp", {"width": 8}, (64,), 3, 0), "channels of a model's last convolution"),
    ],
)
def test_a_model_without_channels_is_refused(mechanism: str, model: nn.Module, mend: str) -> None:
    with pytest.raises(UserError, match=mend):
        protect(mechanism, model)


def test_frozen_channels_are_refused() -> None:
    model = cnn()
    choose_part(model, Training(trainable="head"))
    with pytest.raises(UserError, match=r"scales the noise of 3, but training\.trainable freezes"):
        protect("fadp", model)


def test_public_importance_needs_public_records_and_literal_an_acknowledgement() -> None:
    job = Job(model=cnn(), records=24, epsilon=4.0, training=Training(batch=8, epochs=3), micro_batch=16, key=b"test")
    with pytest.raises(UserError, match=r"datasets\.\*\.public to a number of records, or choose importance: past"):
        mechanisms["fadp"].protect(Mechanism(mechanism="fadp"), job)
    with pytest.raises(UserError, match=r"guarantees nothing .* acknowledge_no_guarantee: true"):
        mechanisms["fadp-literal"].protect(Mechanism(mechanism="fadp-literal"), job)


@pytest.mark.parametrize(
    ("mechanism", "importance"),
    [("fadp", "public"), ("fadp", "past"), ("fadp", "renewed"), ("fadp-literal", "public")],
)
def test_a_killed_training_goes_on_with_its_masks(mechanism: str, importance: str, tmp_path: Path) -> None:
    def trained(checkpoint: Checkpoint | None, last: int) -> tuple[Tensor, Any]:
        model = cnn()
        protection = protect(mechanism, model, importance=importance)

        def progress(seen: int, epoch: int) -> None:
            if epoch > last:
                raise Killed

        fit(protection.job, protection, *records(), progress, checkpoint)
        return torch.cat([value.flatten() for value in model.parameters()]), protection.masks()

    weights, masks = trained(None, 3)
    with pytest.raises(Killed):
        trained(Checkpoint(tmp_path, "same"), 2)
    again, same = trained(Checkpoint(tmp_path, "same"), 3)
    assert torch.equal(again, weights) and torch.equal(same.channels, masks.channels)
    assert torch.equal(same.rest, masks.rest) and len(masks.rest) == 3


@pytest.mark.parametrize("epochs", [0, 2])
@pytest.mark.parametrize("groups", [{}, {"group_clips": (1, 1, 1, 0.5)}])
def test_a_restored_mask_is_that_of_the_first_weights(epochs: int, groups: dict[str, Any]) -> None:
    def protected(model: nn.Module) -> Any:
        return protect("fadp", model, factors=(0.2, 0.5, 1.0), **groups)

    first, model = protected(cnn()), cnn()
    torch.nn.init.normal_(model[3].weight, generator=torch.Generator().manual_seed(1))
    again = protected(model)
    assert not torch.equal(again.mask, first.mask)
    for _ in range(epochs):
        next(first.batches())
    again.restore(first.state())
    next(again.batches())
    assert torch.equal(again.mask, first.mask) and torch.equal(again.deviation(), first.deviation())
    found = again.masks()
    assert len(found.rest) == epochs + 1 and len(found.channels.unique(dim=0)) == len(found.rest.unique()) == 1
    inputs = records()
    model.load_state_dict(first.job.model.state_dict())
    assert torch.equal(again.clipped_sum(*inputs)[0], first.clipped_sum(*inputs)[0])
