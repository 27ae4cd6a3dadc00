"""Stated constants, classes and categories of columns: their order, and what is wrong with them in one line."""

from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mia_audit.errors import UserError
from mia_audit.pools.build import Pool, build_pool
from mia_audit.pools.section import Dataset, load_source

from .conftest import pool_command

ROWS = np.random.default_rng(0).normal(size=(20, 2))


@pytest.mark.parametrize(
    ("records", "section", "words"),
    [
        (ROWS, {"constants": {0: [-3, 3]}}, "datasets.mine.constants: nothing for column '1'"),
        (ROWS, {"constants": {0: [0, 1], 1: [0, 1], 2: [-3, 3]}}, "datasets.mine.constants.2: no such column"),
        (ROWS, {"constants": {0: [0, 0]}}, "constants.0.1: input should be greater than 0"),
        (np.zeros((20, 4, 4), np.uint8), {"standardise": "public", "public": 4}, "but these records are images"),
        (ROWS, {"mean": 0.5}, "datasets.mine.mean: only for images, but these records are rows of a table"),
    ],
)
def test_what_is_wrong_with_arrays_and_their_constants_is_one_line(
    records: np.ndarray, section: dict[str, Any], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "some.npz"
    np.savez(path, records=records, labels=np.arange(len(records)) % 2)
    stated = {"standardise": "stated"} if "constants" in section else {}
    out = tmp_path / "pool"
    assert pool_command({"source": "arrays", "path": str(path)} | stated | section, out) == 2
    told = capsys.readouterr().err
    assert words in told and told.count("\n") == 1
    assert not out.exists()


def test_images_have_no_columns_to_scale(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    section = {"source": "digits", "standardise": "stated", "constants": {"0": [0, 255]}}
    assert pool_command(section, tmp_path / "pool") == 2
    assert "mine.standardise: pool 'digits' does not" in capsys.readouterr().err


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
        ({"classes": ["yes", "no", "No", "1", "1.0"]}, r"classes: 1, 1\.0 are the same value"),
        ({"categories": {"sorts": ["b"]}}, r"has no column 'sorts': did you mean 'sort'"),
        ({"categories": {"sort": ["b"]}, "columns": {"sort": "drop"}}, r"categories\.sort: the column is dropped"),
    ],
)
def test_values_that_are_not_listed_are_one_line(tmp_path: Path, section: dict[str, Any], match: str) -> None:
    with pytest.raises(UserError, match=match) as caught:
        built(tmp_path, **section)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("impute", [{}, {"when": "never"}])
@pytest.mark.parametrize("unit", ["ms", "us", "ns", "days"])
def test_a_time_that_has_no_text_is_another_value(tmp_path: Path, unit: str, impute: dict[str, Any]) -> None:
    """Programs write the largest number of their type for "never"."""
    most, kind = (31, pa.date32()) if unit == "days" else (63, pa.timestamp(unit))
    times = pa.array([0, 2**most - 1, -(2 ** (most - 1)), 2 ** (most - 1), 0, 0], kind)
    pq.write_table(pa.table({"when": times, "size": [*range(6)], "label": ["yes", "no"] * 3}), tmp_path / "t.parquet")
    stated = {"categories": {"when": ["1970-01-01"]}, "other": "rest", "classes": ["no", "yes"], "take": "first"}
    dataset = Dataset(source="table", path=str(tmp_path / "t.parquet"), impute=impute, **stated)
    pool = build_pool(load_source(dataset, "datasets.t"), dataset, "t", 0)
    assert pool.audited.data.__array__()[:, 0].tolist() == [1, 0, 0, 0, 1, 1]


@pytest.mark.parametrize("more", ["1.0", "1.5", "1e3", "x", " 1"])
@pytest.mark.parametrize("codes", [["01", "1"], ["12345678901234567", "12345678901234568"]])
def test_no_record_changes_the_listed_values_of_others(codes: list[str], more: str, tmp_path: Path) -> None:
    stated = {"categories": {"code": codes}, "other": "rest", "classes": ["no", "yes"], "take": "first"}
    dataset = Dataset(source="table", path=str(tmp_path / "t.csv"), **stated)
    for added in ("", f"{more},no\n"):
        (tmp_path / "t.csv").write_text(f"code,label\n{codes[0]},no\n{codes[1]},yes\n{added}")
        records = np.asarray(load_source(dataset, "datasets.t").records)
        assert records[:2].tolist() == [[1, 0, 0], [0, 1, 0]]


