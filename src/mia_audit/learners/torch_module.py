"""`torch-module`: the built-in models, trained by the built-in loop under any privacy mechanism.

Signals of a torch module in one pass: loss, confidence and summaries of attributions, reduced on the module's device.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from mia_audit.arrays import real_array
from mia_audit.errors import UserError
from mia_audit.explain.batch import Batch, Members, explained_batch, patch_of, summarise, vectors
from mia_audit.explain.catalogue import GRADIENT, explainers
from mia_audit.learners.protocol import (
    Attribution,
    Compute,
    ExplanationRequest,
    ModelSection,
    Summaries,
    TrainedOn,
    released,
)
from mia_audit.models.architecture import (
    batch_for,
    check_architecture,
    construct,
    describe,
    load,
    own_normalisation,
    read_start,
    read_tensors,
)
from mia_audit.models.inputs import Inputs, taken_by
from mia_audit.models.passes import FastPass
from mia_audit.models.weights import WEIGHTS, identity_of, save_weights, write_weights
from mia_audit.privacy.masks import Masks, save_masks
from mia_audit.runtime.device import AdaptiveBatchSize, computing, device_for
from mia_audit.seeds import AUDIT_ONLY
from mia_audit.training.report import TrainingReport
from mia_audit.training.shadow import Recipe, Released, train_released, train_shadow
from mia_audit.training.stored import MASKS
from mia_audit.training.task import Records, TrainingTask
from mia_audit.training.trainable import Features


def loss(logits: Float[Tensor, "B C"], labels: Int[Tensor, " B"]) -> Float[Tensor, " B"]:
    """Return the cross-entropy, logsumexp(z) − z_y, in float64.

    It is computed as log(1 + exp(−confidence)), which is equal, because the difference of the two terms would round all
    losses below 1e-15 to the same value.
    """
    negative = -confidence(logits, labels)
    return negative.logaddexp(torch.zeros_like(negative))


def confidence(logits: Float[Tensor, "B C"], labels: Int[Tensor, " B"]) -> Float[Tensor, " B"]:
    """Return the logit-scaled confidence, z_y − logsumexp of the other logits (Carlini et al. 2022), in float64.

    It is computed from the logits, because softmax probabilities lose digits: for the logits (120, 0, 0) they give
    103.6, not 119.3.
    """
    logits = logits.double()
    others = logits.scatter(1, labels[:, None], -torch.inf).logsumexp(dim=1)
    return logits.gather(1, labels[:, None])[:, 0] - others


def module_summaries(
    module: nn.Module,
    inputs: Inputs | Float[Tensor, "N ..."],
    labels: Int[np.ndarray, " N"],
    numbers: Int[np.ndarray, " N"],
    request: ExplanationRequest,
    outputs: bool,
    batch: int,
    members: Members | None = None,
) -> Summaries:
    """Return the summaries of a module's attributions and, if requested, of its outputs.

    `module` is in eval mode with frozen parameters and on the device of `inputs`, which are read batch by batch. The
    batch is halved if memory runs out. Explainers that are fitted to training records need the module's `members`.
    Raises UserError if an output is not finite.
    """
    at_once = AdaptiveBatchSize(batch)
    parts: list[Summaries] = []
    start = 0
    with computing(module, request.options.get("precision", "float32")):
        while start < len(labels):
            part = partial(_part, module, inputs, labels, numbers, request, outputs, members, start)
            count, summaries = at_once(part)
            start += count
            parts.append(summaries)
    return Summaries(
        {name: np.concatenate([part.outputs[name] for part in parts]) for name in parts[0].outputs},
        {key: np.concatenate([part.explanations[key] for part in parts]) for key in parts[0].explanations},
    )


def _part(
    module: nn.Module,
    inputs: Inputs | Tensor,
    labels: np.ndarray,
    numbers: np.ndarray,
    request: ExplanationRequest,
    outputs: bool,
    members: Members | None,
    start: int,
    size: int,
) -> tuple[int, Summaries]:
    rows = slice(start, min(start + size, len(labels)))
    truth = torch.from_numpy(labels[rows].astype(np.int64)).to(inputs.device)
    records = numbers[rows].tolist()
    # explanations need the gradients of the pass that computes the logits
    shared = any(explainers[name].family == GRADIENT for name in request.explainers)
    batch = explained_batch(
        module,
        inputs[rows],
        truth,
        records=records,
        options=request.options,
        seed=request.seed,
        gradients=shared,
        members=members,
        number=request.model,
    )
    finite = batch.logits.isfinite().all(dim=1)
    if not finite.all():
        raise UserError(
            f"the model's output for record {records[int(finite.long().argmin())]} is not finite: the training diverged; lower the learning rate"
        )
    scalars = _outputs(batch, truth) if outputs else {}
    explanations = {
        key: values if values.dtype == torch.float16 else values.float()
        for key, values in _explanations(batch, request)
    }
    return len(records), Summaries(  # copy to the host only at the end, so that the process waits for the GPU only once
        {name: values.cpu().numpy() for name, values in scalars.items()},
        {key: values.cpu().numpy() for key, values in explanations.items()},
    )


def _outputs(batch: Batch, labels: Tensor) -> Mapping[str, Tensor]:
    return {
        "predicted": batch.logits.argmax(dim=1).int(),
        "loss": loss(batch.logits, labels).float(),
        "confidence": confidence(batch.logits, labels).float(),
    }


def _explanations(batch: Batch, request: ExplanationRequest) -> Iterator[tuple[tuple[Attribution, str], Tensor]]:
    for name in request.explainers:
        for quantity, attributions in explainers[name].attribute(batch, request.options).items():
            key = Attribution(name, quantity)
            if explainers[name].complete:
                yield (key, "completeness"), completeness_error(batch, quantity, attributions)
            for shipped, maps in _released(key, attributions, batch.records, request).items():
                for summary, values in summarise(maps).items():
                    yield (shipped, summary), values
                if request.options.get("vectors"):
                    yield (shipped, "vector"), vectors(maps, request.options, request.seed, patch_of(batch.model))


def _released(
    key: Attribution, maps: Tensor, records: Sequence[int], request: ExplanationRequest
) -> Mapping[Attribution, Tensor]:
    """Return maps in every form in which they are released, which is computed on the host."""
    if "release" not in request.options:
        return {key: maps}
    on_host = maps.to(torch.promote_types(maps.dtype, torch.float32)).cpu().numpy()
    forms = released({key: on_host}, request, records)
    return {shipped: torch.from_numpy(values).to(maps.device) for shipped, values in forms.items()}


def completeness_error(batch: Batch, quantity: str, attributions: Float[Tensor, "B ..."]) -> Float[Tensor, " B"]:
    """Return |Σ a − (f(x) − f(0))|, the difference between the sum of attributions and the change that it should equal."""
    change = batch.effects()[quantity]
    return (attributions.flatten(start_dim=1).sum(dim=1, dtype=torch.float64) - change).abs()


Prepare = Callable[[Records], Inputs | Tensor]
"""A function from stored records to inputs of a module, on its device."""


class TorchModel:
    """A torch module in eval mode, with frozen parameters.

    `batch` is the number of records in memory at once. Without `prepare`, records are already the module's inputs.
    """

    def __init__(
        self, module: nn.Module, batch: int, prepare: Prepare | None = None, masks: Masks | None = None
    ) -> None:
        self.module = module.eval().requires_grad_(False)
        self._batch = batch
        self._prepare = prepare or self._as_stored
        self._masks = masks
        self._members: tuple[TrainedOn, Members] | None = None

    def inputs(self, records: Records) -> Inputs | Tensor:
        """Return records as inputs of the module, on its device."""
        return self._prepare(records)

    def _as_stored(self, records: Records) -> Tensor:
        device = next((parameter.device for parameter in self.module.parameters()), None)
        return torch.from_numpy(records.values).to(device)

    @torch.no_grad()
    def logits(self, records: Records) -> Float[np.ndarray, "n C"]:
        """Return the logits, computed batch by batch. They are equal, bit for bit, to those of a pass that also explains."""
        inputs = self.inputs(records)

        def all_logits(size: int) -> Tensor:
            parts = [self.module(inputs[start : start + size]) for start in range(0, len(records), size)]
            return torch.cat(parts)

        with FastPass():
            logits = AdaptiveBatchSize(self._batch)(all_logits)
        return real_array(logits, type(self.module).__name__)

    def attributions(
        self, records: Records, request: ExplanationRequest
    ) -> dict[Attribution, Float[np.ndarray, "n ..."]]:
        """Return attributions of all records in one batch, with a separate pass for each explainer."""
        inputs = self.inputs(records)[0 : len(records)]
        attributed = self.attributions_at(inputs, records.labels, records.numbers, request)
        return {key: attributions.cpu().numpy() for key, attributions in attributed.items()}

    def attributions_at(
        self,
        inputs: Float[Tensor, "n ..."],
        labels: Int[np.ndarray, " n"],
        numbers: Int[np.ndarray, " n"],
        request: ExplanationRequest,
    ) -> dict[Attribution, Float[Tensor, "n ..."]]:
        """Return attributions at inputs of the module, on its device; random draws are keyed by the records' numbers."""
        truth = torch.from_numpy(labels.astype(np.int64)).to(inputs.device)
        members = self._training_records(request.trained_on)
        by_name: dict[Attribution, Tensor] = {}
        for name in request.explainers:
            member = explainers[name]
            batch = explained_batch(
                self.module,
                inputs,
                truth,
                records=numbers.tolist(),
                options=request.options,
                seed=request.seed,
                gradients=member.family == GRADIENT,
                members=members,
                number=request.model,
            )
            for quantity, attributions in member.attribute(batch, request.options).items():
                by_name[Attribution(name, quantity)] = attributions
        return by_name

    def summaries(self, records: Records, request: ExplanationRequest, outputs: bool) -> Summaries:
        """Return summaries of attributions and of outputs, from a single pass for all explainers of a family."""
        members = self._training_records(request.trained_on)
        inputs = self.inputs(records)
        return module_summaries(
            self.module,
            inputs,
            records.labels,
            numbers=records.numbers,
            request=request,
            outputs=outputs,
            batch=self._batch,
            members=members,
        )

    def save(self, folder: Path) -> None:
        """Write the weights and, if there are any, the masks of the noise."""
        save_weights(self.module, folder / WEIGHTS)
        if self._masks is not None:
            save_masks(self._masks, folder / MASKS)

    def _training_records(self, trained_on: TrainedOn | None) -> Members | None:
        """Return the model's training records with the classes that the model predicts for them, computed once."""
        if trained_on is None:
            return None
        if self._members is None or self._members[0] is not trained_on:
            inputs = self.inputs(trained_on.records)
            members = Members(self.module, inputs, trained_on.members, trained_on.shadow, persons=trained_on.persons)
            self._members = trained_on, members
        return self._members[1]


