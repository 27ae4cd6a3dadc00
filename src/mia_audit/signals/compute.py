"""Signals: a few scalars per model and record, from the model's outputs and from explanations of them. Nothing here imports torch.

Membership in an explanation set is attacked at neighbours: a record's own explanation does not depend on whether the
record is in the set, because its term vanishes at x = z. So the attacker queries the explanation at the record's nearest
neighbour, and measures how well this explanation fits the record.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from mia_audit.arrays import check_logits, class_numbers, real_array, row_ids
from mia_audit.errors import UserError
from mia_audit.explain.catalogue import GRADIENT, Explainers, explainers, needs_module
from mia_audit.explain.catalogue import explainers as known_explainers
from mia_audit.explain.private_local.records import ExplanationSet, largest
from mia_audit.explain.private_local.solver import minimum, private_minima
from mia_audit.explain.vectors import vectors
from mia_audit.learners.answers import SURE
from mia_audit.learners.naming import BUILT_IN, Outputs
from mia_audit.learners.protocol import (
    Attribution,
    Compute,
    ExplainedModel,
    ExplanationRequest,
    Summaries,
    SummarisingModel,
    TorchBackedModel,
    TrainedModel,
    TrainedOn,
    released,
)
from mia_audit.signals.families import columns, families
from mia_audit.signals.name import FIT_ERROR, PROBED, SHARES, VECTOR, stem
from mia_audit.training import task
from mia_audit.training.task import Records

if TYPE_CHECKING:
    import polars as pl
    from jaxtyping import Bool, Float, Int

    from mia_audit.explain.private_local.terms import ExplanationTerms


@dataclass(frozen=True)
class SignalsTask:
    """A request for one family's signals: its options (from `signals.families`), the audit's seed, and the number of records in memory at once."""

    family: str
    options: Mapping[str, Any]
    seed: int
    batch: int = 256
    model: int | None = None
    """The model's number, which keys random draws."""


def model_signals(
    model: TrainedModel, records: Records, task: SignalsTask, trained_on: TrainedOn | None = None
) -> dict[str, np.ndarray]:
    """Return a family's columns for one model, [N] each: label and predicted int32, vectors float16 [N, m], the others float32.

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
    if "probes" in task.options:
        values |= probed(model, records, task)
    names = columns(task.family, {**task.options, "explainers": answered})
    return {name: values[name] for name in names if name in values}


def probed(model: TrainedModel, records: Records, task: SignalsTask) -> dict[str, np.ndarray]:
    """Return the signals from measures that query a torch module again, float32 [N] each, computed batch by batch.

    Of curves of deletion and insertion these are the mean height and the heights at `SHARES`, of the logit-scaled
    confidence in the class explained.
    """
    from mia_audit.explanation_metrics import study

    assert isinstance(model, TorchBackedModel)
    shape = tuple(model.inputs(records[:1])[0:1].shape[1:])
    explaining = task.options
    names, measures, measuring = (explaining[name] for name in ("probed", "probes", "measuring"))
    wanted = study.MetricsTask(
        explainers=names,
        explaining=explaining,
        measures=measures,
        measuring=measuring,
        seed=task.seed,
        batch=task.batch,
        shape=shape,
        model=task.model,
        confidence=True,
    )
    parts: dict[str, list[np.ndarray]] = {}
    for start in range(0, len(records), task.batch):
        for key, one in study.explained(model, records[start : start + task.batch], wanted).items():
            for measure, values in one.probed.items():
                numbers = [values]
                if measure in one.curves:
                    steps = np.linspace(0, 100, values.shape[1])
                    at = [np.array([np.interp(share, steps, heights) for heights in values]) for share in SHARES]
                    numbers = [study.below(values), *at]
                for name, column in zip(PROBED[measure], numbers, strict=True):
                    parts.setdefault(f"{stem(*key, task.options['explained_class'])}_{name}", []).append(column)
    return {name: np.concatenate(columns).astype(np.float32) for name, columns in parts.items()}


def explainers_of(model: TrainedModel, task: SignalsTask) -> list[str]:
    """Return which of the family's explainers can explain the model."""
    names: Sequence[str] = task.options["explainers"]
    if isinstance(model, TorchBackedModel):
        return list(names)
    answered = [name for name in names if isinstance(model, ExplainedModel) and not explainers[name].needs_torch_module]
    if missing := [name for name in task.options.get("required", []) if name not in answered]:
        raise needs_module(missing[0])
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
    scalars = _outputs(model, records) if with_outputs else {}
    parts: list[dict[tuple[Attribution, str], np.ndarray]] = []
    if request.explainers:
        assert isinstance(model, ExplainedModel)
        starts = range(0, len(records), batch)
        parts = [_explanations(model, records[start : start + batch], request) for start in starts]
    keys = parts[0] if parts else ()
    return Summaries(scalars, {key: np.concatenate([part[key] for part in parts]) for key in keys})


