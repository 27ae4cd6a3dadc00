"""The built-in learner: what it trains is what it saves and opens again, and its one pass gives what its parts give."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from mia_audit.errors import UserError
from mia_audit.explain.batch import explained_batch
from mia_audit.learners.protocol import Compute, ExplainedModel, ExplanationRequest, SummarisingModel, TorchBackedModel
from mia_audit.learners.torch_module import TorchLearner
from mia_audit.models.architecture import describe
from mia_audit.privacy.catalogue import Mechanism
from mia_audit.signals.compute import summaries_of
from mia_audit.training.report import ReportsTraining
from mia_audit.training.section import Training
from mia_audit.training.task import Records, TrainingTask

from ..killing import Killed

SHAPE, COUNT = (1, 8, 8), 14
VIT = {"img_size": 8, "patch_size": 4, "embed_dim": 8, "depth": 1, "num_heads": 2}


@pytest.fixture
def architecture() -> dict[str, Any]:
    return describe("vit", "vision_transformer", VIT, SHAPE, 3)


@pytest.fixture
def records() -> Records:
    random = np.random.default_rng(0)
    pixels = random.integers(0, 256, (COUNT, *SHAPE), dtype=np.uint8)
    metadata = {"kind": "image", "classes": ["a", "b", "c"]}
    return Records(pixels, random.integers(0, 3, COUNT), metadata, np.arange(COUNT))


def task(records: Records) -> TrainingTask:
    members = np.arange(COUNT) % 2 == 0
    training = Training(epochs=2, batch=4, learning_rate=0.05)
    return TrainingTask(
        records=records,
        members=members,
        training=training,
        mechanism=Mechanism(mechanism="none"),
        epsilon=float("inf"),
        key=(0, "test"),
        shadow=3,
    )


def test_a_model_is_the_same_after_it_was_saved(architecture: dict[str, Any], records: Records, tmp_path: Path) -> None:
    learner = TorchLearner(architecture, Compute(micro_batch=5))
    json.dumps(learner.environment)
    model = learner.train(task(records))
    assert isinstance(model, ReportsTraining) and len(model.report.epochs) == 2
    model.save(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["weights.safetensors"]
    opened = TorchLearner(architecture, Compute(micro_batch=5)).load(tmp_path)
    np.testing.assert_array_equal(opened.logits(records), model.logits(records))
    hits = model.logits(records).argmax(axis=1) == records.labels
    assert model.report.train_accuracy == pytest.approx(hits[task(records).members].mean())
    assert isinstance(opened, ExplainedModel | SummarisingModel | TorchBackedModel)
    assert not any(parameter.requires_grad for parameter in opened.module.parameters())


def kill_in_second_epoch(records: int, epoch: int) -> None:
    if epoch == 2:
        raise Killed


@pytest.mark.parametrize("explained_class", ["predicted", "true"])
def test_the_one_pass_gives_what_logits_and_attributions_give(
    architecture: dict[str, Any], records: Records, explained_class: str
) -> None:
    model = TorchLearner(architecture, Compute(micro_batch=5)).train(task(records))
    options = {"explain": ["logit", "probability"], "explained_class": explained_class, "smoothgrad_samples": 2}
    options["smoothgrad_noise"] = 0.1
    request = ExplanationRequest(["ixg", "saliency", "smoothgrad"], options, seed=1)
    one, parts = model.summaries(records, request, outputs=True), summaries_of(model, records, request, True, 4)
    assert list(one.outputs) == list(parts.outputs) and list(one.explanations) == list(parts.explanations)
    np.testing.assert_array_equal(one.outputs["predicted"], parts.outputs["predicted"])
    for name in ("loss", "confidence"):
        np.testing.assert_allclose(one.outputs[name], parts.outputs[name], rtol=1e-4, atol=1e-5)
    for key, values in one.explanations.items():
        np.testing.assert_allclose(values, parts.explanations[key], rtol=1e-3, err_msg=str(key))


def test_logits_are_the_same_to_the_last_bit_in_every_pass(architecture: dict[str, Any]) -> None:
    """A command that predicts has the losses of the built-in model; a patch's product and its convolution round differently."""
    random = np.random.default_rng(1)
    pixels, labels = random.integers(0, 256, (400, *SHAPE), dtype=np.uint8), random.integers(0, 3, 400)
    many = Records(pixels, labels, {"kind": "image", "classes": ["a", "b", "c"]}, np.arange(400))
    model = TorchLearner(architecture, Compute(micro_batch=400)).train(task(many[range(COUNT)]))
    expected = model.logits(many).astype(np.float64)
    for gradients in (True, False):
        batch = explained_batch(
            model.module,
            model.inputs(many)[0:400],
            torch.from_numpy(labels),
            range(400),
            {"explain": ["logit"], "explained_class": "true"},
            seed=1,
            gradients=gradients,
        )
        np.testing.assert_array_equal(batch.logits.numpy(), expected)


def test_draws_are_keyed_by_the_records_numbers(architecture: dict[str, Any], records: Records) -> None:
    model = TorchLearner(architecture, Compute()).train(task(records))
    options = {"explain": ["logit"], "explained_class": "true", "smoothgrad_samples": 1, "smoothgrad_noise": 0.5}
    request = ExplanationRequest(["smoothgrad"], options, seed=1)
    (whole,) = model.attributions(records, request).values()
    (part,) = model.attributions(records[[9, 2]], request).values()
    np.testing.assert_allclose(part, whole[[9, 2]], rtol=1e-3, atol=1e-6)


def test_weights_of_another_architecture_are_named(
    architecture: dict[str, Any], records: Records, tmp_path: Path
) -> None:
    TorchLearner(architecture, Compute()).train(task(records)).save(tmp_path)
    other = describe("vit", "vision_transformer", VIT | {"embed_dim": 12}, SHAPE, 3)
    with pytest.raises(UserError, match=r"weights\.safetensors: weights of another architecture"):
        TorchLearner(other, Compute()).load(tmp_path)
