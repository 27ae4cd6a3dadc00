"""A black box's values on disk."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

from mia_audit.errors import UserError
from mia_audit.storage import read_table

if TYPE_CHECKING:
    from jaxtyping import Float


def read_values(path: Path, records: int) -> Float[np.ndarray, "m C"]:
    """Read values.parquet. Raises UserError for a wrong number of records."""
    table = read_table(path, "values")
    if len(table) != records:
        raise UserError(f"{path}: values of {len(table)} records, but the pool has {records}. Delete it and run again")
    return np.stack([table[name].to_numpy() for name in table.column_names if name.startswith("value_")], axis=1)