def _outputs(model: TrainedModel, records: Records) -> dict[str, np.ndarray]:
    logits = model.logits(records)
    if not (finite := np.isfinite(logits).all(axis=1)).all():
        raise UserError(f"the model's output for record {records.numbers[finite.argmin()]} is not finite")
    return {
        "predicted": logits.argmax(axis=1).astype(np.int32),
        "loss": task.loss(logits, records.labels).astype(np.float32),
        "confidence": task.confidence(logits, records.labels).astype(np.float32),
    }


def _explanations(
    model: ExplainedModel, records: Records, request: ExplanationRequest
) -> dict[tuple[Attribution, str], np.ndarray]:
    answers = model.attributions(records, request)
    if missing := set(request.explainers) - {attribution.explainer for attribution in answers}:
        raise UserError(f"the model returned no attributions of explainer '{min(missing)}', which was requested")
    answers = released(answers, request, records.numbers.tolist())
    scalars = {
        (attribution, summary): numbers.astype(np.float32)
        for attribution, attributions in answers.items()
        for summary, numbers in summarise(attributions).items()
    }
    if not request.options.get("vectors"):
        return scalars
    return scalars | {(key, VECTOR): vectors(each, request.options, request.seed) for key, each in answers.items()}


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


def signals(
    model: Any,
    records: Any,
    labels: Any,
    explainers: Sequence[str] = ("ixg",),
    *,
    seed: int = 0,
    batch: int = 256,
    **options: Any,
) -> pl.DataFrame:
    """Return a row per record: label, prediction, loss, confidence, and summaries of the explanations of a model.

    `model` is a torch module, which is copied and put in eval mode, or a fitted estimator with scikit-learn's
    interface. `records` are its inputs, [n, …], and `labels` their classes, numbered from 0. `explainers` and the other
    `options` are those of a config's section `explainers` (docs/methods/explainers.md). Raises UserError for an unknown
    explainer or option, for explainers that need training records, and for an output that is not finite.
    """
    import polars as pl
    from pydantic import ValidationError

    try:
        section = Explainers(methods=tuple(explainers), **options)
    except ValidationError as error:
        raise UserError(f"signals: {error.errors()[0]['msg'].removeprefix('Value error, ')}") from None
    if fitted := [name for name in section.methods if known_explainers[name].needs_training_records]:
        raise UserError(f"signals: {fitted[0]} is fitted to training records, which only audits provide; leave it out")
    rows = real_array(records, "signals: records")
    truth = class_numbers(labels, "signals: labels")
    if rows.ndim < 2 or truth.shape != rows.shape[:1]:
        raise UserError(
            f"signals: records of shape {list(rows.shape)} and labels of shape {list(truth.shape)}; expected [n, …] and [n]"
        )
    if (index := row_ids(records)) is not None and (named := row_ids(labels)) is not None and (index != named).any():
        row = int(np.argmax(index != named))
        raise UserError(
            f"signals: labels: record '{named[row]}' in row {row} where records have '{index[row]}'; expected the same"
            " records in the same order"
        )
    trained, learner, classes = _trained(model, batch, rows, truth)
    pool = Records(rows, truth, {"classes": list(range(classes))}, np.arange(len(rows)))
    columns: dict[str, np.ndarray] = {}
    for family, asked in families(section, "", learner).items():
        columns |= model_signals(trained, pool, SignalsTask(family, asked, seed, batch))
    wanted = ("label", "predicted", "loss", "confidence", *section.methods)
    return pl.DataFrame({name: values for name, values in columns.items() if name.startswith(wanted)})


