"""The input of explainers for models without gradients: rows, their explained classes, and the model's outputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from mia_audit.errors import UserError

if TYPE_CHECKING:
    from jaxtyping import Float, Int

    Rows = Float[np.ndarray, "n d"]
    ByQuantity = Mapping[str, Float[np.ndarray, "n d"]]
    """Attributions by the quantity that they explain: `logit`, `probability`."""


@dataclass(frozen=True)
class Box:
    """A model without gradients, and the rows and classes to explain.

    `classes` has the explained class of each of the `rows`, numbered from 0; `estimator` is the fitted estimator, if
    the model is one. `known` lists the pool's classes that occur in its training set. `members` returns its training
    rows, for explainers that need them. Random draws are keyed by `key`.
    """

    rows: Rows
    classes: Int[np.ndarray, " n"]
    logits: Callable[[Rows], Float[np.ndarray, "m C"]]
    members: Callable[[], Rows]
    key: tuple[int | str, ...]
    estimator: Any = None
    known: Int[np.ndarray, " c"] | None = None

    def column(self, model: str) -> Int[np.ndarray, " n"]:
        """Return the column of every explained class in the estimator's outputs; UserError for a class without training records."""
        if self.known is None:
            return self.classes
        places = np.searchsorted(self.known, self.classes)
        known = self.known[np.minimum(places, len(self.known) - 1)] == self.classes
        if not known.all():
            raise UserError(
                f"{model} has no output for class {self.classes[~known][0]}, because it was trained on no record of that class;"
                " set explained_class: predicted"
            )
        return np.asarray(places)


def of_class(values: np.ndarray, box: Box, model: str) -> Rows:
    """Return the attributions of every row's explained class.

    `values` are those of all classes, [n, d, C]; for two classes, those of the second, [n, d].
    """
    columns = box.column(model)
    if values.ndim == 2:
        return np.where(columns[:, None] == 1, values, -values)
    return np.asarray(np.take_along_axis(values, columns[:, None, None], axis=2)[:, :, 0])
