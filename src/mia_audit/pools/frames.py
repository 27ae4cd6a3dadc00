"""Tables as pandas DataFrames, for estimators and scripts: the columns, types, categories and missing values of the file.

A pool holds numbers alone. With `frame: true` it has one column of 64 bits for each column of the file, so that no
number changes; a value of text is stored as its place among the column's values, and a missing value as NaN. The pool's
metadata describe the columns, and the frame is made again from both. Explainers see the pool's columns: a category
counts as one feature.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypedDict

import numpy as np

from mia_audit.errors import UserError

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    from jaxtyping import Float

FRAME = "frame"
"""The key of a pool's metadata for the columns of its frame."""


class FrameColumn(TypedDict):
    """A column of a frame: its name, its type (`int64`, `float64`, `bool` or `category`), and the values of a category."""

    name: str
    type: str
    values: list[int] | list[str]


def coded(column: pl.Series, parts: Sequence[pl.Series]) -> tuple[FrameColumn, Float[np.ndarray, " n"]]:
    """Return the description and the stored numbers of a column.

    `parts` are its values as numbers, or a column of 0 and 1 for each value of a category; where the column is missing
    they have any value.
    """
    import polars as pl

    missing, name = column.is_null().to_numpy(), column.name
    if len(parts) == 1 and parts[0].name == name:
        values, whole = parts[0].cast(pl.Float64).to_numpy().copy(), not missing.any()
        kind = "bool" if parts[0].dtype == pl.Boolean else "int64" if parts[0].dtype.is_integer() else "float64"
        described = FrameColumn(name=name, type=kind if whole else "float64", values=[])
    else:
        values = np.stack([part.to_numpy() for part in parts]).argmax(axis=0).astype(np.float64)
        texts = [part.name.removeprefix(f"{name}=") for part in parts]
        whole = column.dtype.is_integer() and all(text.removeprefix("-").isdecimal() for text in texts)
        known: Any = [int(text) for text in texts] if whole else texts
        described = FrameColumn(name=name, type="category", values=known)
    values[missing | np.isnan(values)] = np.nan  # one NaN of all, because equal records have equal bytes
    return described, values


def frame_of(records: Float[np.ndarray, "n d"], columns: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """Return stored records as a DataFrame, its rows numbered from 0."""
    try:
        import pandas as pd
    except ImportError:
        raise UserError(
            "datasets.NAME.frame: needs pandas, which is missing; install it with: pip install 'mia-audit[estimators]'"
        ) from None

    def values(place: int, column: Mapping[str, Any]) -> Any:
        numbers = records[:, place]
        if column["type"] != "category":
            return numbers.astype(column["type"])
        places = np.where(np.isnan(numbers), -1, numbers).astype(np.int64)
        return pd.Categorical.from_codes(places, categories=column["values"])

    return pd.DataFrame({column["name"]: values(place, column) for place, column in enumerate(columns)})
