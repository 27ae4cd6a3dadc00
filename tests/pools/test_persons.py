"""Persons: where their ids come from, and that nothing ever separates their records."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from mia_audit.cli import main
from mia_audit.errors import UserError
from mia_audit.explain.private_local.records import ExplanationSet
from mia_audit.pools import pools
from mia_audit.pools.build import Pool, build_pool
from mia_audit.pools.persons import Persons, check_apart, ids_of_column, ids_of_files, numbered_ids
from mia_audit.pools.section import Dataset, Draw, Membership, Source, load_source
from mia_audit.pools.store import (
    draw_membership,
    draw_training_sets,
    persons_of,
    read_membership,
    read_records,
    write_pool,
)
from mia_audit.storage import read_table, write_table

from .conftest import pool_command


def source(ids: np.ndarray, distinct: int = 1000) -> Source:
    """A table whose records repeat where `distinct` is small."""
    random = np.random.default_rng(0)
    rows = random.standard_normal((distinct, 3)).astype(np.float32)[random.integers(0, distinct, len(ids))]
    return Source("table", rows, np.arange(len(ids)) % 2, ["a", "b"], ["x", "y", "z"], persons=ids)


def build(ids: np.ndarray, distinct: int = 1000, **section: Any) -> Pool:
    return build_pool(source(ids, distinct), Dataset(source="mine", person="id", **section), "mine", 0)


@given(
    ids=st.lists(st.integers(0, 12), min_size=30, max_size=60),
    public=st.integers(0, 3),
    take=st.sampled_from(["sample", "first"]),
    distinct=st.sampled_from([20, 1000]),
    seed=st.integers(0, 3),
)
@settings(deadline=None, max_examples=30)
def test_no_person_is_ever_split(ids: list[int], public: int, take: str, distinct: int, seed: int) -> None:
    ids[:6] = range(6)
    column = np.array(ids)
    data = source(column, distinct)
    section = Dataset(source="mine", person="id", take=take, records=2, public=public, label_noise=0.5)  # type: ignore[arg-type]
    pool = build_pool(data, section, "mine", seed)
    audited, outside = pool.audited, pool.public
    assert audited.persons is not None and outside.persons is not None
    assert len(np.unique(audited.persons)) == 2 and len(np.unique(outside.persons)) == public
    assert not np.intersect1d(audited.persons, outside.persons).size
    for person in np.unique(audited.persons):
        assert (audited.persons == person).sum() == (column == person).sum()
    owners = Persons.numbered(audited.persons)
    assert np.array_equal(owners.spread(owners.gathered(audited.flipped, "noise")), audited.flipped)


@given(
    ids=st.lists(st.integers(0, 9), min_size=10, max_size=40), design=st.sampled_from(["half", "bernoulli", "split"])
)
@settings(deadline=None, max_examples=20)
def test_membership_goes_by_persons(ids: list[int], design: Any) -> None:
    persons = Persons.numbered(np.array(ids))
    drawn = draw_membership(Membership(design=design, models=5), len(persons), "d", 0)
    member = persons.spread(drawn)
    assert np.array_equal(persons.gathered(member, "membership"), drawn)
    for person in set(ids):
        assert len(np.unique(member[np.array(ids) == person], axis=0)) == 1


@pytest.mark.parametrize("take", ["sample", "first"])
def test_with_one_record_a_person_the_pool_is_that_of_records(take: str) -> None:
    ids = np.random.default_rng(1).permutation(90)
    section: dict[str, Any] = {"take": take, "records": 30, "public": 10, "label_noise": 0.3}
    by_person, by_record = build(ids, 10**6, **section), build(ids, 10**6, **section, unit="record")
    for side in ("audited", "public"):
        one, other = getattr(by_person, side), getattr(by_record, side)
        for name in ("labels", "source", "flipped", "persons"):
            assert np.array_equal(getattr(one, name), getattr(other, name)), name
        assert one.sha256 == other.sha256
        assert np.array_equal(np.asarray(one.data), np.asarray(other.data))
    assert by_person.metadata == by_record.metadata | {key: by_person.metadata[key] for key in ("unit", "section")}


@pytest.mark.parametrize("take", ["first", "sample"])
def test_a_person_whose_records_equal_those_of_others_changes_nobody_else(take: str) -> None:
    others = np.repeat(np.arange(25), 2)
    rows = np.arange(50, dtype=np.float32)[:, None]
    labels = others % 2

    def kept(persons: np.ndarray, rows: np.ndarray, labels: np.ndarray) -> list[tuple[int, float]]:
        data = Source("table", rows, labels, ["a", "b"], ["x"], persons=persons)
        pool = build_pool(data, Dataset(source="mine", person="id", take=take), "mine", 0)
        assert pool.metadata["duplicates"] == 0 and pool.audited.persons is not None
        values = np.asarray(pool.audited.data)[:, 0].tolist()
        return sorted(zip(pool.audited.persons.tolist(), values, strict=True))

    copies = np.full(50, 99)
    before = kept(others, rows, labels)
    after = kept(np.append(copies, others), np.vstack([rows, rows]), np.append(labels, labels))
    assert [one for one in after if one[0] != 99] == before
    assert len(after) == 100


def test_one_more_record_displaces_at_most_one_person() -> None:
    ids = np.arange(200) // 4
    for extra in (0, 17, 99):
        before = build(ids[:-1], records=20).audited.persons
        after = build(np.append(ids[:-1], extra), records=20).audited.persons
        assert before is not None and after is not None
        assert len(np.setdiff1d(before, after)) <= 1


def test_too_many_persons_are_asked_for() -> None:
    with pytest.raises(UserError, match=r"9 persons and 2 public ones are 11, but 'mine' has 10 persons"):
        build(np.arange(40) % 10, records=9, public=2)


def test_a_table_goes_to_membership_by_person(tmp_path: Path) -> None:
    frame = pl.DataFrame({"who": [f"p{i // 3}" for i in range(60)], "x": np.arange(60.0), "label": [0, 1] * 30})
    frame.write_csv(tmp_path / "t.csv")
    section = {"source": "table", "path": str(tmp_path / "t.csv"), "person": "who", "public": 4}
    assert pool_command(section, tmp_path / "pool") == 0
    records = read_records(tmp_path / "pool")
    assert records.metadata["features"] == ["x"]
    assert records.persons is not None and len(records.persons) == 48
    spec = tmp_path / "spec.json"
    spec.write_text(json.dumps({"seed": 0, "dataset": "mine", "membership": {"models": 5}, "unit": "person"}))
    out = tmp_path / "pool" / "membership.parquet"
    assert (
        main(["membership", "--spec", str(spec), "--records", str(out.with_name("records.parquet")), "--out", str(out)])
        == 0
    )
    member = Persons.numbered(records.persons).gathered(read_membership(out), "m")
    assert (member.sum(axis=0) == 8).all()
    drawn = draw_training_sets(Draw(unit="person"), out.with_name("records.parquet"), "mine", 0, [4, 2])
    assert np.array_equal(drawn, read_membership(out)[:, [4, 2]])


def test_rows_may_be_drawn_all_the_same_with_a_warning(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    frame = pl.DataFrame({"who": np.arange(60) // 3, "x": np.arange(60.0), "label": [0, 1] * 30})
    frame.write_csv(tmp_path / "t.csv")
    section = {"source": "table", "path": str(tmp_path / "t.csv"), "person": "who", "public": 12, "unit": "record"}
    assert pool_command(section, tmp_path / "pool") == 0
    assert "public records belong to persons with" in capsys.readouterr().err


def test_arrays_name_persons_in_an_array_of_their_own(tmp_path: Path) -> None:
    arrays = {"records": np.random.default_rng(0).standard_normal((8, 2)), "labels": np.arange(8) % 2}
    np.savez(tmp_path / "a.npz", **arrays, writer=np.array(list("aabbccdd")))  # type: ignore[arg-type]
    dataset = Dataset(source="arrays", path=str(tmp_path / "a.npz"), person="writer")
    found = pools["arrays"].load(dataset, "datasets.mine").persons
    assert found is not None and found.tolist() == list("aabbccdd")
    np.savez(tmp_path / "a.npz", **arrays, writer=np.arange(8) / 2)  # type: ignore[arg-type]
    with pytest.raises(UserError, match="whole numbers or text"):
        pools["arrays"].load(dataset, "datasets.mine")
    np.savez(tmp_path / "a.npz", **arrays, writer=np.arange(7))  # type: ignore[arg-type]
    with pytest.raises(UserError, match="7 ids for 8 records"):
        pools["arrays"].load(dataset, "datasets.mine")


def test_images_name_persons_by_pattern_or_by_file(tmp_path: Path) -> None:
    names = [f"{kind}/{person}_{number}.png" for kind in ("cat", "dog") for person in "uv" for number in range(2)]
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        Image.new("L", (4, 4)).save(tmp_path / name)
    pl.DataFrame({"file": names, "person": list("abcdefgh")}).write_csv(tmp_path / "who.csv")
    for named, expected in (("{person}_*.png", list("uuvvuuvv")), (str(tmp_path / "who.csv"), list("abcdefgh"))):
        dataset = Dataset(source="images", path=str(tmp_path), person=named)
        found = pools["images"].load(dataset, "datasets.mine").persons
        assert found is not None and found.tolist() == expected


@pytest.mark.parametrize(
    ("named", "words"),
    [
        ("{person}-*", "1 of 1 file names do not match"),
        ("person_*", "neither a .csv file nor a pattern"),
        ("none.csv", "no such file"),
    ],
)
def test_images_without_a_person_are_refused(named: str, words: str) -> None:
    with pytest.raises(UserError, match=words) as raised:
        ids_of_files(named, ["cat/u_0.png"], ["u_0.png"], "datasets.mine")
    assert "\n" not in str(raised.value)


OWN = """
import numpy as np
from mia_audit.pools.section import Source, pool

