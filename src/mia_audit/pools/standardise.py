"""Centring and scaling the columns of a table by constants that do not come from the audited records."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from mia_audit.config.schema import Dataset
from mia_audit.errors import UserError, suggest
from mia_audit.pools.catalogue import Source

Table = Float[np.ndarray, "n d"]


@dataclass(frozen=True)
class Scaling:
    """(x − centre) / scale, a constant a column [d]."""

    centre: Float[np.ndarray, " d"]
    scale: Float[np.ndarray, " d"]

    def apply(self, records: Table) -> Table:
        """Return float32 [n, d]."""
        return np.asarray((records - self.centre) / self.scale, dtype=np.float32)

    def told(self) -> dict[str, Any]:
        """Return what the pool's facts say of it."""
        return {"centre": self.centre.tolist(), "scale": self.scale.tolist()}


def _none(source: Source, public: Table, section: Dataset, where: str) -> None:
    return None


def _public(source: Source, public: Table, section: Dataset, where: str) -> Scaling:
    """By mean and standard deviation of the public records; a constant column is only centred."""
    scale = public.std(axis=0, dtype=np.float64)
    scale[scale == 0] = 1.0
    return Scaling(public.mean(axis=0, dtype=np.float64), scale)


def _stated(source: Source, public: Table, section: Dataset, where: str) -> Scaling:
    """By the constants that the config states; columns that it does not name stay as they are."""
    constants = dict(section.constants)
    pairs = np.array([constants.pop(name, (0.0, 1.0)) for name in source.features], dtype=np.float64)
    if constants:
        odd = next(iter(constants))
        raise UserError(f"{where}.constants.{odd}: no such column: {suggest(odd, source.features)}")
    return Scaling(pairs[:, 0], pairs[:, 1])


STANDARDISATIONS: dict[str, Callable[[Source, Table, Dataset, str], Scaling | None]] = {
    "none": _none,
    "public": _public,
    "stated": _stated,
}
"""What `standardise` may say."""
