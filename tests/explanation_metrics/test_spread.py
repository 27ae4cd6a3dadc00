import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from mia_audit.explanation_metrics.methods import class_variability, gini


@settings(deadline=None, max_examples=40)
@given(arrays(float, (2, 7), elements=st.floats(-4, 4, width=16)))
def test_gini_is_half_the_relative_mean_difference(maps):
    for row, found in zip(np.abs(maps), gini(maps), strict=True):
        if row.sum() == 0:
            assert np.isnan(found)
        else:
            assert found == pytest.approx(np.abs(row[:, None] - row).mean() / (2 * row.mean()))


def test_gini_runs_from_even_to_one_coordinate():
    assert gini(np.stack([np.full((4, 5), -2.0), np.eye(1, 20, 3).reshape(4, 5)])) == pytest.approx([0, 1 - 1 / 20])


def test_variability_is_the_mean_over_pairs_of_a_class():
    random = np.random.default_rng(0)
    maps, labels = random.normal(size=(9, 3, 4)), np.array([0, 1, 0, 2, 1, 0, 1, 1, 0])
    maps[4] = 0
    found = class_variability(maps, labels)
    flat = maps.reshape(9, -1)
    for row in range(9):
        others = [i for i in range(9) if i not in (row, 4) and labels[i] == labels[row]]
        if row in (3, 4):
            assert np.isnan(found[row]), "the only one of its class, or without a map"
            continue
        cosines = [flat[row] @ flat[i] / np.linalg.norm(flat[row]) / np.linalg.norm(flat[i]) for i in others]
        assert found[row] == pytest.approx(1 - np.mean(cosines))
    same = class_variability(np.repeat(maps[:1], 3, axis=0) * np.array([1, 2, 3])[:, None, None], np.zeros(3))
    assert same == pytest.approx(np.zeros(3), abs=1e-12)
