"""Signals: a few scalars per model and record, from the model's outputs and from explanations of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from mia_audit.compute.memory import Halving
from mia_audit.compute.precision import computing
from mia_audit.errors import UserError
from mia_audit.explain.batch import Batch, explained_batch
from mia_audit.explain.catalogue import GRADIENT, explainers
from mia_audit.explain.families import columns, signal_stem
from mia_audit.explain.summaries import summarise
from mia_audit.models import Inputs

if TYPE_CHECKING:
    from mia_audit.explain.members import Members


@dataclass(frozen=True)
class Task:
    """One family's signals: its options (those of `explain.families`), the audit's seed and the records per batch."""

    family: str
    options: Mapping[str, Any]
    seed: int
    batch: int


def loss(logits: Float[Tensor, "B C"], labels: Int[Tensor, " B"]) -> Float[Tensor, " B"]:
    """Cross-entropy, logsumexp(z) − z_y, in float64.

    Formed as log(1 + exp(−confidence)), which is the same: the difference would leave nothing but ties of a loss below 1e-15.
    """
    negative = -confidence(logits, labels)
    return negative.logaddexp(torch.zeros_like(negative))


def confidence(logits: Float[Tensor, "B C"], labels: Int[Tensor, " B"]) -> Float[Tensor, " B"]:
    """Logit-scaled confidence, z_y − logsumexp of the other logits (Carlini et al. 2022), in float64.

    Straight from the logits: by way of the softmax, (120, 0, 0) would give 103.6 where 119.3 is right.
    """
    logits = logits.double()
    others = logits.scatter(1, labels[:, None], -torch.inf).logsumexp(dim=1)
    return logits.gather(1, labels[:, None])[:, 0] - others


def model_signals(
    model: nn.Module,
    inputs: Inputs | Float[Tensor, "N ..."],
    labels: Int[np.ndarray, " N"],
    task: Task,
    members: Members | None = None,
) -> dict[str, np.ndarray]:
    """Return a family's columns for one model, [N] each: label and predicted int32, the rest float32.

    `model` is in eval mode with frozen parameters and on the device of `inputs`, which are the pool's and read a batch at a
    time, halved where memory runs out; explainers of_members need the model's `members`. Raises UserError where an output is
    not finite.
    """
    with computing(model, task.options.get("precision", "float32")):
        parts = list(_batches(model, inputs, labels, task, members))
    return {name: np.concatenate([part[name] for part in parts]) for name in columns(task.family, task.options)}


def _batches(
    model: nn.Module, inputs: Inputs | Tensor, labels: np.ndarray, task: Task, members: Members | None
) -> Iterator[dict[str, np.ndarray]]:
    at_once = Halving(task.batch)
    start = 0
    while start < len(labels):
        part = at_once(partial(_part, model, inputs, labels, task, members, start))
        start += len(next(iter(part.values())))
        yield part


def _part(
    model: nn.Module,
    inputs: Inputs | Tensor,
    labels: np.ndarray,
    task: Task,
    members: Members | None,
    start: int,
    size: int,
) -> dict[str, np.ndarray]:
    numbers = range(start, min(start + size, len(labels)))
    records = inputs[start : numbers.stop]
    truth = torch.from_numpy(labels[start : numbers.stop].astype(np.int64)).to(inputs.device)
    gradients = task.family == GRADIENT
    batch = explained_batch(model, records, truth, numbers, task.options, task.seed, gradients, members)
    finite = batch.logits.isfinite().all(dim=1)
    if not finite.all():
        raise UserError(
            f"the model's output for record {numbers[int(finite.long().argmin())]} is not finite: training diverged;"
            " lower its learning rate"
        )
    return _signals(batch, truth, task)


def _signals(batch: Batch, labels: Tensor, task: Task) -> dict[str, np.ndarray]:
    signals: dict[str, Tensor] = {}
    if task.family == GRADIENT:
        signals |= {"label": labels.int(), "predicted": batch.logits.argmax(dim=1).int()}
        signals |= {"loss": loss(batch.logits, labels).float(), "confidence": confidence(batch.logits, labels).float()}
    for name in task.options["explainers"]:
        for quantity, attributions in explainers[name].attribute(batch, task.options).items():
            stem = signal_stem(name, quantity, task.options["explained_class"])
            scalars = summarise(attributions)
            if explainers[name].complete:
                scalars["completeness"] = completeness_error(batch, quantity, attributions)
            signals |= {f"{stem}_{summary}": values.float() for summary, values in scalars.items()}
    return {name: values.cpu().numpy() for name, values in signals.items()}


def completeness_error(batch: Batch, quantity: str, attributions: Float[Tensor, "B ..."]) -> Float[Tensor, " B"]:
    """|Σ a − (f(x) − f(0))|: how far attributions are from summing to what they explain."""
    with torch.no_grad():
        baseline = batch.model(torch.zeros_like(batch.inputs[:1])).expand_as(batch.logits)
    change = batch.values(batch.logits)[quantity] - batch.values(baseline)[quantity]
    return (attributions.flatten(start_dim=1).sum(dim=1, dtype=torch.float64) - change).abs()
