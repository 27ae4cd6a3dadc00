"""Noise with a random label: canaries that are nobody's record."""

import numpy as np

from mia_audit.canaries.catalogue import Drawn, HeldOut, kinds


@kinds.register("noise")
def noise(held_out: HeldOut, random: np.random.Generator) -> Drawn:
    """Return uniform noise for images; for tables, draw each value independently from its column."""
    shape, dtype = held_out.records.shape, held_out.records.dtype
    labels = random.integers(0, held_out.classes, len(held_out.labels)).astype(held_out.labels.dtype)
    if held_out.images:
        return random.integers(0, 256, shape).astype(dtype), labels
    return random.permuted(held_out.records, axis=0), labels
