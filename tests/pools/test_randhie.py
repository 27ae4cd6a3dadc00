"""The RAND health insurance experiment, where the statsmodels package is."""

import importlib.util

import numpy as np
import pytest

from mia_audit.errors import UserError
from mia_audit.pools import pools
from mia_audit.pools.section import Dataset


def test_it_is_read_from_statsmodels_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    if importlib.util.find_spec("statsmodels"):
        found = pools["randhie"].load(Dataset(source="randhie"), "datasets.rand")
        rows = np.asarray(found.records)
        assert rows.shape == (20190, 30) and np.isfinite(rows).all() and 0.49 < found.labels.mean() < 0.51
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(
        UserError, match=r"datasets\.rand\.source: randhie is read from the statsmodels package, which is missing"
    ):
        pools["randhie"].load(Dataset(source="randhie"), "datasets.rand")
