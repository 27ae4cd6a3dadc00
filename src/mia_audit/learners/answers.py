"""Check the outputs of foreign models, and convert them to logits.

Compute attributions for models without gradients from their outputs for rows of records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from mia_audit.arrays import check_row_order, column_names, probabilities_named, real_array
from mia_audit.errors import NotFinite, UserError, few, shown
from mia_audit.explain.catalogue import explainers, needs_module
from mia_audit.explain.shapley import Box
from mia_audit.learners.protocol import Attribution, ExplanationRequest
from mia_audit.pools.frames import FRAME, frame_of
from mia_audit.seeds import generator
from mia_audit.training.task import Records

if TYPE_CHECKING:
    from jaxtyping import Float

    from mia_audit.learners.naming import Outputs

UNKNOWN_VOTES = 1e9
"""Number of votes assumed if probabilities are not means of votes; smoothing then keeps probabilities 5e-10 away from 0 and 1."""

SURE = 8
"""Number of records whose outputs add up to 1 by chance only if they are probabilities."""

ASKED_TWICE = 8
"""Number of records that are queried a second time, in another order."""

TOLERANCE = 0.05
"""Largest difference between two outputs that rounding in any precision explains, in standard deviations of all outputs."""


def smoothed(probabilities: Float[np.ndarray, "n C"], votes: float) -> Float[np.ndarray, "n C"]:
    """Return (T·p + ½) / (T + C/2), which is never 0 or 1, for probabilities p that are means of T votes.

    This is the Krichevsky–Trofimov estimate from T votes, which adds half a vote to every class.
    """
    probabilities = probabilities.astype(np.float64)
    return np.asarray((votes * probabilities + 0.5) / (votes + probabilities.shape[1] / 2))


def logits_of(answer: object, outputs: Outputs, records: Records, votes: float, where: str) -> Float[np.ndarray, "n C"]:
    """Return logits from a model's outputs for records: the outputs themselves, or logarithms of smoothed probabilities.

    Labels count as one vote for their class. Raises UserError, which begins with `where`, for outputs of another shape
    or kind than declared, and NotFinite for numbers that are not finite.
    """
    values = real_array(answer, where)
    check_frame(answer, records, where)
    count, classes = len(records), records.classes
    if outputs == "labels":
        return np.asarray(np.log(smoothed(np.eye(classes)[_labels(values, records, where)], 1)))
    if values.shape != (count, classes):
        hint = "; if the model returns classes, set outputs: labels" if values.shape in ((count,), (count, 1)) else ""
        raise UserError(
            f"{where}: outputs of shape {list(values.shape)}; expected {[count, classes]}, one row for each of {count} records and"
            f" one number for each of {classes} classes{hint}"
        )
    if not np.issubdtype(values.dtype, np.floating):
        raise UserError(
            f"{where}: outputs of type {values.dtype}, but {outputs} must be floating-point numbers; for classes, set outputs: labels"
        )
    finite = np.isfinite(values).all(axis=1)
    if not finite.all():
        row = int(finite.argmin())
        raise NotFinite(
            f"{where}: the output for record {records.numbers[row]} is not finite, {shown(values[row])}:"
            " the training diverged, or the input has missing values",
            "returned outputs that are not finite",
        )
    if outputs == "logits" and count >= SURE and (kind := probabilities_named(values)):
        raise UserError(
            f"{where}: outputs are {kind}, such as {shown(values[0])} for record {records.numbers[0]}: they are"
            " probabilities, not logits; return the values before that, or set outputs: probabilities if predict returns them"
        )
    return values if outputs == "logits" else np.asarray(np.log(smoothed(_checked(values, records, where), votes)))


def check_frame(answer: object, records: Records, where: str) -> None:
    """Raise UserError for a frame whose index or columns name the records or the classes in another order."""
    check_row_order(answer, where)
    columns, classes = column_names(answer), [str(name) for name in records.metadata["classes"]]
    counted = columns == [str(number) for number in range(len(classes))]
    if columns != classes and set(columns) == set(classes) and not counted:
        raise UserError(f"{where}: the columns are {few(columns)}; expected the classes in their order, {few(classes)}")


def _labels(values: np.ndarray, records: Records, where: str) -> np.ndarray:
    count, classes = len(records), records.classes
    labels = values[:, 0] if values.shape == (count, 1) else values
    if labels.shape != (count,):
        raise UserError(f"{where}: labels of shape {list(values.shape)}, expected [{count}]: one class per record")
    wrong = np.flatnonzero(~((labels >= 0) & (labels < classes) & (labels == np.floor(labels))))
    if len(wrong):
        raise UserError(
            f"{where}: the label of record {records.numbers[wrong[0]]} is {labels[wrong[0]]:g}, but classes are numbered from 0"
            f" to {classes - 1}"
        )
    return labels.astype(np.int64)


def _checked(values: np.ndarray, records: Records, where: str) -> np.ndarray:
    """Return non-negative probabilities divided by their sums, which must be 1 up to rounding."""
    sums = values.astype(np.float64).sum(axis=1)
    wrong = (values < 0).any(axis=1) | (np.abs(sums - 1) > 1e-2)
    if wrong.any():
        row = int(wrong.argmax())
        raise UserError(
            f"{where}: the output for record {records.numbers[row]}, {shown(values[row])}, is not one probability per class; for"
            " scores before the softmax, set outputs: logits"
        )
    return np.asarray(values / sums[:, None])


def check_order(
    ask: Callable[[Records], Float[np.ndarray, "m C"]], records: Records, logits: Float[np.ndarray, "n C"], where: str
) -> None:
    """Query a few of the records again, in another order; UserError if an output differs by more than rounding explains.

    This detects models whose outputs come in another order, depend on the other records of a batch, or are random.
    """
    rows = generator("asked twice", len(records)).permutation(len(records))[:ASKED_TWICE]
    again = ask(records[rows])
    apart = np.abs(again - logits[rows]).max(axis=1, initial=0)
    worst = int(apart.argmax()) if len(rows) else 0
    if len(rows) and apart[worst] > TOLERANCE * logits.std() + 1e-6:
        row = rows[worst]
        raise UserError(
            f"{where}: the output for record {records.numbers[row]} is {shown(logits[row])} in a query of {len(records)} records and"
            f" {shown(again[worst])} in a query of {len(rows)} of them in another order: return outputs in the order of the"
            " records, and compute each from its own record only, without dropout or statistics of the batch"
        )


class BatchedModel:
    """A model that is queried `size` records at a time; its first outputs are compared with those in another order."""

    def __init__(self, where: str, size: int) -> None:
        self._where, self._size, self._checked = where, size, False

    def logits(self, records: Records) -> Float[np.ndarray, "n C"]:
        """Return logits, or logarithms of smoothed probabilities."""
        logits = self._asked(records)
        if not self._checked:
            check_order(self._asked, records, logits, self._where)
            self._checked = True
        return logits

    def _asked(self, records: Records) -> Float[np.ndarray, "n C"]:
        parts = [self._batch(records[start : start + self._size]) for start in range(0, len(records), self._size)]
        return np.concatenate(parts) if parts else np.zeros((0, records.classes))

    def _batch(self, records: Records) -> Float[np.ndarray, "b C"]:
        raise NotImplementedError


FITTED_CLASSES = "mia_audit_classes_"
"""The attribute of an estimator for the pool's classes that its labels 0, 1 … stand for, where classes are missing from its training set."""


