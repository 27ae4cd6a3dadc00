"""Membership designs."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mia_audit.pools.section import Draw, Membership
from mia_audit.pools.store import draw_columns, draw_membership


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