@pool("", "person")
def own(dataset, where):
    return Source("table", np.ones((4, 1), "f4"), np.arange(4) % 2, ["0", "1"], ["x"], persons=np.array({ids}))
"""


@pytest.mark.parametrize("word", ["nan", "NA", "None", " ", "<NA>"])
def test_a_word_for_no_id_is_nobody_from_every_source(word: str, tmp_path: Path) -> None:
    ids = ["a", word, word, "b"]
    names = [f"{number % 2}/{who}_{number}.png" for number, who in enumerate(ids)]
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        Image.new("L", (4, 4)).save(tmp_path / name)
    pl.DataFrame({"file": names, "person": ids}).write_csv(tmp_path / "who.csv")
    pl.DataFrame({"x": [0.5, 1.5, 2.5, 3.5], "who": ids, "label": [0, 1, 0, 1]}).write_csv(tmp_path / "t.csv")
    np.savez(tmp_path / "a.npz", records=np.ones((4, 1)), labels=np.arange(4) % 2, who=np.array(ids))
    (tmp_path / "own.py").write_text(OWN.format(ids=ids))
    for kind, path, person in (
        ("table", tmp_path / "t.csv", "who"),
        ("arrays", tmp_path / "a.npz", "who"),
        ("images", tmp_path, "{person}_*"),
        ("images", tmp_path, str(tmp_path / "who.csv")),
        (f"{tmp_path / 'own.py'}:own", "", "who"),
    ):
        with pytest.raises(UserError, match="has no id for 2 of 4 records"):
            load_source(Dataset(source=kind, path=str(path), person=person), "datasets.mine")
    with pytest.raises(UserError, match="has no id for 2 of 4 records"):
        ExplanationSet.from_arrays(np.ones((4, 1)), np.zeros(4), persons=np.array(ids))


@pytest.mark.parametrize(
    ("column", "words"),
    [
        (["a", None, "b", None], "has no id for 2 of 4 records .first in row 2."),
        ([1.0, 2.0, 3.5, 4.0], "expected ids as whole numbers or text"),
        (None, "has no column 'who' beside the label"),
    ],
)
def test_a_bad_person_column_is_one_line(
    column: Any, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    frame = pl.DataFrame({"x": [1.0, 2.0, 3.0, 4.0], "label": [0, 1, 0, 1]})
    (frame.with_columns(pl.Series("who", column)) if column else frame).write_parquet(tmp_path / "t.parquet")
    assert pool_command({"source": "table", "path": str(tmp_path / "t.parquet"), "person": "who"}, tmp_path / "p") == 2
    message = capsys.readouterr().err
    assert message.count("\n") == 1
    assert pl.Series([message]).str.contains(words)[0], message


def public_of(folder: Path, ids: pa.Array) -> None:
    table = read_table(folder / "public.parquet", "records")
    place = table.column_names.index("person")
    write_table(folder / "public.parquet", table.set_column(place, "person", ids), "records", len(table))


def test_persons_on_both_sides_are_refused_whatever_the_types_of_their_ids(tmp_path: Path) -> None:
    write_pool(build(np.arange(40) // 4, public=2), tmp_path)
    persons = persons_of(tmp_path / "records.parquet")
    assert len(persons) == 8 and persons.records.tolist() == [4] * 8
    public_of(tmp_path, pa.array(np.repeat(persons.ids[:2], 4)))
    with pytest.raises(UserError, match="2 persons also have audited records"):
        persons_of(tmp_path / "records.parquet")
    public_of(tmp_path, pa.array([f"{number}" for number in range(8)]))
    with pytest.raises(
        UserError, match=f"{len({*range(8)} & {*persons.ids.tolist()})} persons also have audited records"
    ):
        persons_of(tmp_path / "records.parquet")


def test_a_pool_without_persons_is_no_pool_of_persons(tmp_path: Path) -> None:
    data = source(np.arange(10))
    write_pool(
        build_pool(Source("table", data.records, data.labels, ["a", "b"], ["x"]), Dataset(source="m"), "m", 0), tmp_path
    )
    with pytest.raises(UserError, match="no column 'person'"):
        persons_of(tmp_path / "records.parquet")


def test_a_unit_without_persons_is_refused() -> None:
    with pytest.raises(ValueError, match="unit: person needs the key person"):
        Dataset(source="mine", unit="person")


@pytest.mark.parametrize("odd", ["a\x1f", "a\0", "a\x85b"])
def test_ids_with_control_characters_are_refused(odd: str) -> None:
    """NumPy drops some from the end of a text: two persons would be one."""
    ids = ["a", odd, "b"]
    with pytest.raises(UserError, match="holds an id with a control character"):
        ids_of_column(pl.Series(ids), "person")
    if "\0" not in odd:
        with pytest.raises(UserError, match="holds an id with a control character"):
            numbered_ids(np.array(ids), "persons")
    assert numbered_ids(np.array(["a\t", " a", "b\n"]), "persons").tolist() == ["a", "a", "b"]


def test_persons_are_compared_as_text_whatever_the_others_ids_are() -> None:
    numbers = np.arange(3)
    check_apart(np.array(["a", "7"]), numbers, "a", "p")
    check_apart(numbers, np.array(["a", "07"]), "a", "p")
    for one, other in ((numbers, np.array(["a", "2"])), (np.array(["a", "0"]), numbers)):
        with pytest.raises(UserError, match="1 persons also have audited records"):
            check_apart(one, other, "a", "p")
