"""The likelihood ratios by the name of their variance."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from mia_audit.attacks.hierarchical import hierarchical_ratio
from mia_audit.attacks.likelihood import VARIANCES, likelihood_ratio

if TYPE_CHECKING:
    import numpy as np
    from jaxtyping import Bool, Float

    Ratio = Callable[[Float[np.ndarray, "N K"], Bool[np.ndarray, "N K"]], Float[np.ndarray, "N K"]]

RATIOS: dict[str, Ratio] = {
    "hierarchical": hierarchical_ratio,
    **{name: partial(likelihood_ratio, variance=name) for name in VARIANCES},
}
"""From a signal and the membership, [N records, K models], to scores; the best first."""
