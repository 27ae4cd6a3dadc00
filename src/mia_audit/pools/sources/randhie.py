"""The RAND Health Insurance Experiment (Newhouse 1993): a row per person and year, from the file that comes with statsmodels."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from mia_audit.errors import UserError, suggest
from mia_audit.pools.catalogue import TABLE_KEYS, Header, Source, pool

if TYPE_CHECKING:
    from mia_audit.pools.section import Dataset

FEATURES = (
    *(
        "plan",
        "site",
        "coins",
        "tookphys",
        "year",
        "black",
        "income",
        "xage",
        "female",
        "educdec",
        "time",
        "num",
        "mhi",
    ),
    *("disea", "physlm", "child", "fchild", "lpi", "idp", "fmde", "hlthg", "hlthf", "hlthp", "xghindx"),
)
"""Features that are known before the year's visits: the plan, the household, and health as reported at the start."""

CLASSES = ["no visit", "1 or 2 visits", "3 or more visits"]
PERSON = "zper"


@pool("randhie", "person", *TABLE_KEYS, header=Header("table", 20_190))
def randhie(dataset: Dataset, where: str) -> Source:
    """Return float32 [20190, 24], with the number of visits to a physician in that year as label. Unknown schooling (four rows) is 0."""
    import polars as pl

    spec = find_spec("statsmodels")
    if spec is None or not spec.origin:
        raise UserError(
            f"{where}.source: randhie reads a file of the package statsmodels, which is missing: pip install 'mia-audit[persons]'"
        )
    path = Path(spec.origin).parent / "datasets" / "randhie" / "src" / "randhie.csv"
    if not path.is_file():
        raise UserError(
            f"{where}.source: {path}: no such file, but it is part of the package statsmodels: reinstall that package"
        )
    if dataset.person not in ("", PERSON):
        raise UserError(f"{where}.person: '{dataset.person}': the persons of randhie are in the column '{PERSON}'")
    frame = pl.read_csv(path, infer_schema_length=None)
    rows = frame.select(pl.col(name).cast(pl.Float32).fill_null(0) for name in FEATURES).to_numpy()
    labels = np.digitize(frame["mdvis"].to_numpy(), [1, 3])
    persons = frame[PERSON].cast(pl.Int64).to_numpy() if dataset.person else None

    def column(name: str) -> pl.Series:
        if name not in frame.columns:
            raise UserError(f"{where}.groups: randhie has no column '{name}': {suggest(name, frame.columns)}")
        return frame[name]

    return Source("table", rows, labels, CLASSES, list(FEATURES), persons=persons, columns=column)
