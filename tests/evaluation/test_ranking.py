"""The ranking that every metric is read off: both ways to sort, against counting."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mia_audit.evaluation.metrics import Ranking, _integers, metrics_of_columns, target_metrics

value = st.sampled_from([-np.inf, -3.5, -1.5, -1e-40, -0.0, 0.0, 1e-40, 1.0, 2.0, np.inf, np.nan])
labelled = st.lists(st.tuples(value, st.booleans()), max_size=40)


@pytest.mark.parametrize("kind", [np.float32, np.float64])
@settings(deadline=None, max_examples=200, derandomize=True)
@given(pairs=labelled)
def test_counts_are_those_of_every_threshold(kind, pairs):
    scores = np.array([score for score, _ in pairs], dtype=kind)
    member = np.array([inside for _, inside in pairs], dtype=bool)
    ranking = Ranking(scores, member)
    levels = sorted({score for score in scores.tolist() if not np.isnan(score)})
    assert ranking.missed.tolist() == [int((member & (scores <= level)).sum()) for level in levels]
    assert ranking.spared.tolist() == [int((~member & (scores <= level)).sum()) for level in levels]
    known = ~np.isnan(scores)
    assert (ranking.members, ranking.non_members) == (int((member & known).sum()), int((~member & known).sum()))


@settings(deadline=None, max_examples=200, derandomize=True)
@given(columns=st.lists(st.lists(st.tuples(value, st.booleans()), min_size=7, max_size=7), min_size=1, max_size=5))
def test_columns_ranked_at_once_have_the_metrics_of_each(columns):
    scores = np.array([[score for score, _ in column] for column in columns], dtype=np.float32).T
    member = np.array([[inside for _, inside in column] for column in columns], dtype=bool).T
    fprs = (0.01, 0.25, 0.5)
    found = metrics_of_columns(scores, member, fprs)
    for place in range(len(columns)):
        row = target_metrics(scores[:, place], member[:, place], fprs)
        expected = {name: np.nan if row[name] is None else row[name] for name in found}
        assert {name: values[place] for name, values in found.items()} == pytest.approx(
            expected, abs=1e-12, nan_ok=True
        )


def test_sorting_takes_32_bits_unless_sizes_differ_by_the_128th_power_of_two():
    for scores, kind in (([-3.0, 0.0, 2.0**-120, 7.0], np.int32), ([-3.0, 2.0**-127], np.int64), ([], np.int32)):
        integers = _integers(np.array(scores, dtype=np.float32))
        assert integers.dtype == kind and (np.diff(integers[np.argsort(scores)]) > 0).all()
