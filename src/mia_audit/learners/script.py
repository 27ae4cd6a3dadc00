"""`script`: a user's Python file with `train(task) -> model` and, for models of other types, `predict(model, records)`.

The model may be a torch module, an estimator with scikit-learn's interface, or any object that the file's own functions query, save and load.

The task that a user's script receives to train one model.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from mia_audit.arrays import check_row_order, real_array
from mia_audit.errors import UserError, suggest
from mia_audit.explain.catalogue import OWN
from mia_audit.learners.answers import UNKNOWN_VOTES, BatchedModel, boxed_attributions, logits_of
from mia_audit.learners.estimators import (
    FILE,
    EstimatorModel,
    is_estimator,
    load_estimator,
    save_estimator,
    versions,
)
from mia_audit.learners.finished import WEIGHTS_SUFFIXES, copy_into
from mia_audit.learners.naming import Outputs, check_script, packages_of, seed_everything
from mia_audit.learners.protocol import (
    Attribution,
    Compute,
    ExplanationRequest,
    ModelSection,
    TorchBackedModel,
    TrainedModel,
    described,
)
from mia_audit.learners.script_module import Script
from mia_audit.pools.frames import FRAME, frame_of
from mia_audit.runtime.machine import VISIBLE, installed_gpus, visible_gpus
from mia_audit.training.task import Records, TrainingTask

if TYPE_CHECKING:
    import pandas as pd
    from jaxtyping import Float, Int, Num, Shaped

    from mia_audit.training.section import Training
    from mia_audit.training.task import Progress


@dataclass(frozen=True)
class ScriptTask:
    """The task of training one model, in the form that a script receives.

    `members` are row numbers of the records. Records have the pool's form: rows of float32, or images of uint8 [n, C,
    H, W]. They may be memory-mapped. A data set with `frame: true` gives them as a pandas DataFrame.
    """

    records: Num[np.ndarray, "n ..."] | pd.DataFrame
    labels: Int[np.ndarray, " n"]
    members: Int[np.ndarray, " m"]
    persons: Shaped[np.ndarray, " n"] | None
    """The ids of the records' persons; None if the pool has none."""
    public_records: Num[np.ndarray, "p ..."] | pd.DataFrame | None
    """The pool's public records, which no guarantee covers; None if the pool has none."""
    public_labels: Int[np.ndarray, " p"] | None
    classes: Sequence[str]
    epsilon: float
    """The required ε of the model's guarantee; infinite without privacy."""
    delta: float | None
    """The δ of the guarantee; None without privacy."""
    seed: int | None
    """A seed of 63 bits, different for every model.

    It is None for a released model (docs/how-to/release.md), whose randomness must be fresh. The global generators of random,
    numpy and torch are seeded with it or, if None, by the operating system's entropy.
    """
    shadow: int
    """The number of the model."""
    key: tuple[int | str, ...] | None
    """The key from which the seed is derived, together with the model's number; None without a seed."""
    parameters: Mapping[str, Any]
    """The architecture's `parameters` in the config."""
    training: Training
    """The config's `training` for this architecture and mechanism."""
    device: str
    """`cpu` or `cuda`; at most one GPU is visible."""
    threads: int
    checkpoints: Path
    """A folder for checkpoints from which a killed training run resumes. It is kept until the model is finished, and empty for a new model."""
    progress: Progress
    """A function to call in every step with the step's number of records and the epoch's number, from 1."""


def script_task(task: TrainingTask, architecture: Mapping[str, Any], compute: Compute, checkpoints: Path) -> ScriptTask:
    """Return a task in the form that a script receives."""
    public = task.public if task.public is not None and len(task.public) else None
    return ScriptTask(
        records=received_records(task.records),
        labels=task.records.labels,
        members=np.flatnonzero(task.members),
        persons=task.records.persons,
        public_records=None if public is None else received_records(public),
        public_labels=None if public is None else public.labels,
        classes=task.records.metadata["classes"],
        epsilon=task.epsilon,
        delta=task.mechanism.delta if math.isfinite(task.epsilon) else None,
        seed=task.seed,
        shadow=task.shadow,
        key=task.key,
        parameters=dict(architecture["arguments"]),
        training=task.training,
        device=device_name(compute.device),
        threads=compute.threads,
        checkpoints=checkpoints,
        progress=task.progress,
    )


def received_records(records: Records) -> Any:
    """Return records as a script receives them: in the pool's form, or as a pandas DataFrame."""
    columns = records.metadata.get(FRAME)
    return np.asarray(records.values) if columns is None else frame_of(records.values, columns)


def device_name(wanted: str) -> str:
    """Return `cuda` if a GPU is visible and requested, otherwise `cpu`, without importing torch."""
    if wanted == "cpu":
        return "cpu"
    visible = visible_gpus(os.environ[VISIBLE]) if VISIBLE in os.environ else installed_gpus()
    return "cuda" if visible and installed_gpus() else "cpu"


