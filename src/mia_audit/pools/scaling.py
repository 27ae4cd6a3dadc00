"""Centre and scale a table's columns by constants that do not depend on the audited records."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from mia_audit.errors import UserError, suggest
from mia_audit.pools.catalogue import Source
from mia_audit.pools.section import Dataset

Table = Float[np.ndarray, "n d"]


@dataclass(frozen=True)
class Scaling:
    """(x − centre) / scale, with constants per column [d]."""

    centre: Float[np.ndarray, " d"]
    scale: Float[np.ndarray, " d"]

    def apply(self, records: Table) -> Table:
        """Return float32 [n, d]."""
        return np.asarray((records - self.centre) / self.scale, dtype=np.float32)

    def metadata(self) -> dict[str, Any]:
        """Return the entries of this scaling in the pool's metadata."""
        return {"centre": self.centre.tolist(), "scale": self.scale.tolist()}


Constants = Callable[[Callable[[], Table]], Scaling | None]
"""Returns the constants, given a function that reads the public records, for a config that was checked."""


def _none(source: Source, section: Dataset, where: str) -> Constants:
    return lambda public: None


def _public(source: Source, section: Dataset, where: str) -> Constants:
    """Standardise by mean and standard deviation of the public records; a constant column is only centred."""

    def constants(public: Callable[[], Table]) -> Scaling:
        records = public()
        scale = records.std(axis=0, dtype=np.float64)
        scale[scale == 0] = 1.0
        return Scaling(records.mean(axis=0, dtype=np.float64), scale)

    return constants


def _stated(source: Source, section: Dataset, where: str) -> Constants:
    """Standardise by the constants that the config states for every column of numbers; columns of 0 and 1 without
    stated constants are not changed.
    """
    constants = dict(section.constants)
    lacking = [name for name in source.features if name not in constants and name not in source.flags]
    pairs = np.array([constants.pop(name, (0.0, 1.0)) for name in source.features], dtype=np.float64)
    if constants:
        odd = next(iter(constants))
        raise UserError(f"{where}.constants.{odd}: no such column: {suggest(odd, source.features)}")
    if lacking:
        more = f" and {len(lacking) - 1} more" if len(lacking) > 1 else ""
        raise UserError(
            f"{where}.constants: nothing for column '{lacking[0]}'{more}: state [centre, scale] for every column of numbers, [0, 1]"
            " to leave one unchanged"
        )
    return lambda public: Scaling(pairs[:, 0], pairs[:, 1])


STANDARDISATIONS: dict[str, Callable[[Source, Dataset, str], Constants]] = {
    "none": _none,
    "public": _public,
    "stated": _stated,
}
"""The values of `standardise`, each a function of the source, its section, and the section's name for errors."""
