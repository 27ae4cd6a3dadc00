import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mia_audit.explain.private_local.terms import capped, kernels, published_excess, radius

finite = st.floats(-50, 50, allow_nan=False)


@given(
    kernel=st.sampled_from(kernels.names()),
    away=st.lists(finite, min_size=3, max_size=3),
    explanation=st.lists(finite, min_size=3, max_size=3),
    label=st.floats(-1, 1),
    at_query=st.floats(-1, 1),
    c=st.floats(0.01, 20),
    centred=st.booleans(),
)
def test_no_record_moves_the_gradient_by_more_than_c(kernel, away, explanation, label, at_query, c, centred):
    away, phi = np.array(away), np.array(explanation)
    phi /= max(1.0, np.linalg.norm(phi))
    target, span = (label - at_query, 2.0) if centred else (label, 1.0)
    weight = capped(kernels[kernel], np.linalg.norm(away, keepdims=True), c, span)[0]
    assert np.linalg.norm(2 * weight * away * (phi @ away - target)) <= c * (1 + 1e-9)
    assert 0 <= weight <= 1


def test_the_bound_is_attained():
    """The worst record: an explanation that points away from it, a label of the largest size."""
    distance, c, span = np.array([3.0]), 1.0, 2.0
    weight = capped(kernels["stable"], distance, c, span)[0]
    assert 2 * weight * 3.0 * (3.0 + span) == pytest.approx(c)


def test_the_published_weight_exceeds_its_bound_and_by_so_much():
    distance = np.linspace(0, 5, 200_001)
    for c, span in ((1.0, 1.0), (1.0, 2.0), (0.5, 1.0)):
        brute = (2 * kernels["gaussian"](distance) * distance * (distance + span)).max() / c
        assert published_excess(c, span) == pytest.approx(brute, rel=1e-8)
    assert published_excess(1.0, 1.0) == pytest.approx(1.53, abs=0.005)
    assert published_excess(10.0, 1.0) == 1.0


def test_the_stable_weight_is_one_up_to_the_published_radius():
    assert radius(1.0, 1.0) == pytest.approx((np.sqrt(3) - 1) / 2)
    for span in (1.0, 2.0):
        at = radius(0.7, span) * np.array([0.0, 0.5, 1 - 1e-9, 1 + 1e-6, 2.0])
        weights = capped(kernels["stable"], at, 0.7, span)
        assert (weights[:3] == 1).all()
        assert (weights[3:] < 1).all()
        assert (np.diff(weights) <= 0).all()


@pytest.mark.parametrize("kernel", [lambda distance: 1 / distance, lambda distance: distance * np.nan, np.negative])
def test_no_value_of_a_kernel_of_the_users_own_moves_a_gradient_by_more(kernel):
    distance = np.array([0.0, 1e-9, 0.3, 1.0, 1e6])
    with np.errstate(divide="ignore"):
        weights = capped(kernel, distance, 1.0, 2.0)
        bound = 1 / (2 * distance * (distance + 2))
    assert ((weights >= 0) & (weights <= np.minimum(bound, 1))).all()
