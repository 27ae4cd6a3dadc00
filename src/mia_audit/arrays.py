"""Checks of numbers that come from elsewhere: files, arguments in Python, answers of models. Every way in calls these.

A message begins with `where`: the file, the argument, or the function that returned the numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from mia_audit.errors import UserError, few, first_line

SOFTMAX_ERROR = 0.01
"""The largest rounding error of the sum of a softmax, also in half precision with a thousand classes."""


def real_array(values: Any, where: str) -> np.ndarray:
    """Return numbers or truth values as an array, also those of tensors on any device and of any precision.

    Raises UserError for anything else: text, complex numbers, masked cells, a mapping, or rows of different lengths.
    """
    if isinstance(values, Mapping):
        raise UserError(
            f"{where}: a {type(values).__name__} of {', '.join(map(repr, list(values)[:3]))}; expected an array of numbers"
        )
    if isinstance(values, np.ma.MaskedArray) and np.ma.is_masked(values):
        raise UserError(
            f"{where}: {int(np.ma.getmaskarray(values).sum())} masked cells; expected a number in every cell"
        )
    try:
        array = np.asarray(_plain(values))
    except (TypeError, ValueError, RuntimeError) as error:
        raise UserError(f"{where}: a {type(values).__name__} is not an array of numbers: {first_line(error)}") from None
    if array.dtype.kind == "O" and array.size and all(isinstance(cell, Number) for cell in array.flat):
        array = np.array(array.tolist())
    if array.dtype.kind == "c":
        raise UserError(f"{where}: complex numbers; expected real ones, such as their absolute values")
    if array.dtype.kind not in "buif":
        raise UserError(f"{where}: a {type(values).__name__} of {_content(array)}; expected numbers")
    return array


Number = bool | int | float | np.number | np.bool_


def _plain(values: Any) -> Any:
    """Return a tensor, or the tensors in a list, in a form that NumPy reads."""
    if isinstance(values, list | tuple):
        return [_plain(value) for value in values] if any(hasattr(value, "detach") for value in values) else values
    if not hasattr(values, "detach"):
        return values
    tensor = values.detach().cpu()
    return tensor.float() if str(tensor.dtype) == "torch.bfloat16" else tensor


def _content(array: np.ndarray) -> str:
    if array.dtype.kind in "US":
        return "text"
    return f"{type(array.flat[0]).__name__}s" if array.dtype.kind == "O" and array.size else str(array.dtype)


def row_ids(values: Any) -> np.ndarray | None:
    """Return the index of a pandas frame as text; None for values without one."""
    index = getattr(values, "index", None)
    return None if index is None or callable(index) else np.asarray(index).astype(str)


def column_names(values: Any) -> list[str]:
    """Return the names of a frame's columns; none for values without them."""
    return [str(name) for name in getattr(values, "columns", ())]


def check_same_order(names: list[str], where: str, others: list[str], other: str) -> None:
    """Raise UserError if two frames or files have columns of the same names in another order."""
    if names != others and set(names) == set(others) and len(names) == len(others):
        raise UserError(
            f"{where}: the columns are {few(names)} where {other} has {few(others)}; expected the same models in the same order"
        )


def check_row_order(values: Any, where: str) -> None:
    """Raise UserError for a frame whose index says that its rows, numbered from 0, are in another order."""
    ids = row_ids(values)
    if ids is not None and (ids != (numbers := np.arange(len(ids)).astype(str))).any() and set(ids) == set(numbers):
        raise UserError(
            f"{where}: the index of the rows is {few(ids[:3])} …; expected the rows in the order of the records"
        )


ROWS = 8
"""Number of rows of logits that are all within [0, 1], or have one sum, by chance only if they are a sigmoid's, or shares."""


def probabilities_named(values: np.ndarray) -> str:
    """Return what values over the last axis are, a softmax, shares or a sigmoid, if they are never negative as logits are; else nothing."""
    if not values.size or values.min() < 0:
        return ""
    rows = values.reshape(-1, values.shape[-1])
    sums = rows.sum(axis=1, dtype=np.float64)
    if np.allclose(sums, 1, rtol=0, atol=SOFTMAX_ERROR):
        return "a softmax (they add up to 1 over the classes)"
    if len(rows) < ROWS or (rows == rows[0]).all():
        return ""
    if np.allclose(sums, sums[0], rtol=SOFTMAX_ERROR):
        return f"shares (they add up to {sums[0]:.3g} over the classes)"
    return "a sigmoid (they are within [0, 1])" if values.max() <= 1 else ""


def check_logits(logits: np.ndarray, where: str) -> None:
    """Raise UserError for values that are probabilities or shares."""
    if kind := probabilities_named(logits):
        raise UserError(
            f"{where}: values are {kind}: they are probabilities, not logits; give the logits, or the logarithms"
            " of the probabilities"
        )


def class_numbers(labels: Any, where: str, classes: int = 0) -> np.ndarray:
    """Return labels as whole numbers of the shape given; UserError for text or fractions, and for labels outside the `classes`, if given."""
    array = labels if isinstance(labels, np.ndarray) and labels.dtype.kind in "US" else None
    values = real_array(labels, where) if array is None else array
    if values.dtype.kind not in "biu" and not (values.dtype.kind == "f" and (values == np.floor(values)).all()):
        raise UserError(
            f"{where}: labels hold {_content(values)}; expected whole numbers from 0, for example those of numpy.unique(labels, return_inverse=True)"
        )
    whole = values.astype(np.int64)
    if whole.size and (whole.min() < 0 or (classes and whole.max() >= classes)):
        wrong = int(whole[(whole < 0) | ((whole >= classes) if classes else False)].flat[0])
        hint = (
            "; labels that are numbered from 1 must be reduced by 1"
            if classes and whole.min() == 1 and whole.max() == classes
            else ""
        )
        last = f"from 0 to {classes - 1}" if classes else "from 0"
        raise UserError(
            f"{where}: {f'{classes} classes, but ' if classes else ''}a label is {wrong}; expected labels {last}{hint}"
        )
    return whole
