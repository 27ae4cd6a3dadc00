"""What a signal is to an attack: its values on all models, its scale, and on which side members lie."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from mia_audit.errors import UserError

if TYPE_CHECKING:
    from jaxtyping import Float

    Cells = Float[np.ndarray, "N K"]
    Reads = Callable[[Sequence["Signal"]], list[tuple["Signal", ...]]]

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


@dataclass(frozen=True)
class Reading:
    """A signal and its values: a matrix [N records, K models] of float64 for every query of the records (augmentations)."""

    signal: Signal
    queries: Sequence[Cells]

    @property
    def values(self) -> Cells:
        """The mean over queries."""
        values: Cells = self.prepared(as_is, scaled=False)
        return values

    @property
    def scaled(self) -> Cells:
        """The mean over queries on the scale on which the signal is closest to a Gaussian: the logarithm of a positive one.

        The mean is all that a Gaussian ratio needs of queries that are alike (exchangeable).
        """
        values: Cells = self.prepared(as_is)
        return values

    def prepared(self, prepare: Callable[[Cells], Any], scaled: bool = True) -> Any:
        """Return what `prepare` makes of `scaled`, or of `values`: the first time that it is asked for, and kept."""
        if (prepare, scaled) not in self._made:
            logged = scaled and self.signal.scale == "positive"
            queries = [logarithm(self.signal, values) for values in self.queries] if logged else self.queries
            self._made[prepare, scaled] = prepare(_mean(queries))
        return self._made[prepare, scaled]

    @cached_property
    def _made(self) -> dict[tuple[Callable[[Cells], Any], bool], Any]:
        return {}


def as_is(values: Cells) -> Cells:
    """Return the values."""
    return values


def describe(name: str) -> Signal:
    """Return what the name says of a signal: `confidence` is real and high in members; losses and summaries are positive and low."""
    return Signal(name, "real", "high") if name == "confidence" else Signal(name, "positive", "low")


def named(name: str) -> Reads:
    """Read the signal of that name."""
    return lambda signals: [(signal,) for signal in signals if signal.name == name]


def every(summary: str) -> Reads:
    """Read the summary of every explanation there is."""
    return lambda signals: [(signal,) for signal in signals if signal.summary == summary]


def all_but(name: str) -> Reads:
    """Read every signal but the one of that name."""
    return lambda signals: [(signal,) for signal in signals if signal.name != name]


def others(signals: Sequence[Signal]) -> list[tuple[Signal, ...]]:
    """Read the signals that are neither outputs (loss, confidence) nor summaries of an attribution."""
    return [(signal,) for signal in signals if signal.name not in ("loss", "confidence") and signal.summary is None]


def logarithm(signal: Signal, values: Cells) -> Cells:
    """Return the logarithm of a positive signal; zeros count as the smallest positive value there is.

    Raises UserError on a negative value.
    """
    smallest = values.min(initial=np.inf)
    if smallest < 0:
        record, model = np.argwhere(values == smallest)[0]
        raise UserError(
            f"signal '{signal.name}' is {smallest:g} at model {model}, record {record}: its attack takes the logarithm "
            "and expects no negative value; declare the signal real"
        )
    if smallest == 0:
        least = values.min(where=values > 0, initial=np.inf)
        values = np.maximum(values, least if np.isfinite(least) else 1.0)
    logs: Cells = np.log(values)
    return logs


def _mean(queries: Sequence[Cells]) -> Cells:
    return queries[0] if len(queries) == 1 else sum(queries[1:], start=queries[0]) / len(queries)
