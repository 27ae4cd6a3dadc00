"""Which records are the most exposed, and what is said of them."""

import numpy as np
import pytest
from scipy.stats import rankdata

from mia_audit.evaluation.exposure import Halves, estimated, exposure, exposure_columns
from mia_audit.evaluation.metrics import called_above


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


def counted(models, strong, seed, shift=8.0, records=400):
    """Count calls of independent scores, of which some records' depend on membership; return also the true share of hits."""
    random = np.random.default_rng(seed)
    member = random.random((records, models)) < 0.5
    scores = random.normal(size=member.shape) + shift * (member & (np.arange(records) < strong)[:, None])
    halves = [(scores[:, half], member[:, half]) for half in (slice(models // 2), slice(models // 2, None))]
    return Halves.from_scores(("a", "s", "none"), "none", halves, (0.0001, 0.05)), scores, member


def test_counts_are_those_of_each_half_and_survive_packing():
    halves, scores, member = counted(9, 20, 0)
    assert list(halves.hits) == ["0.05"]  # no model resolves the other
    called = called_above(scores, member, 0.05)
    for half, columns in enumerate((slice(4), slice(4, None))):
        inside = member[:, columns]
        assert halves.hits["0.05"][half].tolist() == (called[:, columns] & inside).sum(axis=1).tolist()
        assert halves.alarms["0.05"][half].tolist() == (called[:, columns] & ~inside).sum(axis=1).tolist()
        assert halves.others[half].tolist() == (~inside).sum(axis=1).tolist()
    again = Halves.unpacked(halves.packed())
    assert again.key == halves.key and np.array_equal(again.members, halves.members)
    assert np.array_equal(again.hits["0.05"], halves.hits["0.05"])
    assert estimated(halves, 0.01) is None


def test_records_that_differ_are_listed_with_what_is_true():
    halves, scores, member = counted(16, 12, 1)
    found = estimated(halves, 0.05)
    assert found.differ and set(found.listed) == set(range(12))
    assert (found.reveal[:12] > 0.8).all() and found.reveal[12:].mean() < 0.1
    assert ((found.low <= found.advantage) & (found.advantage <= found.high)).all()
    columns = exposure_columns(scores, member, 0.05, found)
    assert set(np.argsort(columns["rank"])[:12]) == set(range(12)) and set(columns["models"]) == {16}


@pytest.mark.parametrize(("strong", "shift"), [(0, 0.0), (400, 1.0)])
def test_no_record_is_listed_where_all_are_alike(strong, shift):
    for seed in range(5):
        found = estimated(counted(16, strong, seed, shift)[0], 0.05)
        assert not found.differ and not len(found.listed)
        assert np.ptp(found.advantage) == 0.0


def test_one_record_that_every_model_reveals_stands_out():
    found = estimated(counted(24, 1, 2)[0], 0.05)
    assert found.listed.tolist() == [0] and found.low[0] > 0.3
