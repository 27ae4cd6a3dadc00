"""A synthetic table of any size, with dense and thin clusters of records (20 features, 2 classes). It needs no download."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mia_audit.pools.catalogue import Header, Source, pool
from mia_audit.seeds import generator

if TYPE_CHECKING:
    from mia_audit.pools.section import Dataset

FEATURES, CLUSTERS = 20, 15
DEFAULT = 20_000
"""Total number of records, including public ones, if the data set does not set the number of audited ones."""


@pool("clusters", header=Header("table"))
def clusters(dataset: Dataset, where: str) -> Source:
    """Return float32 [n, 20] with the requested number of records: Gaussian clusters of unequal size and spread, with curved class borders."""
    count = dataset.records + dataset.public if dataset.records else DEFAULT
    random = generator("pool source", "clusters")
    centres = 2.0 * random.standard_normal((CLUSTERS, FEATURES))
    sizes = 1.0 / np.arange(1, CLUSTERS + 1)
    spreads = random.uniform(0.2, 0.8, CLUSTERS)
    slope, bend = random.standard_normal((2, FEATURES))
    cluster = random.choice(CLUSTERS, size=count, p=sizes / sizes.sum())
    records = centres[cluster] + spreads[cluster, None] * random.standard_normal((count, FEATURES))
    score = records @ slope + 2 * np.sin(records @ bend)
    labels = (score + random.logistic(size=count) > np.median(score)).astype(np.int64)
    return Source("table", records.astype(np.float32), labels, ["low", "high"], [f"x{i}" for i in range(FEATURES)])
