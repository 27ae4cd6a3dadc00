"""Breast cancer diagnoses bundled with scikit-learn: 569 records of 30 measurements in 2 classes (UCI, Wolberg et al. 1995)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mia_audit.pools.catalogue import TABLE_KEYS, Header, Source, pool

if TYPE_CHECKING:
    from mia_audit.pools.section import Dataset


@pool("breast_cancer", *TABLE_KEYS, header=Header("table", 569))
def breast_cancer(dataset: Dataset, where: str) -> Source:
    """Return float32 [569, 30]."""
    from sklearn.datasets import load_breast_cancer

    bunch = load_breast_cancer()
    return Source(
        "table", bunch.data.astype(np.float32), bunch.target, list(bunch.target_names), list(bunch.feature_names)
    )
