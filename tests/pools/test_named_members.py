"""Which records of a pool a finished model was trained on, as its owner names them."""

from pathlib import Path

import numpy as np
import pytest

from mia_audit.errors import UserError
from mia_audit.pools.named_members import named_members
from mia_audit.pools.section import Dataset

ROWS = np.array([0, 2, 3])  # of five rows of the source, the others being duplicates or public


@pytest.fixture
def dataset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Dataset:
    monkeypatch.chdir(tmp_path)
    Path("table.csv").write_text("id,x,label,trained\n7,1,a,1\n8,2,b,0\n9,3,a,0\n10,4,b,1\n11,5,a,0\n")
    Path("rows.txt").write_text("0\n4\n")
    Path("ids.txt").write_text("10\n\n8\n")
    Path("marked.txt").write_text("0\n4\n", encoding="utf-8-sig")
    np.save("rows.npy", np.array([3, 4]))
    np.save("truth.npy", np.array([True, False, True, False, False]))
    return Dataset(source="table", path="table.csv")


@pytest.mark.parametrize(
    ("members", "identifier", "inside"),
    [
        ("rows.txt", "", [True, False, False]),
        ("ids.txt", "id", [False, False, True]),
        ("marked.txt", "", [True, False, False]),
        ("rows.npy", "", [False, False, True]),
        ("truth.npy", "", [True, True, False]),
        ("column:trained", "", [True, False, True]),
    ],
)
def test_members_are_named_by_rows_ids_or_a_column(
    dataset: Dataset, members: str, identifier: str, inside: list[bool]
) -> None:
    assert named_members(dataset, members, identifier, ROWS, 5, "targets.release").tolist() == inside


@pytest.mark.parametrize(
    ("members", "identifier", "message"),
    [
        ("no.txt", "", "no.txt: no such file; expected ids"),
        ("ids.txt", "", "row 10, but the data set has the rows 0 to 4"),
        ("rows.txt", "id", "column 'id' has no 0, 4 (2 such ids in all)"),
        ("rows.txt", "idd", "table.csv has no column 'idd': did you mean 'id'"),
        ("column:x", "", "column 'x' holds '2'; expected true and false"),
        ("none.txt", "", "none of the pool's 3 records are training records"),
        ("float.npy", "", "float64 of shape [5]; expected row numbers, or 5 truth values"),
        ("word.txt", "", "'Anna' is not a row number (counted from 0)"),
        ("square.txt", "", "'²' is not a row number"),
        ("long.txt", "", "'99999999999999999999' is not a row number"),
        ("longer.txt", "", f"'{'9' * 80}' is not a row number"),
        ("latin.txt", "", "latin.txt: not text in UTF-8"),
    ],
)
def test_a_mistake_says_what_was_expected(dataset: Dataset, members: str, identifier: str, message: str) -> None:
    Path("none.txt").write_text("1\n4\n")
    Path("word.txt").write_text("Anna\n")
    Path("square.txt").write_text("²\n")
    Path("long.txt").write_text("9" * 20)
    Path("longer.txt").write_text("9" * 5000)
    Path("latin.txt").write_bytes(b"\xe9\n")
    np.save("float.npy", np.zeros(5))
    with pytest.raises(UserError) as error:
        named_members(dataset, members, identifier, ROWS, 5, "targets.release")
    assert str(error.value).startswith("targets.release") and message in str(error.value)


def test_images_have_no_columns(dataset: Dataset) -> None:
    with pytest.raises(UserError, match="only tables in a file have columns"):
        named_members(Dataset(source="digits"), "column:trained", "", ROWS, 5, "targets.release")
