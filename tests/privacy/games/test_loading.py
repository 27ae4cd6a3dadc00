"""The game of the file: one record more, of whatever values, leaves what is read of all others as it was, or nothing is read."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from PIL import Image

from mia_audit.errors import UserError
from mia_audit.pools import scaling
from mia_audit.pools.build import build_pool
from mia_audit.pools.section import Dataset, load_source

COUNT = 12
ROWS: dict[str, list[Any]] = {
    "code": [1 + row % 3 for row in range(COUNT)],
    "share": [(row % 4) / 2 for row in range(COUNT)],
    "smoker": [row % 5 < 2 for row in range(COUNT)],
    "size": [row / 8 for row in range(COUNT)],
    "person": [row // 2 for row in range(COUNT)],
    "label": [row % 2 for row in range(COUNT)],
}
STATED = {
    "categories": {"code": (1, 2, 3, -1), "share": (0, 0.5, 1, 1.5), "smoker": (True, False)},
    "other": "another",
    "classes": (0, 1),
}
ODD = {
    "code": ["1.5", "x", "007", " 1", "1e3", "true", "99999999999999999999"],
    "share": ["1", "x", "00", "inf", "1,5"],
    "smoker": ["x", "1", "TRUE"],
    "size": ["1e30", "7", "x", "1,5", "01"],
    "person": ["x", "007", " 3", "1.5"],
    "label": ["1.0", " 1", "01"],
}


def written(path: Path, rows: dict[str, list[str]], ending: str) -> Path:
    """Write a table as text, or with the type that each column of text has for those who read it."""
    text = pl.DataFrame(rows)
    text.write_csv(path.with_suffix(".csv"))
    if ending == ".parquet":
        pl.read_csv(path.with_suffix(".csv"), infer_schema_length=None).write_parquet(path.with_suffix(ending))
    return path.with_suffix(ending)


def read(path: Path, **keys: Any) -> tuple[list[Any], int] | None:
    """Return the records of the pool of a file with their labels, and the number of its units; None if it is refused."""
    section = Dataset(source="table", path=str(path), person="person", take="first", **STATED, **keys)  # type: ignore[arg-type]
    try:
        pool = build_pool(load_source(section, "datasets.t"), section, "t", 0)
    except UserError:
        return None
    side = pool.audited
    assert side.persons is not None
    rows = np.asarray(side.data).tolist()
    return list(zip(rows, side.labels.tolist(), strict=True)), len(np.unique(side.persons))


def moved(folder: Path, ending: str, **keys: Any) -> set[tuple[str, str]]:
    """Return the columns and values of one record more that change the other records, or more than one unit."""
    plain = {name: [str(value).lower() for value in values] for name, values in ROWS.items()}
    plain["code"][4] = "-01"
    plain["person"] = [{6: " 3", 8: "+4"}.get(row, one) for row, one in enumerate(plain["person"])]
    known, found = read(written(folder / "plain", plain, ending), **keys), set()
    assert known is not None
    for name, values in ODD.items():
        for value in values:
            more = {column: [*those, value if column == name else those[0]] for column, those in plain.items()}
            more["person"][-1] = value if name == "person" else "99"
            neighbour = read(written(folder / "more", more, ending), **keys)
            if neighbour and (neighbour[0][:COUNT] != known[0] or neighbour[1] - known[1] not in (0, 1)):
                found.add((name, value))
    return found


@pytest.mark.parametrize("ending", [".csv", ".parquet"])
def test_one_record_more_leaves_all_others_as_they_are(tmp_path: Path, ending: str) -> None:
    assert moved(tmp_path, ending) == set()


def test_values_that_are_spelled_by_the_type_of_their_column_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scaling, "spelled", lambda text: text)
    assert ("code", "1.5") in moved(tmp_path, ".parquet")


def colour(size: int) -> Image.Image:
    return Image.fromarray(np.full((size, size, 3), 90, np.uint8))


def deep(size: int) -> Image.Image:
    return Image.fromarray(np.full((size, size), 40_000, np.uint16))


@pytest.mark.parametrize("make", [colour, deep])
def test_one_image_more_leaves_all_others_as_they_are(tmp_path: Path, make: Callable[[int], Image.Image]) -> None:
    random, pools = np.random.default_rng(0), []
    ids = tmp_path / "persons.csv"
    ids.write_text(
        "file,person\n" + "".join(f"{'ab'[row % 2]}/{row:02d}.png,{row // 2:0{1 + row % 2}d}\n" for row in range(COUNT))
    )
    for row in range(COUNT):
        path = tmp_path / "ab"[row % 2] / f"{row:02d}.png"
        path.parent.mkdir(exist_ok=True)
        Image.fromarray(random.integers(0, 256, (9, 7), dtype=np.uint8)).save(path)
    keys: dict[str, Any] = {"size": 8, "convert": "grey", "take": "first", "classes": ("a", "b"), "person": str(ids)}
    section = Dataset(source="images", path=str(tmp_path), **keys)
    for more in (False, True):
        if more:
            make(20).save(tmp_path / "b" / "99.png")
            ids.write_text(ids.read_text() + "b/99.png,x\n")
        pools.append(build_pool(load_source(section, "datasets.t"), section, "t", 0).audited)
    records, persons = zip(*((np.asarray(one.data), one.persons) for one in pools), strict=True)
    assert np.array_equal(records[0], records[1][:COUNT]) and len(records[1]) == COUNT + 1
    assert len(np.unique(persons[1])) == len(np.unique(persons[0])) + 1
