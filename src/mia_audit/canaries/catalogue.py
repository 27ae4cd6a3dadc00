"""The registry of kinds of canaries."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int, Num

from mia_audit.registry import Registry

Drawn = tuple[np.ndarray, np.ndarray]
"""Records [m, …] of the data set's type, and labels [m]."""


@dataclass(frozen=True)
class HeldOut:
    """Records [m, …] and labels [m] removed from the data set, from which canaries are made, and the number of classes."""

    records: Num[np.ndarray, "m ..."]
    labels: Int[np.ndarray, " m"]
    classes: int

    @property
    def images(self) -> bool:
        """Whether records are images (uint8) instead of rows of a table."""
        return self.records.dtype == np.uint8


Kind = Callable[[HeldOut, np.random.Generator], Drawn]
kinds: Registry[Kind] = Registry("kind of canaries", "mia_audit.canaries.kinds", "_")


def other_labels(labels: np.ndarray, classes: int, random: np.random.Generator) -> np.ndarray:
    """Return labels that differ from the given ones, drawn uniformly from the other classes."""
    others: np.ndarray = (labels + random.integers(1, classes, len(labels))) % classes
    return others.astype(labels.dtype)
