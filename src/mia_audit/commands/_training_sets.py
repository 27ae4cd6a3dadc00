"""The training set of a model: drawn from a specification, or read from a table."""

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

    If the specification describes how training sets are drawn, they are drawn again. A job then does not depend on the
    table of all models, which changes with their number. Otherwise they are read from the pool's membership.parquet.
    """
    if spec.draw is None:
        return read_membership(pool / "membership.parquet", shadows, records)
    return draw_training_sets(spec.draw, pool / "records.parquet", spec.dataset, spec.seed, shadows)
