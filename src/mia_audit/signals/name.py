"""Signals: the grammar of their names, and their values in the form that attacks read."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from mia_audit.errors import UserError
from mia_audit.explain.catalogue import explainer_label
from mia_audit.signals.columns import Columns

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int

    Cells = Float[np.ndarray, "N K"]
    Member = Bool[np.ndarray, "N K"]
    Reads = Callable[[Sequence["Signal"]], list[tuple["Signal", ...]]]
    Scale = Callable[[np.ndarray], np.ndarray]

SUMMARIES = {"variance": "variance", "l1": "L1 norm", "l2": "L2 norm", "linf": "largest value"}
"""Summaries of an attribution, in the order of their columns, with their names in words."""

DECISIONS = ("label", "predicted")
"""The columns of a signals table that hold the record's class and the model's decision."""

OUTPUTS = ("loss", "confidence")
"""Signals that are computed only from the model's outputs."""

PROBABILITY = "probability"
"""The softmax probability of the label, from which loss and confidence are derived; attacks do not read it."""

DIAGNOSTIC = "completeness"
"""Suffix of columns that state the error of an attribution; they are not signals."""

FIT_ERROR = "fit_error"
"""The signal for the error of the neighbour's explanation at a record."""

TEMPERED = re.compile(r"loss_t(?P<temperature>\d+(\.\d+)?)")
"""Pattern of losses at a temperature, that is, of the softmax of logits divided by the temperature."""

NAMED = 3
"""Largest number of signals read together that a label names one by one."""

ATTRIBUTION = re.compile(
    rf"(?P<explainer>.+?)(?P<probability>_probability)?(?P<true>_true)?_(?P<summary>{'|'.join(SUMMARIES)})"
)


@dataclass(frozen=True)
class Signal:
    """A signal: its name, its scale and whether members have the high or the low values.

    The name encodes explainer, explained quantity and class, and summary; each is None if the signal is not a summary
    of an attribution. Names joined by + belong to signals that are read together.
    """

    name: str
    scale: Literal["positive", "real"] = "positive"
    members: Literal["low", "high"] = "low"

    @property
    def explainer(self) -> str | None:
        """The explainer's name in columns."""
        return self._part("explainer")

    @property
    def quantity(self) -> str | None:
        """The quantity explained: `logit` or `probability`."""
        return None if self._parts is None else "probability" if self._parts["probability"] else "logit"

    @property
    def explained_class(self) -> str | None:
        """The class explained: `predicted` or `true`."""
        return None if self._parts is None else "true" if self._parts["true"] else "predicted"

    @property
    def summary(self) -> str | None:
        """The summary of the attribution."""
        return self._part("summary")

    @property
    def channel(self) -> str:
        """The channel of the signal: `outputs`, `explanations`, `both` or `other`."""
        parts = [Signal(part.strip()) for part in self.name.split("+")]
        if len(parts) > 1:
            channels = {part.channel for part in parts}
            return channels.pop() if len(channels) == 1 else "both" if "other" not in channels else "other"
        if self.name in OUTPUTS or self.is_loss:
            return "outputs"
        return "explanations" if self.name == FIT_ERROR or self._parts is not None else "other"

    @property
    def is_loss(self) -> bool:
        """Whether the signal is −log of a probability of the label: the loss, or the loss at a temperature."""
        return self.name == "loss" or TEMPERED.fullmatch(self.name) is not None

    @property
    def label(self) -> str:
        """The signal in words, such as 'L1 norm of input × gradient, probability'."""
        if "+" in self.name:
            return self._joined_label
        if self.name == FIT_ERROR:
            return "how well the explanation fits the record"
        if tempered := TEMPERED.fullmatch(self.name):
            return f"loss at temperature {tempered['temperature']}"
        if self.summary is None:
            return self.name
        quantity = ", probability" if self.quantity == "probability" else ""
        true_class = ", true class" if self.explained_class == "true" else ""
        return f"{SUMMARIES[self.summary]} of {self.explainer_label}{quantity}{true_class}"

    @property
    def _joined_label(self) -> str:
        """The label of signals that are read together: names a few signals, and counts many."""
        parts = [read_signal(part.strip()) for part in self.name.split("+")]
        if len(parts) <= NAMED:
            return " + ".join(part.label for part in parts)
        what = {"both": "outputs and explanations", "outputs": "outputs", "explanations": "explanations"}
        return f"{len(parts)} signals" + (f" of {what[self.channel]}" if self.channel in what else "")

    @property
    def explainer_label(self) -> str:
        """The explainer's label, or its name in the config if it has no label."""
        return explainer_label(self.explainer or "")

    @cached_property
    def _parts(self) -> dict[str, str | None] | None:
        found = None if "+" in self.name else ATTRIBUTION.fullmatch(self.name)
        return found and found.groupdict()

    def _part(self, name: str) -> str | None:
        return None if self._parts is None else self._parts[name]


