"""Mean curves on a logarithmic grid, read as step functions."""

import numpy as np
import pytest

from mia_audit.evaluation import log_grid, mean_log_roc, roc_curve, tpr_at_fpr


def test_the_mean_curve_is_the_mean_of_exact_read_outs():
    rng = np.random.default_rng(0)
    targets = [(rng.integers(0, 20, 100).astype(float), rng.random(100) < 0.5) for _ in range(3)]
    grid = log_grid(50, points=7)
    mean, sd = mean_log_roc(targets, grid)
    expected = np.array([[tpr_at_fpr(scores, member, fpr) for fpr in grid] for scores, member in targets])
    np.testing.assert_allclose(mean, expected.mean(0))
    np.testing.assert_allclose(sd, expected.std(0, ddof=1))
    assert (grid[0], grid[-1]) == (1 / 50, 1.0)


def test_one_target_has_no_spread():
    mean, sd = mean_log_roc([(np.arange(10.0), np.arange(10) > 4)], log_grid(5))
    assert (mean == 1).all() and (sd == 0).all()


def test_a_curve_needs_both_kinds():
    with pytest.raises(ValueError, match="one scored member and one scored non-member"):
        roc_curve(np.array([1.0, np.nan]), np.array([True, False]))
