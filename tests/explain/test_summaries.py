"""Summaries against NumPy in float64."""

import numpy as np
import pytest
import torch

from mia_audit.explain.batch import summarise
from mia_audit.signals.name import SUMMARIES


@pytest.mark.parametrize("offset", [0.0, 1e4])
def test_summaries_of_float32_attributions_are_float64(offset: float) -> None:
    attributions = np.random.default_rng(0).normal(offset, 2.0, (6, 3, 8, 8)).astype(np.float32)
    flat = attributions.reshape(6, -1).astype(np.float64)
    expected = {
        "variance": flat.var(axis=1),
        "l1": np.abs(flat).sum(axis=1),
        "l2": np.sqrt((flat**2).sum(axis=1)),
        "linf": np.abs(flat).max(axis=1),
    }
    ours = summarise(torch.from_numpy(attributions))
    assert list(ours) == list(SUMMARIES)
    for name, values in expected.items():
        assert ours[name].dtype == torch.float64
        np.testing.assert_allclose(ours[name].numpy(), values, rtol=1e-12, err_msg=name)


def test_variance_is_over_all_coordinates_not_per_channel() -> None:
    channels = torch.stack([torch.zeros(2, 2), torch.ones(2, 2)])[None]
    assert summarise(channels)["variance"].item() == 0.25