@pytest.mark.parametrize(
    ("values", "listed", "impute"),
    [
        (["1", "2", "NA"], ["1", "2", "NA"], {}),
        (["1.5", "?", "2"], ["1.5", "2", "?"], {}),
        (["1", "2", ""], ["1", "2", "unknown"], {"code": "unknown"}),
        (["1", "2", "NA"], ["1", "2"], {"code": "2"}),
        (["1", "2", ""], ["1", "2"], {"code": 2}),
        (["true", "", "false"], ["true", "false", "unknown"], {"code": "unknown"}),
        (["a", "b", ""], ["a", "b", "0"], {"code": 0}),
        ([str(2**53 + 1), "3", ""], [str(2**53 + 1), "3"], {"code": 0.5}),
        ([str(2**53 + 1), "3", ""], ["3", str(2**53 + 1)], {"code": 2**53 + 1}),
    ],
)
def test_no_record_decides_whether_stated_categories_are_accepted(
    values: list[str], listed: list[str], impute: dict[str, Any], tmp_path: Path
) -> None:
    stated = {"categories": {"code": listed}, "other": "rest", "impute": impute, "classes": ["no", "yes"]}
    dataset = Dataset(source="table", path=str(tmp_path / "t.csv"), take="first", **stated)
    rows = [f"{number},{value},no\n" for number, value in enumerate(values)]
    seen = set()
    for more in (values[0], "x", "3", "1.5", "007", "true", "2020-01-01", "1e400"):
        (tmp_path / "t.csv").write_text("".join(["age,code,label\n", *rows, f"7,{more},yes\n"]))
        seen.add(str(np.asarray(load_source(dataset, "datasets.t").records)[: len(values)].tolist()))
    assert len(seen) == 1


@pytest.mark.parametrize("last", [1, 2])
def test_a_label_below_zero_is_not_the_largest_class_of_all_records(last: int, tmp_path: Path) -> None:
    np.savez(path := tmp_path / "some.npz", records=ROWS, labels=np.array([-1, 0, 1, last] * 5))
    with pytest.raises(UserError, match=r"record 0 of the data set has the label -1"):
        load_source(Dataset(source="arrays", path=str(path), classes=("0", "1", "2")), "datasets.mine")


@pytest.mark.parametrize("zone", [None, "UTC"])
@pytest.mark.parametrize("second", ["12:00:00", "12:00:00.500"])
def test_no_record_changes_the_listed_times_of_others(second: str, zone: str | None, tmp_path: Path) -> None:
    path, end = tmp_path / "t.parquet", "+00:00" if zone else ""
    stated = {"categories": {"seen": [f"2020-01-01 {second}{end}"]}, "other": "rest", "classes": ["no", "yes"]}
    for unit in ("ms", "us", "ns"):  # that of the finest time in the column
        seen = pl.Series([f"2020-01-01T{second}", "2020-01-02T00:00:00"]).str.to_datetime(time_unit=unit)
        pl.DataFrame({"seen": seen.dt.replace_time_zone(zone), "label": ["no", "yes"]}).write_parquet(path)
        records = np.asarray(load_source(Dataset(source="table", path=str(path), **stated), "datasets.t").records)
        assert records.tolist() == [[1, 0], [0, 1]]


@pytest.mark.parametrize(
    ("values", "kind", "section", "words"),
    [
        ([2**63, None], pl.UInt64, {"impute": {"size": -1}}, "impute.size: '-1' does not fit into the column's type"),
        ([1, 2], pl.Duration, {"categories": {"size": ["1"]}}, "column 'size' of .* holds Duration"),
    ],
)
def test_types_of_parquet_that_cannot_be_read_are_one_line(
    values: list[int | None], kind: Any, section: dict[str, Any], words: str, tmp_path: Path
) -> None:
    rows = {"size": pl.Series(values, dtype=kind), "label": ["no", "yes"]}
    pl.DataFrame(rows).write_parquet(path := tmp_path / "t.parquet")
    with pytest.raises(UserError, match=words) as caught:
        load_source(Dataset(source="table", path=str(path), **section), "datasets.t")
    assert "\n" not in str(caught.value)


def test_decimals_of_too_many_digits_are_one_line(tmp_path: Path) -> None:
    sizes = pa.array([Decimal(1), Decimal(2)], pa.decimal256(50, 0))
    pq.write_table(pa.table({"size": sizes, "label": ["no", "yes"]}), path := tmp_path / "t.parquet")
    with pytest.raises(UserError, match="column 'size' holds decimals of more than 38 digits") as caught:
        load_source(Dataset(source="table", path=str(path)), "datasets.t")
    assert "\n" not in str(caught.value)


def test_ids_of_64_bits_without_sign_are_persons(tmp_path: Path) -> None:
    rows = {"who": pl.Series([2**64 - 1, 1, 1], dtype=pl.UInt64), "size": [1.0, 2.0, 3.0], "label": ["no", "yes", "no"]}
    pl.DataFrame(rows).write_parquet(path := tmp_path / "t.parquet")
    ids = load_source(Dataset(source="table", path=str(path), person="who"), "datasets.t").persons
    assert ids is not None and ids.tolist() == [str(2**64 - 1), "1", "1"]


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


def test_a_column_without_any_value_takes_the_constant_of_its_kind(tmp_path: Path) -> None:
    for value in ("", "2"):
        (tmp_path / "t.csv").write_text(f"x,y,label\n,1,no\n{value},2,yes\n,3,no\n,4,yes\n")
        dataset = Dataset(source="table", path=str(tmp_path / "t.csv"), take="first", impute={"x": 0})
        pool = build_pool(load_source(dataset, "datasets.t"), dataset, "t", 0)
        assert pool.audited.data.__array__()[:, 0].tolist() == [0, float(value or 0), 0, 0]
