"""Records of the data set as they are."""

import numpy as np

from mia_audit.canaries.catalogue import Drawn, HeldOut, kinds


@kinds.register("natural")
def natural(held_out: HeldOut, random: np.random.Generator) -> Drawn:
    """Return the records: what a typical record leaks, which is least."""
    return held_out.records, held_out.labels
