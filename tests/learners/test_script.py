"""Scripts: anybody's code is trained, stored and asked, and its mistakes are one line each."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mia_audit.errors import UserError
from mia_audit.learners.protocol import Attribution, Compute, ExplanationRequest, TorchBackedModel
from mia_audit.learners.script import ScriptLearner
from mia_audit.learners.torch_module import TorchLearner
from mia_audit.models.architecture import describe
from mia_audit.signals.compute import SignalsTask, explainers_of, model_signals
from mia_audit.training.checkpoints import Checkpoint
from mia_audit.training.task import Records, TrainingTask

MakeTask = Callable[..., TrainingTask]
Described = Callable[..., dict[str, Any]]
Write = Callable[..., Path]

CENTROIDS = """
import json
import numpy as np


def train(task):
    rows, labels = task.records[task.members], task.labels[task.members]
    task.progress(len(rows), 1)
    noise = 0.01 * np.random.normal(size=(len(task.classes), rows.shape[1]))
    return np.stack([rows[labels == label].mean(axis=0) for label in range(len(task.classes))]) + noise


def predict(model, records):
    return -((records[:, None] - model) ** 2).sum(axis=2)


def explain(model, records, classes):
    return {"difference": records - model[classes]}


def save(model, folder):
    (folder / "centroids.json").write_text(json.dumps(model.tolist()))


def load(folder):
    return np.array(json.loads((folder / "centroids.json").read_text()))
"""

FOREST = """
from sklearn.ensemble import RandomForestClassifier


def fit(task):
    model = RandomForestClassifier(5, random_state=task.seed % 2**32)
    return model.fit(task.records[task.members], task.labels[task.members])
"""

LINEAR = """
import torch
from torch import nn


def build(shape, classes, width=4):
    return nn.Sequential(nn.Linear(shape[0], width), nn.ReLU(), nn.Dropout(0.5), nn.Linear(width, classes))


def train(task):
    model = build((task.records.shape[1],), len(task.classes), **task.parameters)
    rows = torch.from_numpy(task.records[task.members])
    labels = torch.from_numpy(task.labels[task.members])
    optimizer = torch.optim.Adam(model.parameters(), 0.1)
    for epoch in range(task.training.epochs):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(rows), labels).backward()
        optimizer.step()
        task.progress(len(rows), epoch + 1)
    return model
"""


def learner_of(described: Described, path: Path, compute: Compute | None = None, **section: Any) -> ScriptLearner:
    architecture = described(ScriptLearner, str(path), **section)
    json.dumps(architecture)
    return ScriptLearner(architecture, compute or Compute(micro_batch=17))


def saved(model: Any, folder: Path) -> Path:
    folder.mkdir()
    model.save(folder)
    return folder


def test_a_model_of_its_own_kind_is_trained_stored_asked_and_explained(
    script: Write, described: Described, task: MakeTask, table: Records, tmp_path: Path
) -> None:
    learner = learner_of(described, script(CENTROIDS), outputs="logits")
    steps: list[tuple[int, int]] = []
    trained = learner.train(task(progress=lambda *step: steps.append(step)))
    assert steps == [(30, 1)]
    again, other = learner.train(task()), learner.train(task(shadow=4))
    logits = trained.logits(table)
    np.testing.assert_array_equal(again.logits(table), logits)  # the global generators are seeded
    assert not np.array_equal(other.logits(table), logits)
    opened = learner.load(saved(trained, tmp_path / "model"))
    np.testing.assert_array_equal(opened.logits(table), logits)
    options = {"explainers": ["own:difference"], "explain": ["logit"], "explained_class": "predicted"}
    found = model_signals(opened, table, SignalsTask("own", options, 0, batch=7))
    centres = json.loads((tmp_path / "model" / "centroids.json").read_text())
    expected = np.abs(table.values - np.array(centres)[logits.argmax(axis=1)]).sum(axis=1)
    np.testing.assert_allclose(found["own:difference_l1"], expected, rtol=1e-5)


def test_a_script_knows_its_task(
    script: Write, described: Described, task: MakeTask, table: Records, tmp_path: Path
) -> None:
    text = (
        FOREST.replace("    model =", "    assert told(task)\n    model =", 1)
        + """

def told(task):
    (task.checkpoints / "seen").touch()
    print(task.epsilon, task.delta, task.seed, task.parameters["depth"], task.device, task.threads, task.shadow, task.classes)
    assert task.public_records.shape == (5, 4) and task.public_labels.shape == (5,)
    return True
