"""Who the training set of a model is: drawn as a specification says, or read from a table."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from mia_audit.config.specs import SignalsSpec, TrainingSpec
from mia_audit.pools.membership import draw_training_sets
from mia_audit.pools.store import read_membership

if TYPE_CHECKING:
    import numpy as np
    from jaxtyping import Bool


def training_sets(
    spec: TrainingSpec | SignalsSpec, pool: Path, shadows: Iterable[int], records: int
) -> Bool[np.ndarray, "n k"]:
    """Return models' training sets, [records, models].

    A training set is drawn again where the specification says how: a job does not wait for the table of all models, which
    changes with their number. Otherwise the pool's membership.parquet has it.
    """
    if spec.draw is None:
        return read_membership(pool / "membership.parquet", shadows, records)
    return draw_training_sets(spec.draw, pool / "records.parquet", spec.dataset, spec.seed, shadows)
