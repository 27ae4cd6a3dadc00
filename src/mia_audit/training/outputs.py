"""Loss and confidence from logits, in float64 by NumPy, for models that are not torch modules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from jaxtyping import Float, Int


TEMPERATURES = "loss_temperatures"
"""The option that lists the temperatures of additional losses, for signals of outputs."""


def tempered(temperatures: Sequence[float]) -> list[str]:
    """Return the names of the losses at temperatures, for which the logits are divided by the temperature."""
    return [f"loss_t{temperature:g}" for temperature in temperatures]


def losses_at(options: Mapping[str, Any]) -> dict[str, float]:
    """Return the temperatures in a family's options, by the names of their losses."""
    temperatures = options.get(TEMPERATURES, ())
    return dict(zip(tempered(temperatures), temperatures, strict=True))


def loss(logits: Float[np.ndarray, "n C"], labels: Int[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """Return the cross-entropy, logsumexp(z) − z_y, computed as log(1 + exp(−confidence)) to avoid cancellation."""
    return np.asarray(np.logaddexp(0.0, -confidence(logits, labels)))


def confidence(logits: Float[np.ndarray, "n C"], labels: Int[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """Return the logit-scaled confidence, z_y − logsumexp of the other logits (Carlini et al. 2022)."""
    rows = np.arange(len(labels))
    others = logits.astype(np.float64)
    own = others[rows, labels]
    others[rows, labels] = -np.inf
    largest = others.max(axis=1)
    return np.asarray(own - largest - np.log(np.exp(others - largest[:, None]).sum(axis=1)))