"""
    )
    learner = learner_of(described, f"{script(text)}:fit", parameters={"depth": 2})  # type: ignore[arg-type]
    checkpoint = Checkpoint(tmp_path / "kept", "0123456789abcdef0123")
    one = task(epsilon=2.0, public=table[:5], checkpoint=checkpoint)
    learner.train(one)
    assert (tmp_path / "kept" / "own-0123456789abcdef" / "seen").exists()


def test_an_estimator_needs_no_predict(
    script: Write, described: Described, task: MakeTask, table: Records, tmp_path: Path
) -> None:
    learner = learner_of(described, f"{script(FOREST)}:fit")  # type: ignore[arg-type]
    trained = learner.train(task())
    opened = learner.load(saved(trained, tmp_path / "model"))
    np.testing.assert_array_equal(opened.logits(table), trained.logits(table))
    assert np.isfinite(opened.logits(table)).all()


def test_a_torch_module_is_stored_by_its_weights_and_explained(
    script: Write, described: Described, task: MakeTask, table: Records, tmp_path: Path
) -> None:
    learner = learner_of(described, script(LINEAR), parameters={"width": 5})
    trained = learner.train(task())
    folder = saved(trained, tmp_path / "model")
    assert [path.name for path in folder.iterdir()] == ["weights.safetensors"]
    opened = learner.load(folder)
    np.testing.assert_array_equal(opened.logits(table), trained.logits(table))
    assert isinstance(opened, TorchBackedModel)
    options = {"explainers": ["ixg", "saliency"], "explain": ["logit"], "explained_class": "predicted"}
    task_of_signals = SignalsTask("gradient", options, 0)
    assert explainers_of(opened, task_of_signals) == ["ixg", "saliency"]
    signals = model_signals(opened, table, task_of_signals)
    assert (signals["ixg_l1"] > 0).any()


BUILT_IN = """
from mia_audit.models.architecture import construct, describe
from mia_audit.models.inputs import to_input
from mia_audit.learners.protocol import Compute
from mia_audit.learners.torch_module import TorchLearner
from mia_audit.models.inputs import Inputs
from mia_audit.privacy.catalogue import Mechanism
from mia_audit.training.shadow import Recipe, train_shadow
import torch

METADATA = {"kind": "image", "shape": [1, 8, 8], "classes": ["a", "b", "c"]}
VIT = {"img_size": 8, "patch_size": 4, "embed_dim": 8, "depth": 1, "num_heads": 2}


def build(shape, classes):
    return construct(describe("vit", "vision_transformer", VIT, shape, classes), 0)


def inputs(values):
    return to_input(values, METADATA, (1, 8, 8), "cpu")


def train(task):
    architecture = describe("vit", "vision_transformer", VIT, (1, 8, 8), 3)
    recipe = Recipe(architecture, None, Mechanism(mechanism="none", delta=1e-4), task.training, task.epsilon, 5, task.key)
    members = torch.zeros(len(task.labels), dtype=torch.bool)
    members[torch.from_numpy(task.members)] = True
    labels = torch.tensor(task.labels, dtype=torch.long)
    pool = Inputs(task.records, METADATA, (1, 8, 8), "cpu")
    return train_shadow(recipe, task.shadow, pool, labels, members.numpy(), task.progress).model
