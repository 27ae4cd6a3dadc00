"""Loss and confidence of the label from logits or probabilities, in float64, as an import derives them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mia_audit.errors import UserError

if TYPE_CHECKING:
    from jaxtyping import Float, Int


SOFTMAX_ERROR = 0.01
"""The largest rounding error of the sum of a softmax, also in half precision with a thousand classes."""


def confidence_of(logits: Float[np.ndarray, "... N Q C"], labels: Int[np.ndarray, " N"], where: str) -> np.ndarray:
    """Return z_y − logsumexp of the other logits, [..., N, Q] (Carlini et al. 2022); UserError for labels outside the classes."""
    classes = logits.shape[-1]
    if classes < 2:
        raise UserError(
            f"{where}: {classes} logit per record; expected one for each of at least two classes, in the last axis"
        )
    if labels.min() < 0 or labels.max() >= classes:
        wrong = int(labels[(labels < 0) | (labels >= classes)][0])
        raise UserError(f"{where}: {classes} classes, but a label is {wrong}; expected labels from 0 to {classes - 1}")
    _refuse_probabilities(logits, where)
    values = np.asarray(logits, dtype=np.float64)
    place = np.broadcast_to(labels[:, None, None], (*values.shape[:-1], 1))
    own = np.take_along_axis(values, place, axis=-1)[..., 0]
    others = values.copy()
    np.put_along_axis(others, place, -np.inf, axis=-1)
    highest = others.max(axis=-1)
    with np.errstate(invalid="ignore"):
        rest: np.ndarray = highest + np.log(np.exp(others - highest[..., None]).sum(axis=-1))
    confidence: np.ndarray = own - rest
    return confidence


def over_shifts(logits: Float[np.ndarray, "N S Q C"], labels: Int[np.ndarray, " N"], where: str) -> np.ndarray:
    """Return the confidence of probabilities averaged over the second axis, [N, Q], as in score.py of Carlini et al."""
    _refuse_probabilities(logits, where)
    values = np.asarray(logits, dtype=np.float64)
    values = values - values.max(axis=-1, keepdims=True)
    values -= np.log(np.exp(values).sum(axis=-1, keepdims=True))
    with np.errstate(divide="ignore"):
        mean = np.log(np.exp(values).mean(axis=1))
    return confidence_of(mean, labels, where)


def _refuse_probabilities(logits: np.ndarray, where: str) -> None:
    """Raise UserError for values that are a softmax: within [0, 1], with a sum of 1 over the classes."""
    if not (logits.min() >= 0 and logits.max() <= 1):
        return
    if np.allclose(logits.sum(axis=-1, dtype=np.float64), 1, rtol=0, atol=SOFTMAX_ERROR):
        raise UserError(
            f"{where}: values are within [0, 1] and add up to 1 over the classes: they are softmax probabilities, not logits; "
            "give the logits, or the logarithms of the probabilities"
        )


def loss_of(confidence: np.ndarray) -> np.ndarray:
    """Return −log p = log(1 + exp(−confidence))."""
    loss: np.ndarray = np.logaddexp(0, -confidence)
    return loss


def check_labels(labels: np.ndarray, records: int, where: str, longer: bool = False) -> Int[np.ndarray, " N"]:
    """Return labels as whole numbers, one for each record; UserError for anything else. `longer` allows labels of further records at the end."""
    flat = labels.ravel()
    if max(labels.shape, default=0) < labels.size:
        shape = " × ".join(str(size) for size in labels.shape)
        raise UserError(f"{where}: {shape} labels; expected one whole number per record")
    if flat.dtype.kind not in "iu" and not (flat.dtype.kind == "f" and (flat == np.floor(flat)).all()):
        raise UserError(f"{where}: labels hold {labels.dtype}; expected whole numbers")
    if len(flat) < records or (len(flat) > records and not longer):
        raise UserError(f"{where}: {len(flat)} labels for {records} records; expected one whole number per record")
    whole: np.ndarray = flat[:records].astype(np.int64)
    return whole
