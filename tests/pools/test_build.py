"""Pools: duplicates, disjoint public records, label noise, and constants that are never those of the audited records."""

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mia_audit.errors import UserError
from mia_audit.pools import pools
from mia_audit.pools.build import Pool, build_pool
from mia_audit.pools.section import Dataset, Source, load_source


def table(rows: int = 50) -> Source:
    values = np.random.default_rng(0).normal(3, 2, size=(rows, 4)).astype(np.float32)
    return Source("table", values, np.arange(rows) % 3, ["a", "b", "c"], list("wxyz"))


def build(source: Source, seed: int = 0, **section: Any) -> Pool:
    return build_pool(source, Dataset(source="digits", **section), "some", seed)


def test_all_but_one_of_equal_records_are_dropped_and_counted() -> None:
    source = table()
    source.records[[7, 20]] = source.records[3]
    source.labels[[7, 20]] = source.labels[3]
    pool = build(source)
    assert pool.metadata["duplicates"] == 2
    kept = set(pool.audited.source.tolist())
    assert kept - {3, 7, 20} == set(range(50)) - {3, 7, 20}
    assert len(kept & {3, 7, 20}) == 1
    assert pool.audited.source.tolist() == sorted(kept)
    assert len(set(pool.audited.sha256)) == 48


@pytest.mark.parametrize("equal", [(), (3,), (3, 20)])
@pytest.mark.parametrize("section", [{}, {"take": "first"}, {"records": 30}, {"records": 30, "take": "first"}])
def test_one_more_record_in_the_file_is_at_most_one_more_in_the_pool(
    section: dict[str, Any], equal: tuple[int]
) -> None:
    """Whether it is the first, the second or the third of equal records, or like no other one."""
    more = table(51)
    for row in equal:
        more.records[row], more.labels[row] = more.records[50], more.labels[50]
    fewer = replace(more, records=more.records[:50], labels=more.labels[:50])
    kept, before = (set(build(source, **section).audited.sha256) for source in (more, fewer))
    assert len(kept - before) <= 1 and len(before - kept) <= 1
    if not section:
        assert before <= kept


def test_a_record_of_another_label_takes_nobodys_place() -> None:
    source = table()
    source.records[7] = source.records[3]
    assert source.labels[7] != source.labels[3]
    for take in ("sample", "first"):
        pool = build(source, take=take)
        assert pool.metadata["duplicates"] == 0
        assert {3, 7} <= set(pool.audited.source.tolist())


class Decoded:
    """Records that are read one by one, as images from files are."""

    def __init__(self, records: Any) -> None:
        self.records, self.shape = records, records.shape

    def __len__(self) -> int:
        return len(self.records)

    def __getitem__(self, row: int) -> Any:
        return self.records[row]


@pytest.mark.parametrize("decoded", [False, True])
@pytest.mark.parametrize("place", [0, 17, 50])
def test_a_record_more_displaces_at_most_one(decoded: bool, place: int) -> None:
    """It reshuffled everybody, since the permutation was one of the number of records."""
    source, changed = table(), 0
    start = replace(source, records=Decoded(source.records)) if decoded else source
    before = set(build(start, public=10, records=20).audited.source.tolist())
    for value in range(5):
        records = np.insert(source.records, place, np.full(4, value, np.float32), axis=0)
        labels = np.insert(source.labels, place, 0)
        rows = Decoded(records) if decoded else records
        pool = build(replace(source, records=rows, labels=labels), public=10, records=20)
        after = {row - (row > place) for row in pool.audited.source.tolist() if row != place}
        assert len(before - after) <= 1
        changed += before != after
    assert changed <= 5


def test_public_and_audited_records_are_disjoint_draws_keyed_by_the_seed() -> None:
    first, again, other = (build(table(), seed, public=20, records=25) for seed in (0, 0, 1))
    assert not set(first.public.source) & set(first.audited.source)
    assert (len(first.public.labels), len(first.audited.labels)) == (20, 25)
    assert np.array_equal(first.audited.source, again.audited.source)
    assert not np.array_equal(first.audited.source, other.audited.source)