def own_checkpoints(task: TrainingTask, elsewhere: Path) -> Path:
    """Create and return a folder for a learner's own checkpoints, which only a training run with the same key uses again."""
    kept = task.checkpoint.folder
    folder = kept / f"own-{task.checkpoint.key[:16]}" if kept else elsewhere / "checkpoints"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


class ScriptModel(BatchedModel):
    """A model queried through the script's `predict`."""

    def __init__(self, script: Script, model: Any, architecture: Mapping[str, Any], compute: Compute) -> None:
        super().__init__(f"{script.where}: predict", compute.micro_batch)
        self.model = model
        self._script = script
        self._outputs = cast(Outputs, architecture["outputs"])
        self._votes = architecture["votes"] or UNKNOWN_VOTES

    def attributions(
        self, records: Records, request: ExplanationRequest
    ) -> dict[Attribution, Float[np.ndarray, "n ..."]]:
        """Return the attributions of explainers that need only the outputs, or an estimator."""
        if own := [name for name in request.explainers if name.startswith(OWN)]:
            raise UserError(
                f"{self._script.where}: {own[0]} in explainers.methods needs a function explain(model, records, classes); define it in the script"
            )
        estimator = self.model if is_estimator(self.model) else None
        return boxed_attributions(self._asked, records, request, request.explainers, estimator)

    def _batch(self, records: Records) -> Float[np.ndarray, "b C"]:
        answer = self._script.call("predict", self.model, received_records(records))
        return logits_of(answer, self._outputs, records, self._votes, self._where)

    def save(self, folder: Path) -> None:
        """Store the model with the script's `save`, or store an estimator or a torch module in its own format."""
        if self._script.has("save"):
            self._script.call("save", self.model, folder)
            if not any(folder.iterdir()):
                raise UserError(f"{self._script.where}: save(model, folder) wrote nothing to its folder")
        elif is_module(self.model):
            from mia_audit.models.weights import WEIGHTS, save_weights

            save_weights(self.model, folder / WEIGHTS)
        else:
            save_estimator(self.model, folder)


class ExplainedScriptModel(ScriptModel):
    """A model whose explanations come from its script."""

    def attributions(
        self, records: Records, request: ExplanationRequest
    ) -> dict[Attribution, Float[np.ndarray, "n ..."]]:
        """Return the result of `explain` for the predicted or the true classes, under the requested names.

        Raises UserError unless `explain` returns attributions with these names, as finite arrays with one row per
        record.
        """
        own = [name for name in request.explainers if name.startswith(OWN)]
        others = [name for name in request.explainers if name not in own]
        attributions = super().attributions(records, replace(request, explainers=others)) if others else {}
        if not own:
            return attributions
        true_class = request.options["explained_class"] == "true"
        classes = records.labels if true_class else self._asked(records).argmax(axis=1)
        given = received_records(records)
        explained = self._script.call("explain", self.model, given, np.asarray(classes).astype(np.int64))
        where = f"{self._script.where}: explain"
        if not isinstance(explained, Mapping):
            raise UserError(f"{where}: returned a {type(explained).__name__}; expected a dict of attributions by name")
        for name in own:
            short = name.removeprefix(OWN)
            if short not in explained:
                raise UserError(
                    f"{where}: returned no attributions '{short}', which explainers.methods requests: {suggest(short, explained)}"
                )
            array = real_array(explained[short], f"{where}: attributions '{short}'").astype(np.float64)
            check_row_order(explained[short], f"{where}: attributions '{short}'")
            if array.ndim < 2 or len(array) != len(records) or not np.isfinite(array).all():
                raise UserError(
                    f"{where}: returned attributions '{short}' of shape {list(array.shape)}; expected finite numbers, one row for"
                    f" each of {len(records)} records"
                )
            attributions[Attribution(name, "logit")] = array
        return attributions


