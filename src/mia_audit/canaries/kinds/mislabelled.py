"""Records with a wrong label."""

import numpy as np

from mia_audit.canaries.catalogue import Drawn, HeldOut, kinds, other_labels


@kinds.register("mislabelled")
def mislabelled(held_out: HeldOut, random: np.random.Generator) -> Drawn:
    """Return the records with another class's label, which only a model trained on them predicts (Steinke et al. 2023)."""
    return held_out.records, other_labels(held_out.labels, held_out.classes, random)
