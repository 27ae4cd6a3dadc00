"""Compute attributions for models without gradients from their outputs for rows of records."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from mia_audit.errors import UserError
from mia_audit.explain.catalogue import explainers, needs_module
from mia_audit.explain.shapley import Box
from mia_audit.learners.protocol import Attribution, ExplanationRequest
from mia_audit.training.task import Records

if TYPE_CHECKING:
    from jaxtyping import Float


def boxed_attributions(
    ask: Callable[[Records], Float[np.ndarray, "n C"]],
    records: Records,
    request: ExplanationRequest,
    names: Iterable[str],
    estimator: Any = None,
    prepare: Callable[[np.ndarray], np.ndarray] = lambda rows: rows,
) -> dict[Attribution, Float[np.ndarray, "n d"]]:
    """Return the attributions of explainers that need only a model's outputs, or its fitted estimator.

    `prepare` converts rows in the pool's form to rows for an estimator. Raises UserError if an explainer supports none
    of the requested quantities.
    """
    shape = records.values.shape[1:]

    def flat(values: np.ndarray) -> np.ndarray:
        return np.ascontiguousarray(values).reshape(len(values), -1)

    def logits(rows: np.ndarray) -> np.ndarray:
        values = rows.reshape(len(rows), *shape).astype(records.values.dtype)
        zeros = np.zeros(len(rows), dtype=np.int64)
        return ask(Records(values, zeros, records.metadata, np.arange(len(rows))))

    def members() -> np.ndarray:
        assert request.trained_on is not None
        inside = np.flatnonzero(request.trained_on.members)
        return convert(flat(request.trained_on.records.values[inside]))

    convert = prepare if estimator is not None else lambda rows: rows
    true_class = request.options["explained_class"] == "true"
    classes = records.labels if true_class else ask(records).argmax(axis=1)
    known = getattr(estimator, "classes_", None)
    key = (request.seed, "shap", *(() if request.model is None else (request.model,)))
    box = Box(convert(flat(records.values)), np.asarray(classes), logits, members, key, estimator, known)
    attributions: dict[Attribution, np.ndarray] = {}
    for name in names:
        member = explainers[name]
        if member.of_box is None:
            raise needs_module(name)
        answers = member.of_box(box, request.options)
        wanted = {quantity: values for quantity, values in answers.items() if quantity in request.options["explain"]}
        if not wanted:
            raise UserError(
                f"explainers.explain: {name} explains only the {' and the '.join(answers)} of this model; add this quantity, or leave {name} out"
            )
        attributions |= {Attribution(name, quantity): values for quantity, values in wanted.items()}
    return attributions
