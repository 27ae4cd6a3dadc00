"""Signals of a torch module in one pass: loss, confidence and summaries of attributions, reduced on the module's device."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from mia_audit.errors import UserError
from mia_audit.explain.batch import Batch, explained_batch
from mia_audit.explain.catalogue import GRADIENT, explainers
from mia_audit.explain.summaries import summarise
from mia_audit.learners.protocol import Attribution, ExplanationRequest, Summaries
from mia_audit.runtime.memory import AdaptiveBatchSize
from mia_audit.runtime.precision import computing
from mia_audit.training.outputs import losses_at

if TYPE_CHECKING:
    from mia_audit.explain.training_records import Members
    from mia_audit.models import Inputs


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
    shared = shares_pass(request)
    batch = explained_batch(
        module, inputs[rows], truth, records, request.options, request.seed, shared, members, request.model
    )
    finite = batch.logits.isfinite().all(dim=1)
    if not finite.all():
        raise UserError(
            f"the model's output for record {records[int(finite.long().argmin())]} is not finite: the training diverged; lower the learning rate"
        )
    scalars = _outputs(batch, truth, request.options) if outputs else {}
    explanations = {key: values.float() for key, values in _explanations(batch, request)}
    return len(records), Summaries(  # copy to the host only at the end, so that the process waits for the GPU only once
        {name: values.cpu().numpy() for name, values in scalars.items()},
        {key: values.cpu().numpy() for key, values in explanations.items()},
    )


def shares_pass(request: ExplanationRequest) -> bool:
    """Return whether explanations need the gradients of the pass that computes the logits."""
    return any(explainers[name].family == GRADIENT for name in request.explainers)


def _outputs(batch: Batch, labels: Tensor, options: Mapping[str, Any]) -> Mapping[str, Tensor]:
    return {
        "predicted": batch.logits.argmax(dim=1).int(),
        "loss": loss(batch.logits, labels).float(),
        "confidence": confidence(batch.logits, labels).float(),
        **{name: loss(batch.logits / temperature, labels).float() for name, temperature in losses_at(options).items()},
    }


def _explanations(batch: Batch, request: ExplanationRequest) -> Iterator[tuple[tuple[Attribution, str], Tensor]]:
    for name in request.explainers:
        for quantity, attributions in explainers[name].attribute(batch, request.options).items():
            key = Attribution(name, quantity)
            for summary, values in summarise(attributions).items():
                yield (key, summary), values
            if explainers[name].complete:
                yield (key, "completeness"), completeness_error(batch, quantity, attributions)


def completeness_error(batch: Batch, quantity: str, attributions: Float[Tensor, "B ..."]) -> Float[Tensor, " B"]:
    """Return |Σ a − (f(x) − f(0))|, the difference between the sum of attributions and the change that it should equal."""
    change = batch.effects()[quantity]
    return (attributions.flatten(start_dim=1).sum(dim=1, dtype=torch.float64) - change).abs()
