"""Which records are the most exposed."""

import numpy as np
from scipy.stats import rankdata

from mia_audit.evaluation import exposure


def test_columns_are_means_over_targets():
    rng = np.random.default_rng(0)
    scores, member = rng.integers(0, 9, (30, 6)).astype(float), rng.random((30, 6)) < 0.5
    member[:, 0], member[:, 1] = True, False
    table = exposure(scores, member)
    shares = np.column_stack([(rankdata(column) - 0.5) / 30 for column in scores.T])
    for record in range(30):
        inside, outside = scores[record, member[record]].mean(), scores[record, ~member[record]].mean()
        assert table["member_score"][record] == inside and table["gap"][record] == inside - outside
        np.testing.assert_allclose(table["percentile"][record], shares[record, member[record]].mean())
    assert sorted(table["rank"]) == list(range(1, 31))
    assert table["gap"][table["rank"] == 1] == table["gap"].max()


def test_records_without_a_gap_rank_last():
    scores = np.array([[1.0, 2.0], [np.nan, 1.0], [5.0, 1.0]])
    member = np.array([[True, True], [True, False], [True, False]])
    table = exposure(scores, member)
    np.testing.assert_array_equal(table["rank"], [2, 3, 1])
    assert np.isnan(table["gap"][:2]).all()


def test_members_of_a_single_target_rank_by_their_percentiles():
    table = exposure(np.array([[1.0], [9.0], [5.0], [np.nan]]), np.array([[True], [False], [True], [True]]))
    assert np.isnan(table["gap"]).all() and table["rank"].tolist() == [2, 3, 1, 4]
