from pathlib import Path

import numpy as np

from mia_audit.pools import pools
from mia_audit.pools.section import Dataset

CLUSTERS = f"{Path(__file__).parents[2]}/config/sources.py:clusters"


def test_as_many_records_as_are_asked_for_and_always_the_same():
    source = pools[CLUSTERS].load(Dataset(source=CLUSTERS, records=300, public=20), "datasets.clusters")
    assert source.records.shape == (320, 20)
    assert set(source.labels.tolist()) == {0, 1}
    again = pools[CLUSTERS].load(Dataset(source=CLUSTERS, records=300, public=20), "datasets.clusters")
    np.testing.assert_array_equal(source.records, again.records)


def test_public_records_are_among_all_where_nothing_is_asked_for():
    assert len(pools[CLUSTERS].load(Dataset(source=CLUSTERS, public=30), "datasets.clusters").records) == 20_000
