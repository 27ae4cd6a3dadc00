"""The spread of one model's explanations over the coordinates of a record, and over the records of a class."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mia_audit.explanation_metrics.catalogue import measure

if TYPE_CHECKING:
    import numpy as np
    from jaxtyping import Float, Int


@measure("gini", label="sparsity (Gini)")
def gini(maps: Float[np.ndarray, "n ..."]) -> Float[np.ndarray, " n"]:
    """Gini index of the absolute values (Hurley and Rickard 2009): 0 if all are equal, 1 − 1/d if all but one are 0.

    Chalasani et al. (2020) use it to measure the sparsity of explanations. NaN for a map that is 0 everywhere.
    """
    import numpy as np

    sizes = np.sort(np.abs(maps.reshape(len(maps), -1)), axis=1)
    d = sizes.shape[1]
    total = sizes.sum(axis=1)
    weights = (d - np.arange(1, d + 1) + 0.5) / d
    return np.asarray(1 - 2 * (sizes @ weights) / np.where(total > 0, total, np.nan))


@measure("class-variability", label="variability within a class")
def class_variability(maps: Float[np.ndarray, "n ..."], labels: Int[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """One minus the mean cosine between a record's map and those of the other records with its label.

    It is 0 if a model's explanations of all records of a class are equal up to scale, 1 if they are unrelated. It is
    NaN for the only record of a class, and for maps that are 0 everywhere. Such maps are left out of all comparisons.
    """
    import numpy as np

    flat = maps.reshape(len(maps), -1)
    lengths = np.linalg.norm(flat, axis=1)
    units = flat / np.where(lengths > 0, lengths, 1.0)[:, None]
    values = np.full(len(flat), np.nan)
    for label in np.unique(labels):
        rows = np.flatnonzero((labels == label) & (lengths > 0))
        if len(rows) > 1:
            others = units[rows].sum(axis=0) - units[rows]
            values[rows] = 1 - (units[rows] * others).sum(axis=1) / (len(rows) - 1)
    return values