def _trained(model: Any, batch: int, rows: np.ndarray, labels: np.ndarray) -> tuple[TrainedModel, str, int]:
    """Return the model in the form that an audit queries, the learner of such models, and the number of classes."""
    from mia_audit.learners.estimators import EstimatorModel, is_estimator

    where = f"signals: {type(model).__name__}"
    if is_estimator(model):
        found = int(labels.max(initial=0)) + 1
        known = class_numbers(np.asarray(getattr(model, "classes_", np.arange(found))), f"{where}: classes_")
        outputs: Outputs = "probabilities" if hasattr(model, "predict_proba") else "logits"
        asked = EstimatorModel(model, outputs, 0, Compute(micro_batch=batch), where)
        return asked, "estimator", max(found, int(known.max()) + 1)
    from copy import deepcopy

    from torch import nn

    from mia_audit.learners.torch_module import TorchModel
    from mia_audit.models.answers import answered, in_full_precision, unwrapped

    if not isinstance(model, nn.Module):
        raise UserError(f"signals: a {type(model).__name__}; expected a torch module or a fitted estimator")
    trained = TorchModel(in_full_precision(deepcopy(unwrapped(model))), batch)
    few = Records(rows[:SURE], labels[:SURE], {}, np.arange(len(rows[:SURE])))
    logits = answered(trained.module, trained.inputs(few)[0 : len(few)], where)
    if len(few) >= SURE:
        check_logits(real_array(logits, where), where)
    class_numbers(labels, "signals: labels", logits.shape[1])
    return trained, BUILT_IN, logits.shape[1]


ROWS = 1024
"""Number of records whose distances to all others are in memory at once."""
STEM = "local_linear"


def neighbours(points: Float[np.ndarray, "N n"]) -> Int[np.ndarray, " N"]:
    """Return every point's nearest other point."""
    squares = np.square(points).sum(axis=1)
    nearest = []
    for first in range(0, len(points), ROWS):
        distance = squares - 2 * points[first : first + ROWS] @ points.T
        np.fill_diagonal(distance[:, first:], np.inf)
        nearest.append(distance.argmin(axis=1))
    return np.concatenate(nearest)


def membership_signals(
    explained: ExplanationSet,
    member: Bool[np.ndarray, " N"],
    asked: Int[np.ndarray, " N"],
    terms: ExplanationTerms,
    noisy: bool,
    key: tuple[int | str, ...],
) -> dict[str, Float[np.ndarray, " N"]]:
    """Explain record `asked[i]` only from the members, for every record i, and return the signals of each.

    `fit_error` is |φᵀ(x_i − z) − (f(x_i) − f(z))|, the error at record i of the explanation φ of record z = `asked[i]`.
    The summaries of φ are those of any attribution. Without `noisy` the exact minimum is computed; with `noisy`, each
    explanation has independent noise, keyed by `key` and its record.
    """
    inside = explained.among(member)
    queries, which = np.unique(asked, return_inverse=True)
    points = explained.points(np.asarray(explained.records))
    values = explained.values
    classes = largest(values)
    kinds = classes[queries]
    problems = list(inside.problems(points[queries], values[queries, kinds], kinds, terms))
    if noisy:
        own = (*key, repr(terms), hashlib.sha256(member.tobytes() + inside.whose).hexdigest())
        explanations = private_minima(problems, terms, [(*own, int(query)) for query in queries])
    else:
        explanations = np.stack([minimum(problem) for problem in problems])
    phi = explanations[which]
    predicted = np.einsum("in,in->i", phi, points - points[asked])
    true = values[np.arange(len(values)), classes[asked]] - values[asked, classes[asked]]
    return {FIT_ERROR: np.abs(predicted - true)} | {f"{STEM}_{name}": one for name, one in summarise(phi).items()}
