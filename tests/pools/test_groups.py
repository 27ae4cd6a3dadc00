"""Groups of records: by value, by band, by class, by a person's number of records; from tables, arrays and images."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from PIL import Image

from mia_audit.cli import main
from mia_audit.config.specs import GroupsSpec, PoolSpec
from mia_audit.pools.groups import Grouping, grouping, read_groups
from mia_audit.pools.persons import Persons
from mia_audit.pools.section import Dataset


def of(values: list[object], *edges: float) -> tuple[tuple[str, ...], list[int]]:
    found = grouping("age", pl.Series("age", values), edges, "here")
    return found.labels, found.of.tolist()


def test_words_and_few_numbers_are_groups_of_their_own() -> None:
    assert of(["b", "a", "b"]) == (("a", "b"), [1, 0, 1])
    assert of([3, 1, 3]) == (("1", "3"), [1, 0, 1])
    assert of([True, False]) == (("false", "true"), [1, 0])


def test_bands_hold_their_lower_edge() -> None:
    assert of([17.9, 18, 39, 40, 80], 18, 40) == (("< 18", "[18, 40)", "≥ 40"), [0, 1, 1, 2, 2])


def test_many_numbers_are_cut_at_their_quartiles() -> None:
    labels, places = of(list(range(100)))
    assert labels == ("< 25", "[25, 50)", "[50, 75)", "≥ 75")
    assert np.bincount(places).tolist() == [25, 25, 25, 25]


def test_records_without_a_value_are_a_group() -> None:
    assert of([1.0, None, float("nan"), 2.0]) == (("1", "2", "unknown"), [0, 2, 2, 1])
    assert of([None, "x"]) == (("x", "unknown"), [1, 0])


def test_a_person_is_where_most_of_their_records_are_in_any_order() -> None:
    persons, places = np.array([7, 7, 7, 8, 8, 9]), np.array([1, 0, 1, 1, 0, 1])
    for order in (np.arange(6), np.arange(6)[::-1]):
        numbered = Persons.numbered(persons[order])
        found = Grouping("sex", ("f", "m"), places[order]).of_persons(numbered)
        assert dict(zip(numbered.ids.tolist(), found.of.tolist(), strict=True)) == {7: 1, 8: 0, 9: 1}


@pytest.mark.parametrize(
    ("groups", "words"),
    [
        (["sex", {"sex": [1]}], "'sex' is given twice"),
        ([{"age": [40, 18]}], "in ascending order"),
        (["records"], "give person, which names the person"),
    ],
)
def test_mistakes_in_the_config_are_named(groups: list[object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Dataset.model_validate({"groups": groups})


def grouped(tmp_path: Path, section: dict[str, object]) -> list[Grouping]:
    folder = tmp_path / "pool"
    dataset = Dataset.model_validate(section)
    bare = Dataset.model_validate({key: value for key, value in section.items() if key != "groups"})
    pool = PoolSpec(seed=0, name="d", dataset=bare).write(tmp_path)
    assert main(["pool", "--spec", str(pool), "--out", str(folder)]) == 0
    spec = GroupsSpec(seed=0, name="d", dataset=dataset).write(tmp_path)
    assert main(["groups", "--pool", str(folder), "--spec", str(spec), "--out", str(tmp_path / "groups.parquet")]) == 0
    return read_groups(tmp_path / "groups.parquet")


def labelled(found: Grouping) -> list[str]:
    return [found.labels[place] for place in found.of]


def test_a_tables_columns_follow_its_records(tmp_path: Path) -> None:
    """Also a column that no model sees; records keep their groups although the pool drops some of them."""
    rows = 40
    frame = pl.DataFrame(
        {
            "id": [number // 2 for number in range(rows)],
            "x": [float(number) for number in range(rows)],
            "site": ["north" if number % 4 < 2 else "south" for number in range(rows)],
            "label": [number % 3 for number in range(rows)],
        }
    )
    frame.write_csv(tmp_path / "visits.csv")
    section = {
        "source": "table",
        "path": str(tmp_path / "visits.csv"),
        "person": "id",
        "columns": {"site": "drop"},
        "records": 12,
        "groups": ["site", {"x": [20]}, "records", "class"],
    }
    found = {one.name: labelled(one) for one in grouped(tmp_path, section)}
    kept = pl.read_parquet(tmp_path / "pool" / "records.parquet")["source"].to_list()
    assert len(kept) == 24
    assert list(found) == ["site", "x", "records", "class"]
    assert found["site"] == frame["site"][kept].to_list()
    assert found["x"] == ["≥ 20" if row >= 20 else "< 20" for row in kept]
    assert set(found["records"]) == {"2"}
    assert found["class"] == [str(row % 3) for row in kept]


def test_arrays_have_groups_beside_them(tmp_path: Path) -> None:
    records = np.random.default_rng(0).normal(size=(30, 2))
    np.savez(tmp_path / "all.npz", records=records, labels=np.arange(30) % 2, site=np.repeat(["a", "b", "c"], 10))
    section = {"source": "arrays", "path": str(tmp_path / "all.npz"), "groups": ["site", {"1": [0]}]}
    by_site, by_sign = grouped(tmp_path, section)
    kept = pl.read_parquet(tmp_path / "pool" / "records.parquet")["source"].to_numpy()
    assert labelled(by_site) == np.repeat(["a", "b", "c"], 10)[kept].tolist()
    assert by_sign.of.tolist() == (records[kept, 1] >= 0).astype(int).tolist()


def test_images_have_groups_in_the_file_of_their_persons(tmp_path: Path) -> None:
    names = []
    for number in range(8):
        path = tmp_path / "images" / "ab"[number % 2] / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((4, 4), 10 * number, np.uint8)).save(path)
        names.append(f"{'ab'[number % 2]}/{number}.png")
    table = pl.DataFrame({"file": names, "person": range(8), "camera": ["old", "new"] * 4})
    table.sample(fraction=1, shuffle=True, seed=1).write_csv(tmp_path / "people.csv")
    section = {"source": "images", "path": str(tmp_path / "images"), "person": str(tmp_path / "people.csv")}
    (found,) = grouped(tmp_path, section | {"groups": ["camera"]})
    kept = pl.read_parquet(tmp_path / "pool" / "records.parquet")["label"].to_list()
    assert labelled(found) == ["old" if label == 0 else "new" for label in kept]