def test_hashes_are_of_the_records_as_they_came() -> None:
    source = table()
    pool = build(source, public=10, standardise="public")
    row = pool.audited.source[0]
    assert pool.audited.sha256[0] == hashlib.sha256(source.records[row].tobytes()).hexdigest()


def test_columns_are_standardised_by_public_records_alone() -> None:
    source = table()
    pool = build(source, public=20, standardise="public")
    public = source.records[pool.public.source].astype(np.float64)
    expected = (source.records[pool.audited.source] - public.mean(0)) / public.std(0)
    np.testing.assert_allclose(pool.audited.data, expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(np.asarray(pool.public.data).mean(0), 0, atol=1e-6)


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5])
def test_label_noise_makes_that_share_of_labels_wrong(share: float) -> None:
    source = table()
    pool = build(source, label_noise=share)
    wrong = pool.audited.labels != source.labels[pool.audited.source]
    assert wrong.sum() == round(share * 50)
    assert np.array_equal(wrong, pool.audited.flipped)
    assert pool.audited.labels.max() < 3


@pytest.mark.parametrize(
    ("section", "expected"),
    [
        ({"public": 50}, r"some\.public: 50 public records are requested, but 'digits' has 50"),
        ({"public": 20, "records": 31}, r"31 records and 20 public ones are 51, but 'digits' has 50 distinct records"),
    ],
)
def test_more_records_than_there_are_is_a_user_error(section: dict[str, int], expected: str) -> None:
    with pytest.raises(UserError, match=expected):
        build(table(), **section)


@pytest.mark.parametrize(
    ("name", "shape", "classes"), [("digits", (1797, 1, 8, 8), 10), ("breast_cancer", (569, 30), 2)]
)
def test_bundled_pools_have_their_published_size(name: str, shape: tuple[int, ...], classes: int) -> None:
    source = pools[name].load(Dataset(source=name), "datasets.some")
    assert source.records.shape == shape
    assert len(source.classes) == classes == len(set(source.labels))
    assert source.records.dtype == (np.uint8 if source.kind == "image" else np.float32)


def test_digits_keep_their_17_grey_levels() -> None:
    from sklearn.datasets import load_digits

    pixels = pools["digits"].load(Dataset(source="digits"), "datasets.some").records[:, 0]  # type: ignore[index]
    assert np.array_equal(np.rint(pixels / 255 * 16), load_digits().images)


def test_public_records_in_a_file_of_their_own(tmp_path: Path) -> None:
    values = np.arange(24, dtype=np.float32).reshape(12, 2)
    (tmp_path / "public").mkdir()
    for folder, rows in ((tmp_path, slice(0, 10)), (tmp_path / "public", slice(8, 12))):
        np.save(folder / "records.npy", values[rows])
        np.save(folder / "labels.npy", np.array([0, 1] * 6)[rows])
    section = Dataset(
        source="arrays", path=str(tmp_path), public={"path": str(tmp_path / "public")}, standardise="public"
    )
    pool = build_pool(load_source(section, "datasets.some"), section, "some", 0)
    assert pool.public.source.tolist() == [0, 1, 2, 3] and pool.public.labels.tolist() == [0, 1, 0, 1]
    assert pool.metadata["centre"] == [19, 20]
    assert pool.audited.source.tolist() == list(range(8))  # the last two equal public ones
    assert pool.metadata["duplicates"] == 2
    np.save(tmp_path / "public" / "records.npy", values[8:, :1])
    with pytest.raises(UserError, match=r"public\.path: .*rows of \[1\] numbers, and other columns, such as '1'"):
        build_pool(load_source(section, "datasets.some"), section, "some", 0)
    np.save(tmp_path / "public" / "labels.npy", np.array([0, 1, 2, 0]))
    with pytest.raises(UserError, match=r"public\.classes: 1 of 4 records have another class, such as '2'"):
        build_pool(load_source(section, "datasets.some"), section, "some", 0)
