"""Pools and memberships on disk: what was drawn and written comes back, and damage is named."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mia_audit.errors import UserError
from mia_audit.pools import pools
from mia_audit.pools.build import build_pool
from mia_audit.pools.section import Dataset, Draw, Membership
from mia_audit.pools.store import (
    draw_columns,
    draw_membership,
    read_membership,
    read_records,
    write_membership,
    write_pool,
)


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


@given(records=st.integers(2, 200), models=st.integers(4, 20), seed=st.integers(0, 5))
@settings(deadline=None, max_examples=30, derandomize=True)
def test_half_gives_every_model_exactly_half_of_the_pool(records: int, models: int, seed: int) -> None:
    membership = draw_membership(Membership(design="half", models=models), records, "d", seed)
    assert membership.shape == (records, models)
    assert (membership.sum(axis=0) == records // 2).all()


@given(records=st.integers(2, 200), share=st.floats(0.01, 0.99))
@settings(deadline=None, max_examples=30, derandomize=True)
def test_split_gives_every_model_its_share_and_leaves_some_out(records: int, share: float) -> None:
    inside = draw_membership(Membership(design="split", share=share, models=4), records, "d", 0).sum(axis=0)
    assert np.unique(inside).size == 1
    assert 1 <= inside[0] <= records - 1
    assert abs(inside[0] - share * records) <= 1
    assert draw_membership(Membership(design="split"), 100, "d", 0).sum(axis=0).tolist() == [80] * 17


@pytest.mark.parametrize("design", ["half", "bernoulli", "split"])
def test_a_column_depends_on_its_shadow_alone(design: str) -> None:
    drawn = Membership(design=design, models=9).model_dump(exclude={"models"})
    few = draw_membership(Membership(design=design, models=5), 100, "d", 0)
    many = draw_membership(Membership(design=design, models=9), 100, "d", 0)
    assert np.array_equal(few, many[:, :5])
    assert np.array_equal(many[:, [7, 2]], draw_columns(Draw(**drawn), 100, "d", 0, [7, 2]))
    assert not np.array_equal(few, draw_membership(Membership(design=design, models=5), 100, "other", 0))
    assert not np.array_equal(few, draw_membership(Membership(design=design, models=5), 100, "d", 1))


def test_bernoulli_is_a_fair_coin_per_cell() -> None:
    membership = draw_membership(Membership(design="bernoulli", models=50), 1000, "d", 0)
    assert abs(membership.mean() - 0.5) < 4 * 0.5 / np.sqrt(membership.size)
    assert membership.sum(axis=0).std() == pytest.approx(np.sqrt(1000) / 2, rel=0.4)


def test_the_number_of_members_of_a_record_varies_between_records() -> None:
    """A design that fixed it would let the other models' members give the target's away."""
    membership = draw_membership(Membership(models=16), 1000, "d", 0)
    assert membership.sum(axis=1).var() == pytest.approx(16 / 4, rel=0.2)
