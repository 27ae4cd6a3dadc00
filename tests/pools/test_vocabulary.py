"""Stated classes and categories: their order, values that are not listed, and what is collected when they are left out."""

from pathlib import Path
from typing import Any

import pytest

from mia_audit.errors import UserError
from mia_audit.pools.build import Pool, build_pool
from mia_audit.pools.section import Dataset, load_source

TEXT = "sort,size,label\nb,1,yes\na,2,no\nb,3,no\nc,4,yes\n"


def built(folder: Path, **section: Any) -> Pool:
    (folder / "t.csv").write_text(TEXT)
    dataset = Dataset(source="table", path=str(folder / "t.csv"), take="first", **section)
    return build_pool(load_source(dataset, "datasets.t"), dataset, "t", 0)


def test_stated_values_are_the_columns_and_outputs_in_their_order(tmp_path: Path) -> None:
    pool = built(tmp_path, categories={"sort": ["c", "d", "b"]}, other="rest", classes=["yes", "maybe", "no"])
    assert pool.metadata["features"] == ["sort=c", "sort=d", "sort=b", "sort=rest", "size"]
    assert [row.tolist() for row in pool.audited.data.__array__()[:2]] == [[0, 0, 1, 0, 1], [0, 0, 0, 1, 2]]
    assert (pool.metadata["classes"], pool.audited.labels.tolist()) == (["yes", "maybe", "no"], [0, 2, 2, 0])
    assert pool.metadata["collected"] == {}


def test_what_is_collected_is_known(tmp_path: Path) -> None:
    collected = {"classes": ["no", "yes"], "categories": {"sort": ["a", "b", "c"]}}
    assert built(tmp_path).metadata["collected"] == collected
    numbers = built(tmp_path, categories={"size": [1, 2, 3, 4]}, columns={"sort": "drop"})
    assert numbers.metadata["features"] == ["size=1", "size=2", "size=3", "size=4"]
    again = built(tmp_path, **collected)
    assert again.metadata["features"] == built(tmp_path).metadata["features"]
    assert again.audited.sha256 == built(tmp_path).audited.sha256


@pytest.mark.parametrize(
    ("section", "match"),
    [
        ({"categories": {"sort": ["b", "c"]}}, r"categories\.sort: 'a' \(row 2 of .* 1 such rows\) is not listed"),
        ({"classes": ["yes"]}, r"classes: 2 of 4 records have another class, such as 'no'"),
        ({"categories": {"size": ["1", "1.0", "2", "3", "4"]}}, r"categories\.size: 1, 1\.0 are the same value"),
        ({"categories": {"sorts": ["b"]}}, r"has no column 'sorts': did you mean 'sort'"),
        ({"categories": {"sort": ["b"]}, "columns": {"sort": "drop"}}, r"categories\.sort: the column is dropped"),
    ],
)
def test_values_that_are_not_listed_are_one_line(tmp_path: Path, section: dict[str, Any], match: str) -> None:
    with pytest.raises(UserError, match=match) as caught:
        built(tmp_path, **section)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("section", "match"),
    [
        ({"classes": ["a", "a"]}, "classes: a value is given twice"),
        ({"categories": {"sort": ["a", "a"]}}, r"categories\.sort: a value is given twice"),
        ({"other": "rest"}, "give categories too"),
    ],
)
def test_a_section_that_contradicts_itself_is_refused(section: dict[str, Any], match: str) -> None:
    with pytest.raises(ValueError, match=match):
        Dataset(source="table", **section)