"""


def test_a_wrapped_built_in_model_has_its_scores_to_the_last_bit(
    script: Write, described: Described, task: MakeTask, tmp_path: Path
) -> None:
    random = np.random.default_rng(0)
    pixels = random.integers(0, 256, (14, 1, 8, 8), dtype=np.uint8)
    metadata = {"kind": "image", "shape": [1, 8, 8], "classes": ["a", "b", "c"]}
    records = Records(pixels, random.integers(0, 3, 14), metadata, np.arange(14))
    path = script(BUILT_IN)
    namespace: dict[str, Any] = {}
    exec(path.read_text(), namespace)
    built_in = TorchLearner(
        describe("vit", "vision_transformer", namespace["VIT"], (1, 8, 8), 3), Compute(micro_batch=5)
    )
    learner = learner_of(described, path, Compute(micro_batch=5), records=records)
    one = task(records, training=task().training.model_copy(update={"batch": 4}))
    ours = built_in.train(one)
    theirs = learner.load(saved(learner.train(one), tmp_path / "model"))
    np.testing.assert_array_equal(theirs.logits(records), ours.logits(records))
    options = {"explainers": ["ixg", "saliency"], "explain": ["logit", "probability"], "explained_class": "predicted"}
    asked = SignalsTask("gradient", options, 0, batch=5)
    first, second = model_signals(ours, records, asked), model_signals(theirs, records, asked)
    assert list(first) == list(second)
    for name, values in first.items():
        np.testing.assert_array_equal(second[name], values, err_msg=name)


def replaced(what: str, by: str, text: str = CENTROIDS) -> str:
    assert what in text
    return text.replace(what, by)


PREDICTS = "    return -((records[:, None] - model) ** 2).sum(axis=2)"
HOSTILE = {
    "a crash": ("    rows, labels =", "    1 / 0\n    rows, labels =", r"train\.py: train: train\.py, line 7: ZeroDivisionError: div"),
    "a wrong shape": (PREDICTS, "    return records", r"outputs of shape \[17, 4\]; expected \[17, 3\]"),
    "labels": (PREDICTS, "    return [0] * len(records)", r"\[17\]; expected \[17, 3\].*; if the model returns classes, set outputs: labels"),
    "NaN": (PREDICTS, PREDICTS + " * np.nan", r"the output for record 0 is not finite, \(nan, nan, nan\): the training diverged"),
    "another order": (PREDICTS, PREDICTS + "[np.argsort(records[:, 1])]", r"output for record \d+ is .* in the order of the records"),
    "chance": (PREDICTS, PREDICTS + " * np.random.random((len(records), 3))", "without dropout or statistics"),
    "a batch's statistics": (PREDICTS, PREDICTS.replace("return", "z =") + "\n    return z - z.mean(axis=0)", "statistics of the batch"),
    "nothing": ("    return np.stack", "    np.stack", "train returned nothing; expected the trained model"),
    "a list of arrays": (PREDICTS, "    return [records]", r"outputs of shape|not an array"),
    "one half of storage": ("def load(folder)", "def open(folder)", r"load\(folder\) is missing; define both save and load, or neither"),
}  # fmt: skip


@pytest.mark.parametrize("what", HOSTILE)
def test_hostile_code_gets_a_clear_word(
    what: str, script: Write, described: Described, task: MakeTask, table: Records
) -> None:
    before, after, message = HOSTILE[what]
    path = script(replaced(before, after))
    learner = learner_of(described, path, Compute(micro_batch=17), outputs="logits")
    with pytest.raises(UserError, match=message) as caught:
        learner.train(task()).logits(table)
    assert "\n" not in str(caught.value) and "architectures.mine: train.py: " in str(caught.value)


@pytest.mark.parametrize(
    ("text", "section", "message"),
    [
        ("def fit(task): ...", {}, r"train\.py has no function 'train\(task\)': known: fit"),
        (
            "def train(task): ...\ndef predict(model, records): ...",
            {},
            "outputs: missing; state what predict of train.py returns",
        ),
        ("def train(task): ...\ndef explain(model, records, classes): ...", {}, "no predict"),
        ("import nothing_like_it\ndef train(task): ...", {}, r"train\.py, line 1: ModuleNotFoundError"),
        ("def train(task:", {}, r"train\.py, line 1: SyntaxError"),
    ],
)
def test_a_script_that_lacks_something_is_refused_before_it_trains(
    text: str, section: dict[str, Any], message: str, script: Write, described: Described
) -> None:
    with pytest.raises(UserError, match=message):
        learner_of(described, script(text), **section)


def test_models_that_cannot_be_stored_or_asked_are_refused(script: Write, described: Described, task: MakeTask) -> None:
    learner = learner_of(described, script("def train(task): return {1: 2}"))
    with pytest.raises(UserError, match="returned a dict, which is neither a torch module nor an estimator"):
        learner.train(task())
    other = script(CENTROIDS[: CENTROIDS.index("def explain")], "other.py")
    with pytest.raises(UserError, match="a model of type ndarray cannot be stored: define save"):
        learner_of(described, other, outputs="logits").train(task())
    third = script(replaced("def build(", "def made(", LINEAR).replace("= build(", "= made("), "third.py")
    with pytest.raises(UserError, match="stored by its weights: define build"):
        learner_of(described, third).train(task())


def test_explanations_are_checked(script: Write, described: Described, task: MakeTask, table: Records) -> None:
    learner = learner_of(described, script(replaced("records - model[classes]", "records[1:]")), outputs="logits")
    model: Any = learner.train(task())
    options = {"explain": ["logit"], "explained_class": "true"}
    with pytest.raises(UserError, match=r"attributions 'difference' of shape \[59, 4\]"):
        model.attributions(table, ExplanationRequest(["own:difference"], options, 0))
    with pytest.raises(
        UserError, match=r"no attributions 'shap', which explainers.methods requests: known: difference"
    ):
        model.attributions(table, ExplanationRequest(["own:shap"], options, 0))
    assert Attribution("own:difference", "logit").quantity == "logit"


def test_modules_beside_the_script_are_found(
    script: Write, described: Described, task: MakeTask, tmp_path: Path
) -> None:
    (tmp_path / "folder").mkdir()
    script("NEIGHBOURS = 3\n", "folder/beside_the_script.py")
    text = FOREST.replace("RandomForestClassifier(5", "RandomForestClassifier(NEIGHBOURS")
    script("from beside_the_script import NEIGHBOURS\n" + text, "folder/train.py")
    learner = learner_of(described, "folder/train.py:fit")  # type: ignore[arg-type]
    assert len(learner.train(task()).estimator.estimators_) == 3  # type: ignore[attr-defined]