class TrainedTorchModel(TorchModel):
    """A torch module that was trained here."""

    def __init__(
        self,
        module: nn.Module,
        batch: int,
        prepare: Prepare,
        masks: Masks | None,
        report: TrainingReport,
        own: tuple[Mapping[str, Tensor], tuple[Path, Mapping[str, Tensor]]] | None = None,
    ) -> None:
        super().__init__(module, batch, prepare, masks)
        self.report = report
        self._own = own

    def save(self, folder: Path) -> None:
        """Write the masks, and all weights or only the model's own beside its start."""
        super().save(folder)
        if self._own is not None:
            write_weights(self._own[0], folder / WEIGHTS, AUDIT_ONLY, self._own[1])


class ReleasedTorchModel(TorchModel):
    """A torch module that was trained for release, the terms and the number of steps of its training, and its ε."""

    def __init__(self, released: Released, batch: int, prepare: Prepare) -> None:
        super().__init__(released.model, batch, prepare)
        self.terms = released.terms, released.steps
        self.epsilon = released.epsilon


class TorchLearner:
    """Trains and opens the models of an architecture.json.

    A pool's inputs are prepared once and kept for all models that are trained or queried on it.
    """

    def __init__(self, architecture: Mapping[str, Any], compute: Compute) -> None:
        check_architecture(architecture)
        self.architecture = architecture
        self.device = device_for(compute.threads, compute.device)
        self._batch = batch_for(architecture, compute.micro_batch, self.device)
        self.environment = {
            "torch": torch.__version__,
            "device": self.device,
            "threads": compute.threads,
            "batch": compute.micro_batch,
        }
        self._prepared: list[tuple[Records, Inputs]] = []
        self._features = Features()
        self._start: tuple[Path, tuple[dict[str, Tensor], str]] | None = None

    @classmethod
    def describe(cls, section: ModelSection, pool: Mapping[str, Any]) -> dict[str, Any]:
        """Build the model once on the pool's shape and return the metadata that rebuild it; see `models.describe`."""
        metadata = describe(section.name, section.model, section.parameters, tuple(pool["shape"]), len(pool["classes"]))
        if section.pretrained not in ("none", "public") and pool["kind"] == "image":
            metadata["normalisation"] = own_normalisation(metadata["model"], metadata["input_shape"][0])
        return metadata | ({"code": dict(section.code)} if section.code else {})

    def train(self, task: TrainingTask) -> TorchModel:
        """Train a model by the built-in loop."""
        public, start = self._start_weights(task.start) if task.start else (None, "")
        recipe = Recipe(
            architecture=self.architecture,
            public=public,
            mechanism=task.mechanism,
            training=task.training,
            epsilon=task.epsilon,
            micro_batch=self._batch,
            key=task.key or (),
            public_records=self._inputs_and_labels(task.public) if task.public else None,
            features=self._features,
            start=start,
        )
        inputs, labels = self._inputs_and_labels(task.records)
        if task.key is None:
            released = train_released(
                recipe, inputs, labels, members=task.members, checkpoint=task.checkpoint, persons=task.records.persons
            )
            return ReleasedTorchModel(released, self._batch, self._inputs)
        trained = train_shadow(
            recipe,
            task.shadow,
            inputs,
            labels=labels,
            members=task.members,
            progress=task.progress,
            checkpoint=task.checkpoint,
            persons=task.records.persons,
        )
        own = (trained.own, (task.start, recipe.public)) if trained.own and task.start and recipe.public else None
        return TrainedTorchModel(
            module=trained.model, batch=self._batch, prepare=self._inputs, masks=trained.masks, report=trained, own=own
        )

    def load(self, folder: Path) -> TorchModel:
        """Open the weights in a folder."""
        module = load(self.architecture, folder / WEIGHTS).to(self.device)
        return TorchModel(module, self._batch, self._inputs)

    def untrained(self) -> TorchModel:
        """Return a model with random weights."""
        return TorchModel(construct(self.architecture, seed=0).to(self.device), self._batch, self._inputs)

    def adopt(self, path: Path, folder: Path) -> None:
        """Write the weights from a .safetensors or .pth file, or from the folder of a shadow model, into a folder."""
        write_weights(read_tensors(path / WEIGHTS if path.is_dir() else path, "model"), folder / WEIGHTS)

    def _inputs(self, records: Records) -> Inputs:
        for known, inputs in self._prepared:
            if known is records:
                return inputs
        metadata = taken_by(self.architecture, records.metadata)
        inputs = Inputs(records.values, metadata, self.architecture["input_shape"], self.device)
        # keep the inputs of two: a pool's records and its public records
        self._prepared = [*self._prepared[-1:], (records, inputs)]
        return inputs

    def _inputs_and_labels(self, records: Records) -> tuple[Inputs, Tensor]:
        return self._inputs(records), torch.tensor(records.labels, dtype=torch.long, device=self.device)

    def _start_weights(self, path: Path) -> tuple[dict[str, Tensor], str]:
        if self._start is None or self._start[0] != path:
            self._start = path, (read_start(self.architecture, path), identity_of(path))
        return self._start[1]
