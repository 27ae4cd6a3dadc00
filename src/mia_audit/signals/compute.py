"""Signals: a few scalars per model and record, from the model's outputs and from explanations of them. Nothing here imports torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from mia_audit.errors import UserError
from mia_audit.explain.catalogue import GRADIENT, explainers, needs_module
from mia_audit.learners import (
    Attribution,
    ExplainedModel,
    ExplanationRequest,
    Records,
    Summaries,
    SummarisingModel,
    TorchBackedModel,
    TrainedModel,
    TrainedOn,
)
from mia_audit.signals.families import columns
from mia_audit.signals.name import stem
from mia_audit.training import outputs

if TYPE_CHECKING:
    from jaxtyping import Float


@dataclass(frozen=True)
class Task:
    """A request for one family's signals: its options (from `signals.families`), the audit's seed, and the number of records in memory at once."""

    family: str
    options: Mapping[str, Any]
    seed: int
    batch: int = 256
    model: int | None = None
    """The model's number, which keys random draws."""


def model_signals(
    model: TrainedModel, records: Records, task: Task, trained_on: TrainedOn | None = None
) -> dict[str, np.ndarray]:
    """Return a family's columns for one model, [N] each: label and predicted int32, the others float32.

    Explainers that are fitted to training records need the model's training set in `trained_on`. A model that computes
    no attributions has only signals of its outputs. Raises UserError if an output is not finite, or if none of the
    explainers of a family without signals of outputs can explain the model.
    """
    answered = explainers_of(model, task)
    request = ExplanationRequest(answered, task.options, task.seed, trained_on, task.model)
    with_outputs = task.family == GRADIENT
    if isinstance(model, SummarisingModel):
        summaries = model.summaries(records, request, with_outputs)
    else:
        summaries = summaries_of(model, records, request, with_outputs, task.batch)
    explained_class = task.options["explained_class"]
    values = {"label": records.labels.astype(np.int32), **summaries.outputs}
    for (attribution, summary), numbers in summaries.explanations.items():
        values[f"{stem(*attribution, explained_class)}_{summary}"] = numbers
    names = columns(task.family, {**task.options, "explainers": answered})
    return {name: values[name] for name in names if name in values}


def explainers_of(model: TrainedModel, task: Task) -> list[str]:
    """Return which of the family's explainers can explain the model."""
    names: Sequence[str] = task.options["explainers"]
    if isinstance(model, TorchBackedModel):
        return list(names)
    answered = [name for name in names if isinstance(model, ExplainedModel) and not explainers[name].needs_torch_module]
    if not answered and task.family != GRADIENT:
        raise needs_module(names[0])
    return answered


def summaries_of(
    model: TrainedModel, records: Records, request: ExplanationRequest, with_outputs: bool, batch: int
) -> Summaries:
    """Return summaries of attributions, batch by batch, and the signals of outputs if requested.

    The outputs of all records are requested at once, because every query of some models is expensive; models bound
    their own memory.
    """
    scalars = _outputs(model, records, request.options) if with_outputs else {}
    parts: list[dict[tuple[Attribution, str], np.ndarray]] = []
    if request.explainers:
        assert isinstance(model, ExplainedModel)
        starts = range(0, len(records), batch)
        parts = [_explanations(model, records[start : start + batch], request) for start in starts]
    keys = parts[0] if parts else ()
    return Summaries(scalars, {key: np.concatenate([part[key] for part in parts]) for key in keys})


def _outputs(model: TrainedModel, records: Records, options: Mapping[str, Any]) -> dict[str, np.ndarray]:
    logits = model.logits(records)
    if not (finite := np.isfinite(logits).all(axis=1)).all():
        raise UserError(f"the model's output for record {records.numbers[finite.argmin()]} is not finite")
    return {
        "predicted": logits.argmax(axis=1).astype(np.int32),
        "loss": outputs.loss(logits, records.labels).astype(np.float32),
        "confidence": outputs.confidence(logits, records.labels).astype(np.float32),
        **{
            name: outputs.loss(logits / temperature, records.labels).astype(np.float32)
            for name, temperature in outputs.losses_at(options).items()
        },
    }


def _explanations(
    model: ExplainedModel, records: Records, request: ExplanationRequest
) -> dict[tuple[Attribution, str], np.ndarray]:
    answers = model.attributions(records, request)
    if missing := set(request.explainers) - {attribution.explainer for attribution in answers}:
        raise UserError(f"the model returned no attributions of explainer '{min(missing)}', which was requested")
    return {
        (attribution, summary): numbers.astype(np.float32)
        for attribution, attributions in answers.items()
        for summary, numbers in summarise(attributions).items()
    }


def summarise(attributions: Float[np.ndarray, "n ..."]) -> dict[str, Float[np.ndarray, " n"]]:
    """Reduce every record's attributions to variance, L1, L2 and L∞, in float64, as `explain.summaries` does on a device."""
    flat = attributions.reshape(len(attributions), -1).astype(np.float64)
    sizes = np.abs(flat)
    return {
        "variance": flat.var(axis=1),
        "l1": sizes.sum(axis=1),
        "l2": np.sqrt(np.square(flat).sum(axis=1)),
        "linf": sizes.max(axis=1),
    }
