"""What a signal is to an attack: its values on all models, its scale, and on which side members lie."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from mia_audit.errors import UserError

if TYPE_CHECKING:
    from jaxtyping import Float

SUMMARIES = ("variance", "l1", "l2", "linf")
"""Summaries of an attribution: a signal `{explainer}_{summary}` is one."""


@dataclass(frozen=True)
class Signal:
    """A signal's name, its scale and whether members have the high or the low values."""

    name: str
    scale: Literal["positive", "real"]
    members: Literal["low", "high"]

    @property
    def summary(self) -> str | None:
        """The summary of an attribution that this signal is, if it is one."""
        _, found, last = self.name.rpartition("_")
        return last if found and last in SUMMARIES else None


class Reading(NamedTuple):
    """A signal and its values, [N records, K models] float64."""

    signal: Signal
    values: Float[np.ndarray, "N K"]


def describe(name: str) -> Signal:
    """Return what the name says of a signal: `confidence` is real and high in members; losses and summaries are positive and low."""
    return Signal(name, "real", "high") if name == "confidence" else Signal(name, "positive", "low")


def logarithm(reading: Reading) -> Float[np.ndarray, "N K"]:
    """Return the logarithm of a positive signal; zeros count as the smallest positive value there is.

    Raises UserError on a negative value.
    """
    values = reading.values
    smallest = values.min(initial=np.inf)
    if smallest < 0:
        record, model = np.argwhere(values == smallest)[0]
        raise UserError(
            f"signal '{reading.signal.name}' is {smallest:g} at model {model}, record {record}: its attack takes the logarithm "
            "and expects no negative value; declare the signal real"
        )
    if smallest == 0:
        least = values.min(where=values > 0, initial=np.inf)
        values = np.maximum(values, least if np.isfinite(least) else 1.0)
    logs: Float[np.ndarray, "N K"] = np.log(values)
    return logs
