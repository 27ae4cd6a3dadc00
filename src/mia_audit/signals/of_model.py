"""Signals of one model in memory, for a notebook: a torch module, or a fitted estimator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from mia_audit.errors import UserError
from mia_audit.explain.catalogue import explainers as known_explainers
from mia_audit.explain.section import Explainers
from mia_audit.learners import Compute, Records, TrainedModel
from mia_audit.learners.naming import BUILT_IN, Outputs
from mia_audit.signals.compute import Task, model_signals
from mia_audit.signals.families import families

if TYPE_CHECKING:
    import polars as pl


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
    `options` are those of a config's section `explainers` (docs/explainers.md). Raises UserError for an unknown
    explainer or option, for explainers that need training records, and for an output that is not finite.
    """
    import polars as pl
    from pydantic import ValidationError

    try:
        section = Explainers(methods=tuple(explainers), **options)
    except ValidationError as error:
        raise UserError(f"signals: {error.errors()[0]['msg'].removeprefix('Value error, ')}") from None
    if fitted := [name for name in section.methods if known_explainers[name].needs_training_records]:
        raise UserError(
            f"signals: {fitted[0]} is fitted to training records, which only an audit provides; leave it out"
        )
    rows = _array(records)
    truth = _array(labels).astype(np.int64)
    if rows.ndim < 2 or truth.shape != rows.shape[:1]:
        raise UserError(
            f"signals: records of shape {list(rows.shape)} and labels of shape {list(truth.shape)}; expected [n, …] and [n]"
        )
    trained, learner, classes = _trained(model, batch, int(truth.max(initial=0)) + 1)
    pool = Records(rows, truth, {"classes": list(range(classes))}, np.arange(len(rows)))
    columns: dict[str, np.ndarray] = {}
    for family, asked in families(section, "", learner).items():
        columns |= model_signals(trained, pool, Task(family, asked, seed, batch))
    wanted = ("label", "predicted", "loss", "confidence", *section.methods)
    return pl.DataFrame({name: values for name, values in columns.items() if name.startswith(wanted)})


def _array(values: Any) -> np.ndarray:
    detached = getattr(values, "detach", None)
    return np.asarray(detached().cpu() if detached else values)


def _trained(model: Any, batch: int, classes: int) -> tuple[TrainedModel, str, int]:
    """Return the model in the form that an audit queries, the learner of such models, and the number of classes."""
    from mia_audit.learners.kinds.estimator import EstimatorModel, is_estimator

    if is_estimator(model):
        known = np.asarray(getattr(model, "classes_", np.arange(classes)))
        outputs: Outputs = "probabilities" if hasattr(model, "predict_proba") else "logits"
        asked = EstimatorModel(model, outputs, 0, Compute(batch=batch), f"signals: {type(model).__name__}")
        return asked, "estimator", max(classes, int(known.max()) + 1)
    from copy import deepcopy

    from torch import nn

    from mia_audit.learners.kinds.torch_module import TorchModel

    if not isinstance(model, nn.Module):
        raise UserError(f"signals: a {type(model).__name__}; expected a torch module or a fitted estimator")
    return TorchModel(deepcopy(model), batch), BUILT_IN, classes
