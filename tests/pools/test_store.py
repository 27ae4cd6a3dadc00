"""Pools on disk: what was written comes back, and damage is named."""

from pathlib import Path

import numpy as np
import pytest

from mia_audit.errors import UserError
from mia_audit.pools import pools
from mia_audit.pools.build import build_pool
from mia_audit.pools.section import Dataset
from mia_audit.pools.store import read_membership, read_records, write_membership, write_pool


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    section = Dataset(source="digits", records=30, public=20)
    write_pool(build_pool(pools["digits"].load(section, "datasets.digits"), section, "digits", 0), tmp_path)
    return tmp_path


def test_a_pool_comes_back_as_it_was(folder: Path) -> None:
    section = Dataset(source="digits", records=30, public=20)
    pool = build_pool(pools["digits"].load(section, "datasets.digits"), section, "digits", 0)
    for stem, records in (("records", pool.audited), ("public", pool.public)):
        stored = read_records(folder, stem)
        assert np.array_equal(stored.data, records.data)
        assert np.array_equal(stored.labels, records.labels)
        assert stored.metadata == pool.metadata


def test_records_are_memory_mapped(folder: Path) -> None:
    assert isinstance(read_records(folder).data, np.memmap)


def test_a_pool_without_public_records_can_be_written_and_read(tmp_path: Path) -> None:
    section = Dataset(source="digits", records=30)
    write_pool(build_pool(pools["digits"].load(section, "datasets.digits"), section, "digits", 0), tmp_path)
    assert len(read_records(tmp_path, "public").data) == 0


@pytest.mark.parametrize("name", ["records.npy", "records.parquet"])
def test_a_truncated_file_is_named(folder: Path, name: str) -> None:
    path = folder / name
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(UserError, match=rf"{name}: .*[Dd]elete it and run again"):
        read_records(folder)


def test_arrays_and_tables_that_disagree_are_named(folder: Path) -> None:
    np.save(folder / "records.npy", np.zeros((3, 1, 8, 8), dtype=np.uint8))
    with pytest.raises(UserError, match=r"3 records, but records\.parquet beside it has 30"):
        read_records(folder)


def test_membership_comes_back_whole_or_by_shadow(tmp_path: Path) -> None:
    path = tmp_path / "membership.parquet"
    membership = np.random.default_rng(0).random((40, 5)) < 0.5
    write_membership(path, membership, {"design": "bernoulli"})
    assert np.array_equal(read_membership(path), membership)
    assert np.array_equal(read_membership(path, [3, 1]), membership[:, [3, 1]])
    with pytest.raises(UserError, match="no column '7'"):
        read_membership(path, [7])


def test_an_array_with_a_flipped_bit_is_named(folder: Path) -> None:
    content = bytearray((folder / "records.npy").read_bytes())
    content[-9] ^= 16
    (folder / "records.npy").write_bytes(content)
    with pytest.raises(UserError, match=r"records\.npy: damaged"):
        read_records(folder)
