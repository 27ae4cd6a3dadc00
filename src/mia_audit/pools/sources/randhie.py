"""The RAND Health Insurance Experiment: 20,190 years of 5,912 persons, as the statsmodels package has it (public domain)."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from mia_audit.errors import UserError
from mia_audit.pools.catalogue import TABLE_KEYS, Source, pool

if TYPE_CHECKING:
    from mia_audit.pools.section import Dataset

FILE = "datasets/randhie/src/randhie.csv"

FEATURES = (
    "plan", "site", "coins", "tookphys", "year", "black", "income", "xage", "female", "educdec", "time", "num", "mhi", "disea",
    "physlm", "mdeoff", "pioff", "child", "fchild", "lfam", "lpi", "idp", "logc", "fmde", "hlthg", "hlthf", "hlthp", "xghindx",
    "linc", "lnum",
)  # fmt: skip
"""What was known of a person and the plan before the year's visits; missing values are those of the column's median."""

VISITS = "mdvis"


@pool("randhie", *TABLE_KEYS)
def randhie(dataset: Dataset, where: str) -> Source:
    """Return float32 [20190, 30]; the class is whether the person saw a physician more than once in the year."""
    import polars as pl

    found = importlib.util.find_spec("statsmodels")  # not imported: it takes a second
    if found is None or not found.submodule_search_locations:
        raise UserError(
            f"{where}.source: randhie is read from the statsmodels package, which is missing; install it with:"
            " pip install 'mia-audit[trees]'"
        )
    table = pl.read_csv(Path(found.submodule_search_locations[0], FILE), infer_schema_length=None)
    rows = table.select(pl.col(name).cast(pl.Float64).fill_null(pl.col(name).median()) for name in FEATURES)
    labels = (table[VISITS] > 1).to_numpy().astype(np.int64)
    return Source("table", rows.to_numpy().astype(np.float32), labels, ["at most one visit", "more"], list(FEATURES))
