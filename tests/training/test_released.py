"""Models that are released: nobody's seed, nothing kept that was computed without noise, and fresh noise after a kill."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from scipy import stats

from mia_audit.config.schema import Mechanism, Training
from mia_audit.models.architecture import describe
from mia_audit.models.inputs import Inputs
from mia_audit.privacy.noise import RELEASED, Stream, fresh_key
from mia_audit.training import shadow
from mia_audit.training.shadow import COUNTERS, KeptEpochs, Recipe, train_released

from ..killing import Killed

RECORDS = np.random.default_rng(0).standard_normal((60, 5)).astype(np.float32)
LABELS = torch.arange(60) % 3
EVERYBODY = np.ones(60, dtype=bool)
EPOCHS, BATCH = 3, 20


def recipe(mechanism="dp-sgd", epsilon=8.0, **options):
    metadata = describe("mlp", "mlp", {"width": 400}, (5,), 3)
    section = Mechanism(mechanism=mechanism, **({"unit": "record"} if mechanism != "none" else {}), **options)
    return Recipe(metadata, None, section, Training(epochs=EPOCHS, batch=BATCH), epsilon, 64, ())


def train(checkpoint=None, **changes):
    made = recipe(**changes)
    inputs = Inputs(RECORDS, {"kind": "table", "shape": [5], "classes": ["a", "b", "c"]}, [5], "cpu")
    return train_released(made, inputs, LABELS, EVERYBODY, checkpoint)


@pytest.fixture
def noise(monkeypatch):
    """The noise of every step, in units of its deviation; what keys are drawn from is the same in every run of a test."""
    seen = []
    entropy = np.random.default_rng(0)
    monkeypatch.setattr(shadow, "fresh_key", lambda: entropy.bytes(32))
    add = Stream.add_noise

    def recorded(self, total, deviation):
        noisy = add(self, total, deviation)
        seen.append(((noisy.double() - total) / deviation).numpy())
        return noisy

    monkeypatch.setattr(Stream, "add_noise", recorded)
    return seen


def test_two_releases_share_no_noise(noise):
    train()
    train()
    steps = np.stack(noise)
    assert len(steps) == 2 * EPOCHS * 60 // BATCH
    assert np.abs(np.corrcoef(steps) - np.eye(len(steps))).max() < 4 / np.sqrt(steps.shape[1])
    assert stats.kstest(steps.ravel(), "norm").pvalue > 1e-4


def test_noise_of_a_release_is_the_sum_of_four(monkeypatch):
    key = fresh_key()
    assert len(key) == 32 and key != fresh_key()
    stream = Stream(key, "noise", RELEASED)
    drawn = stream.add_noise(torch.zeros(200_000), 2.0) / 2
    assert stats.kstest(drawn.numpy(), "norm").pvalue > 1e-4
    assert not torch.equal(drawn, Stream(key, "noise").add_noise(torch.zeros(200_000), 2.0) / 2)
    assert float(drawn.abs().max()) < 2 * 8.7  # none is beyond four Box-Muller radii


STEPS = range(1, EPOCHS * 60 // BATCH + 1)


@pytest.mark.parametrize(
    "step", [step if step in (1, 5, 9) else pytest.param(step, marks=pytest.mark.slow) for step in STEPS]
)
def test_a_kill_loses_the_epoch_that_it_cut_short(tmp_path, kill_at, noise, step):
    taken = kill_at(step)
    with pytest.raises(Killed):
        train(KeptEpochs(tmp_path, "key", tmp_path / "begun"))
    epochs = KeptEpochs(tmp_path, "key", tmp_path / "begun").epochs
    per_epoch = 60 // BATCH
    assert epochs == (step - 1) // per_epoch
    train(KeptEpochs(tmp_path, "key", tmp_path / "begun"))
    again = step - epochs * per_epoch  # steps of the epoch that was cut short, the last without its noise
    assert taken() == EPOCHS * per_epoch + again
    assert taken() <= (EPOCHS + 1) * per_epoch  # what is charged: one epoch more
    assert KeptEpochs(tmp_path, "key", tmp_path / "begun").epochs == EPOCHS
    steps = np.stack(noise)
    assert np.abs(np.corrcoef(steps) - np.eye(len(steps))).max() < 4 / np.sqrt(steps.shape[1])


@pytest.mark.parametrize("mechanism", ["dp-sgd", "none"])
def test_what_is_kept_has_no_losses_and_no_state_of_a_generator(tmp_path, monkeypatch, mechanism):
    keys = []
    monkeypatch.setattr(shadow, "fresh_key", lambda: keys.append(fresh_key()) or keys[-1])
    train(
        KeptEpochs(tmp_path, "key", tmp_path / "begun"),
        mechanism=mechanism,
        epsilon=8.0 if mechanism == "dp-sgd" else float("inf"),
    )
    state = KeptEpochs(tmp_path, "key", tmp_path / "begun").resume()
    kinds = {name.partition(".")[0] for name in state}
    assert kinds == {"model", "optimizer", "rest"}
    assert {name for name in state if name.startswith("rest.")} == {"rest.epochs", "rest.start"}
    content = (tmp_path / "epoch.safetensors").read_bytes()
    assert not any(key in content or key.hex().encode() in content for key in keys)
    assert not any(f"protection.{counter}" in name for name in state for counter in COUNTERS)


def test_a_damaged_state_is_not_gone_on_from(tmp_path):
    train(KeptEpochs(tmp_path, "key", tmp_path / "begun"))
    path = tmp_path / "epoch.safetensors"
    path.write_bytes(path.read_bytes()[:-3] + b"\0\1\2")
    assert KeptEpochs(tmp_path, "key", tmp_path / "begun").epochs is None
    assert KeptEpochs(tmp_path, "other key", tmp_path / "begun").epochs is None


def test_nothing_ends_a_release_by_a_value(monkeypatch):
    monkeypatch.setattr("mia_audit.privacy.mechanisms.DPSGD.deviation", lambda self: float("nan"))
    model = train().model
    assert not any(bool(value.isfinite().all()) for value in model.parameters())


def test_epochs_follow_the_schedule_after_a_kill(tmp_path, monkeypatch, kill_at):
    """The learning rate goes on from the step that the accounting says, not from the first."""
    rates = []
    monkeypatch.setattr(torch.optim.AdamW, "step", lambda self: rates.append(self.param_groups[0]["lr"]))
    kill_at(5)
    with pytest.raises(Killed):
        train(KeptEpochs(tmp_path, "key", tmp_path / "begun"))
    train(KeptEpochs(tmp_path, "key", tmp_path / "begun"))
    assert all(later < earlier for earlier, later in pairwise(rates[:4]))
    assert rates[4] == rates[3]
    assert len(rates) == 4 + 6


VIT = {"img_size": 8, "patch_size": 4, "embed_dim": 12, "depth": 1, "num_heads": 2, "global_pool": "avg"}
IMAGES = np.random.default_rng(0).integers(0, 256, (60, 1, 8, 8), dtype=np.uint8)


@pytest.mark.parametrize(
    ("mechanism", "options"),
    [
        ("dp-sgd", {"clipping": "flat", "clip_norm": 0.5}),
        ("fadp", {"importance": "past"}),
        ("fadp", {"importance": "public"}),
        ("none", {}),
    ],
)
def test_every_mechanism_goes_on_after_a_kill(tmp_path, monkeypatch, mechanism, options):
    metadata = describe("vit", "vision_transformer", VIT, (1, 8, 8), 3)
    described = {"kind": "image", "shape": [1, 8, 8], "classes": ["a", "b", "c"]}
    inputs = Inputs(IMAGES, described, [1, 8, 8], "cpu")
    public = Inputs(IMAGES[:10], described, [1, 8, 8], "cpu"), LABELS[:10]
    section = Mechanism(mechanism=mechanism, **options)
    epsilon = float("inf") if mechanism == "none" else 4.0
    made = Recipe(metadata, None, section, Training(epochs=EPOCHS, batch=BATCH), epsilon, 64, (), public)
    offer, kept = KeptEpochs.offer, []

    def offered(self, capture):
        offer(self, capture)
        kept.append(self.epochs)
        if len(kept) == 3:
            raise Killed

    monkeypatch.setattr(KeptEpochs, "offer", offered)
    with pytest.raises(Killed):
        train_released(made, inputs, LABELS, EVERYBODY, KeptEpochs(tmp_path, "key", tmp_path / "begun"))
    trained = train_released(made, inputs, LABELS, EVERYBODY, KeptEpochs(tmp_path, "key", tmp_path / "begun"))
    assert kept == [0, 1, 2, 3]
    if mechanism == "fadp" and options["importance"] == "public":
        masks = KeptEpochs(tmp_path, "key", tmp_path / "begun").resume()["rest.protection.mask_channels"]
        assert len(masks) == 3 and (masks == masks[0]).all(), "the mask is computed once, before the kill"
    assert trained.steps == EPOCHS * 60 // BATCH
    assert trained.terms.noise_mask != "none" if mechanism == "fadp" else trained.terms.noise_mask == "none"
