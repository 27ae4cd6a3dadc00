"""Tables as DataFrames: what a data scientist reads from the file is what estimators and scripts receive."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from mia_audit.errors import UserError
from mia_audit.pools.build import build_pool
from mia_audit.pools.frames import FRAME, frame_of
from mia_audit.pools.section import Dataset, load_source
from mia_audit.pools.store import read_records, write_pool

COUNT = 60
RANDOM = np.random.default_rng(0)
TABLE = pd.DataFrame(
    {
        "age": RANDOM.integers(18, 90, COUNT),
        "salary": RANDOM.integers(2**24, 2**25, COUNT) * 1.01,
        "visits": np.where(np.arange(COUNT) % 7 == 3, np.nan, RANDOM.integers(0, 9, COUNT)),
        "sex": [None if k % 11 == 0 else "fm"[k % 2] for k in range(COUNT)],
        "smoker": RANDOM.random(COUNT) < 0.5,
        "year": 1990 + np.arange(COUNT) % 3,
        "outcome": [("yes", "no")[k % 2] for k in range(COUNT)],
    }
)


def section(path: Path, **keys: Any) -> Dataset:
    columns: Any = {"year": "category"}
    return Dataset(source="table", path=str(path), label="outcome", frame=True, columns=columns, **keys)


def test_a_frame_is_the_file(tmp_path: Path) -> None:
    """Names, types, categories and missing values; whole numbers above 2²⁴ are not rounded."""
    TABLE.to_csv(tmp_path / "t.csv", index=False)
    write_pool(build_pool(load_source(where := section(tmp_path / "t.csv"), "d"), where, "d", 0), tmp_path / "pool")
    stored = read_records(tmp_path / "pool")
    frame = frame_of(stored.data, stored.metadata[FRAME])
    expected = TABLE.drop(columns="outcome").astype({"sex": "category", "year": "category"})
    pd.testing.assert_frame_equal(frame, expected, check_categorical=False)
    assert [*frame["sex"].cat.categories] == ["f", "m"] and [*frame["year"].cat.categories] == [1990, 1991, 1992]
    assert stored.metadata["features"] == [*expected]


def test_public_records_have_the_categories_of_the_audited_ones(tmp_path: Path) -> None:
    TABLE.to_csv(tmp_path / "t.csv", index=False)
    TABLE[TABLE["sex"] == "m"].assign(age=17).to_csv(tmp_path / "more.csv", index=False)
    where: Any = section(tmp_path / "t.csv", public={"path": str(tmp_path / "more.csv")})
    pool = build_pool(load_source(where, "d"), where, "d", 0)
    frame = frame_of(np.asarray(pool.public.data), pool.metadata[FRAME])
    assert set(frame["sex"]) == {"m"} and (frame["age"] == 17).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"outcome": [None, *TABLE["outcome"][1:]]}, r"column 'outcome' \(first in row 1, 1 in all\)"),
        ({"bmi": [np.nan] * COUNT}, "column 'bmi' is empty: drop it"),
        ({"bmi": [20.5, np.inf, *range(COUNT - 2)]}, "column 'bmi' holds inf in row 2; expected finite numbers"),
        ({"born": ["2020-01-01", "2021-02-03"] * (COUNT // 2)}, "column 'born' holds dates"),
    ],
)
def test_what_a_frame_cannot_hold_is_one_line(change: dict[str, Any], message: str, tmp_path: Path) -> None:
    TABLE.assign(**change).to_csv(tmp_path / "t.csv", index=False)
    with pytest.raises(UserError, match=message):
        load_source(section(tmp_path / "t.csv"), "datasets.d")


def test_pandas_is_asked_for_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(UserError, match=r"needs pandas, .* pip install 'mia-audit\[estimators\]'"):
        frame_of(np.zeros((1, 1)), [{"name": "a", "type": "int64", "values": []}])


def test_other_values_of_a_column_of_numbers_are_a_category_of_text(tmp_path: Path) -> None:
    TABLE.to_csv(tmp_path / "t.csv", index=False)
    where = section(tmp_path / "t.csv", categories={"year": [1990, 1991]}, other="later")
    pool = build_pool(load_source(where, "d"), where, "d", 0)
    assert [one["values"] for one in pool.metadata[FRAME] if one["name"] == "year"] == [["1990", "1991", "later"]]