def read_signal(name: str) -> Signal:
    """Return the signal of that name: `confidence` and `probability` are high in members; losses and summaries are positive and low."""
    if name == "confidence":
        return Signal(name, "real", "high")
    return Signal(name, "positive", "high") if name == PROBABILITY else Signal(name)


def stem(explainer: str, quantity: str, explained_class: str) -> str:
    """Return the part of a column's name before the summary: `ixg`, `ixg_probability`, `ixg_probability_true`."""
    quantity_word = "" if quantity == "logit" else f"_{quantity}"
    class_word = "" if explained_class == "predicted" else f"_{explained_class}"
    return f"{explainer.replace('+', '-')}{quantity_word}{class_word}"


def is_signal(column: str) -> bool:
    """Return whether a column holds a signal, and not a key, a class or a diagnostic."""
    return column not in ("shadow", "record", "member", "person", *DECISIONS) and not column.endswith(f"_{DIAGNOSTIC}")


@dataclass(frozen=True)
class Reading:
    """A signal and its values: a matrix [N records, K models] for every query of the records (augmentations).

    `queries` are float32 if their file stores float32; attacks read `values` or `scaled`, which are float64. With
    `models` the reading is of those columns only, which are not copied before an attack reads them.
    """

    signal: Signal
    queries: Sequence[Cells]
    models: Int[np.ndarray, " S"] | None = None

    @property
    def values(self) -> Cells:
        """The mean over queries."""
        values: Cells = self.prepared(as_is, scaled=False)
        return values

    @property
    def scaled(self) -> Cells:
        """The mean over queries, on the scale on which the signal is closest to a Gaussian.

        For a positive signal this is the logarithm. A Gaussian ratio needs only the mean of exchangeable queries.
        """
        values: Cells = self.prepared(as_is)
        return values

    def prepared(self, prepare: Callable[[Columns], Any], scaled: bool = True) -> Any:
        """Return `prepare` applied to the scaled values, or to the raw ones if not `scaled`. The result is cached."""
        if (prepare, scaled) not in self._prepared:
            logged = scaled and self.signal.scale == "positive"
            queries = [
                Columns(values, logarithm(self.signal, values, self.models) if logged else None, self.models)
                for values in self.queries
            ]
            if len(queries) > 1:
                first, *others = (as_is(query) for query in queries)
                queries = [Columns(sum(others, start=first) / len(queries))]
            self._prepared[prepare, scaled] = prepare(queries[0])
        return self._prepared[prepare, scaled]

    @cached_property
    def _prepared(self) -> dict[tuple[Callable[[Columns], Any], bool], Any]:
        return {}


def as_is(columns: Columns) -> Cells:
    """Return the columns in float64."""
    cells: Cells = columns.stored().astype(np.float64, copy=False)
    return cells


def named(name: str) -> Reads:
    """Read the signal of that name."""
    return lambda signals: [(signal,) for signal in signals if signal.name == name]


def every(summary: str) -> Reads:
    """Read this summary of every explainer's attributions."""
    return lambda signals: [(signal,) for signal in signals if signal.summary == summary]


def all_but(name: str) -> Reads:
    """Read every signal except the one of that name, and the loss only at temperature 1."""
    return lambda signals: [
        (signal,) for signal in signals if signal.name != name and not TEMPERED.fullmatch(signal.name)
    ]


def losses(signals: Sequence[Signal]) -> list[tuple[Signal, ...]]:
    """Read the loss, and the loss at every available temperature."""
    return [(signal,) for signal in signals if signal.is_loss]


def others(signals: Sequence[Signal]) -> list[tuple[Signal, ...]]:
    """Read the signals that are neither outputs (loss, confidence) nor summaries of an attribution."""
    return [(signal,) for signal in signals if signal.channel != "outputs" and signal.summary is None]


def logarithm(signal: Signal, values: Cells, models: Int[np.ndarray, " S"] | None = None) -> Scale:
    """Return a function that takes the logarithm of a positive signal, in float64; zeros are replaced by the smallest positive value.

    That is the smallest of some models, if these are given. Raises UserError on a negative value.
    """
    columns = [values] if models is None else [values[:, model] for model in models]
    smallest = min(column.min(initial=np.inf) for column in columns)
    if smallest < 0:
        record, model = np.argwhere(values == smallest)[0]
        raise UserError(
            f"signal '{signal.name}' is {smallest:g} at model {model}, record {record}: attacks take its logarithm, so no value may"
            " be negative; declare the signal real"
        )
    if smallest != 0:
        return lambda some: np.log(some, dtype=np.float64)
    least = min(column.min(where=column > 0, initial=np.inf) for column in columns)
    floor = least if np.isfinite(least) else 1.0
    return lambda some: np.log(np.maximum(some, floor), dtype=np.float64)