class ScriptLearner:
    """Trains and opens the models of a script."""

    def __init__(self, architecture: Mapping[str, Any], compute: Compute) -> None:
        missing = [key for key in ("model", "arguments", "outputs", "votes", "shape") if key not in architecture]
        if missing:
            raise UserError(f"the key '{missing[0]}' is missing; expected the architecture of a script")
        self.architecture = architecture
        self.script = Script(architecture["model"], f"architectures.{architecture.get('name', '')}")
        check_script(self.script.path, self.script.training, architecture["outputs"])
        self._compute = compute
        self._packages = packages_of(self.script.path)
        if "torch" in sys.modules:
            from mia_audit.runtime.device import device_for

            device_for(compute.threads, compute.device)
        self.environment = {"device": compute.device, "threads": compute.threads, **versions(self._packages)}

    @classmethod
    def describe(cls, section: ModelSection, pool: Mapping[str, Any]) -> dict[str, Any]:
        """Load the script, check that it defines the required functions, and return its architecture.json."""
        metadata = described("script", section, pool) | {"reads_public": True}
        learner = cls(metadata, Compute())
        if FRAME in pool and learner.script.has("build") and not learner.script.has("predict"):
            raise UserError(
                f"{learner.script.where}: a torch module takes arrays, but this data set gives frames: leave datasets.NAME.frame out,"
                " or define predict(model, records)"
            )
        return metadata | {"versions": versions(learner._packages)}

    def train(self, task: TrainingTask) -> TrainedModel:
        """Train a model by the script's training function."""
        with TemporaryDirectory() as elsewhere:
            received = script_task(task, self.architecture, self._compute, own_checkpoints(task, Path(elsewhere)))
            seed_everything(received.seed)
            trained = self.script.call(self.script.training, received)
        if trained is None:
            raise UserError(f"{self.script.where}: {self.script.training} returned nothing; expected the trained model")
        trained = plain(trained)
        model = self._opened(trained)
        check_storable(self.script, trained)
        return model

    def untrained(self) -> TorchBackedModel | None:
        """Return the module that the script builds, before training; None if models are queried in another way."""
        if self.script.has("predict") or not self.script.has("build"):
            return None
        from torch.nn.parameter import is_lazy

        from mia_audit.learners.script_module import script_module, untrained_module

        module = untrained_module(self.script, self.architecture)
        if any(map(is_lazy, (*module.parameters(), *module.buffers()))):
            return None  # it has no weights before its first pass
        return script_module(self.script, module, self.architecture, Compute())

    def load(self, folder: Path) -> TrainedModel:
        """Open a model with the script's `load`, or open an estimator or a torch module in its own format."""
        if self.script.has("load"):
            return self._opened(plain(self.script.call("load", folder)))
        if (folder / FILE).exists():
            return self._opened(load_estimator(folder, self._packages))
        from mia_audit.learners.script_module import built_module

        return self._opened(plain(built_module(self.script, self.architecture, folder)))

    def adopt(self, path: Path, folder: Path) -> None:
        """Copy the files that the script's `load` reads. Without `load`, copy an estimator stored by skops, or a torch module's weights."""
        if self.script.has("load") or path.is_dir():
            copy_into(folder, path)
        elif path.suffix == ".skops":
            copy_into(folder, path, FILE)
        elif path.suffix in WEIGHTS_SUFFIXES:
            from mia_audit.models.architecture import read_tensors
            from mia_audit.models.weights import WEIGHTS, write_weights

            write_weights(read_tensors(path, "model"), folder / WEIGHTS)
        else:
            raise UserError(
                f"{path}: expected weights as {' or '.join(WEIGHTS_SUFFIXES[:2])}, or an estimator as .skops; for anything else,"
                f" define load(folder) in {self.script.path}"
            )

    def _opened(self, model: Any) -> TrainedModel:
        if is_module(model):
            from mia_audit.learners.script_module import script_module

            if not self.script.has("predict"):
                return script_module(self.script, model, self.architecture, self._compute)
            from mia_audit.runtime.device import device_for

            model = model.to(device_for(self._compute.threads, self._compute.device)).eval()
        if self.script.has("predict"):
            kind = ExplainedScriptModel if self.script.has("explain") else ScriptModel
            return kind(self.script, model, self.architecture, self._compute)
        if is_estimator(model):
            outputs = cast(Outputs, self.architecture["outputs"] or "probabilities")
            where = f"{self.script.where}: {type(model).__name__}"
            return EstimatorModel(model, outputs, self.architecture["votes"], self._compute, where)
        raise UserError(
            f"{self.script.where}: {self.script.training} returned a {type(model).__name__}, which is neither a torch module nor an"
            " estimator: define predict(model, records), and declare its outputs"
        )


def is_module(model: Any) -> bool:
    """Return whether a model is a torch module, without importing torch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(model, torch.nn.Module)


def plain(model: Any) -> Any:
    """Return a torch module without wrappers and in full precision; any other model as it is."""
    if not is_module(model):
        return model
    from mia_audit.models.answers import in_full_precision, unwrapped

    return in_full_precision(unwrapped(model))


def check_storable(script: Script, model: Any) -> None:
    """Raise UserError unless a model can be stored and opened again."""
    if script.has("save") != script.has("load"):
        lacking = "load(folder)" if script.has("save") else "save(model, folder)"
        raise UserError(f"{script.where}: {lacking} is missing; define both save and load, or neither")
    if script.has("save") or is_estimator(model):
        return
    if not is_module(model):
        raise UserError(
            f"{script.where}: a model of type {type(model).__name__} cannot be stored: define save(model, folder) and load(folder)"
        )
    if not script.has("build"):
        raise UserError(
            f"{script.where}: a torch module is stored by its weights: define build(shape, classes, **parameters), which returns"
            " the untrained module, or save(model, folder) and load(folder)"
        )