def known_classes(estimator: Any) -> np.ndarray | None:
    """Return the pool's class of each of a fitted estimator's outputs; None if it does not tell."""
    known = getattr(estimator, FITTED_CLASSES, getattr(estimator, "classes_", None))
    return None if known is None else np.asarray(known)


def prepared_rows(rows: np.ndarray, metadata: Mapping[str, Any]) -> Any:
    """Return rows of a pool with these metadata as estimators receive them: a frame, or tables as stored, or pixels in [0, 1]."""
    if FRAME in metadata:
        return frame_of(rows, metadata[FRAME])
    return rows.astype(np.float32) / np.float32(255) if rows.dtype == np.uint8 else rows


def boxed_attributions(
    ask: Callable[[Records], Float[np.ndarray, "n C"]],
    records: Records,
    request: ExplanationRequest,
    names: Iterable[str],
    estimator: Any = None,
) -> dict[Attribution, Float[np.ndarray, "n d"]]:
    """Return the attributions of explainers that need only a model's outputs, or its fitted estimator.

    Raises UserError if an explainer supports none of the requested quantities.
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
        return flat(request.trained_on.records.values[inside])

    true_class = request.options["explained_class"] == "true"
    classes = records.labels if true_class else ask(records).argmax(axis=1)
    known = known_classes(estimator)
    key = (request.seed, "shap", *(() if request.model is None else (request.model,)))
    box = Box(
        *(flat(records.values), np.asarray(classes), logits, members, key, estimator, known),
        prepare=lambda rows: prepared_rows(rows, records.metadata),
    )
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
