"""Unchanged records of the data set."""

import numpy as np

from mia_audit.canaries.catalogue import Drawn, HeldOut, kinds


@kinds.register("natural")
def natural(held_out: HeldOut, random: np.random.Generator) -> Drawn:
    """Return the records unchanged. They measure the leakage of typical records, which is the weakest of all kinds."""
    return held_out.records, held_out.labels
