"""Handwritten digits bundled with scikit-learn: 1,797 grey-scale images of 8 × 8 pixels in 10 classes (UCI, Alpaydin and Kaynak 1998)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mia_audit.pools.catalogue import Header, Source, pool

if TYPE_CHECKING:
    from mia_audit.pools.section import Dataset


@pool("digits", header=Header("image", 1_797))
def digits(dataset: Dataset, where: str) -> Source:
    """Return uint8 [1797, 1, 8, 8], the 17 grey levels spread over 0 … 255."""
    from sklearn.datasets import load_digits

    bunch = load_digits()
    pixels = np.rint(bunch.images * (255 / 16)).astype(np.uint8)
    return Source("image", pixels[:, None], bunch.target, [str(name) for name in bunch.target_names], [])
