"""Signals: the grammar of their names, and their values in the form that attacks read."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from mia_audit.errors import UserError
from mia_audit.explain.catalogue import explainer_label

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jaxtyping import Bool, Float, Int

    Cells = Float[np.ndarray, "N K"]
    Scale = Callable[[np.ndarray], np.ndarray]
    Some = int | slice | Int[np.ndarray, " n"]

    Member = Bool[np.ndarray, "N K"]
    Reads = Callable[[Sequence["Signal"]], list[tuple["Signal", ...]]]


BLOCK_CELLS, BLOCK_RECORDS = 1 << 15, 1 << 8
"""Cells processed at a time, and the smallest number of records processed at a time."""


class Columns:
    """A signal, [N records, K models], on the scale on which attacks read it, minus an offset per model (0 at first).

    The matrix that it is given is neither copied nor changed. Parts of it are float64.
    """

    def __init__(
        self,
        values: Cells,
        scale: Scale | None = None,
        models: Int[np.ndarray, " K"] | None = None,
        offsets: Float[np.ndarray, " K"] | None = None,
    ) -> None:
        """Take the stored values, the function that transforms parts of them to the scale in float64, the models (all if None), and offsets."""
        self._values, self._scale, self._some, self._offsets = values, scale, models, offsets
        self._models = np.arange(values.shape[1]) if models is None else models

    @property
    def shape(self) -> tuple[int, int]:
        """N and K."""
        return len(self._values), len(self._models)

    def __len__(self) -> int:
        """Return the number of records."""
        return len(self._values)

    def __getitem__(self, rows: slice) -> Cells:
        """Return some of the records, a new matrix [B, K]."""
        values = self._values[rows] if self._some is None else self._values.T[self._models, rows].T
        cells: Cells = values.astype(np.float64) if self._scale is None else self._scale(values)
        if self._offsets is not None:
            cells -= self._offsets
        return cells

    def of(self, models: Int[np.ndarray, " S"]) -> Columns:
        """Return the columns of some models."""
        offsets = None if self._offsets is None else self._offsets[models]
        return Columns(self._values, self._scale, self._models[models], offsets)

    def among(self, rows: Some) -> Columns:
        """Return some of the records."""
        return Columns(self._values[rows], self._scale, self._some, self._offsets)

    def minus(self, offsets: Float[np.ndarray, " K"]) -> Columns:
        """Return the columns with these offsets."""
        return Columns(self._values, self._scale, self._some, offsets)

    def centred(self) -> Columns:
        """Return the columns minus each model's median over records."""
        return self.minus(np.array([median(self.at(model)) for model in range(len(self._models))]))

    def at(self, model: Some, record: Some = slice(None)) -> Float[np.ndarray, " n"]:
        """Return new values: those of one model at some of the records, or those at as many models as records."""
        stored = self._values.T[self._models[model], record]
        values: Float[np.ndarray, " n"]
        values = stored.astype(np.float64) if self._scale is None else self._scale(np.ascontiguousarray(stored))
        if self._offsets is not None:
            values -= self._offsets[model]
        return values

    def stored(self) -> Cells:
        """Return the columns without offsets, in float64 or, if there is no scale, as they are stored: the given matrix if possible."""
        values = self._values if self._some is None else self._values.T[self._models].T
        return values if self._scale is None else self._scale(values)

    def copied(self) -> Cells:
        """Return what `stored` does as a new matrix, contiguous by model where the given one is."""
        if self._some is None and not self._values.flags.f_contiguous:
            return np.array(self.stored())
        made = np.empty(self.shape[::-1], dtype=self._values.dtype if self._scale is None else np.float64)
        for column, model in zip(made, self._models, strict=True):
            values = self._values[:, model]
            column[:] = values if self._scale is None else self._scale(values)
        return made.T


def columns_of(signal: Cells | Columns) -> Columns:
    """Return a signal's columns; a matrix is on its scale."""
    return signal if isinstance(signal, Columns) else Columns(signal)


def median(values: np.ndarray) -> float:
    """Return the median by sorting, which takes half the time of a selection."""
    ordered, half = np.sort(values), len(values) // 2
    return float(ordered[half]) if len(values) % 2 else (float(ordered[half - 1]) + float(ordered[half])) / 2


def ranks_of(values: np.ndarray) -> np.ndarray:
    """Return the ranks of values from 1, equal ones with their mean rank."""
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks: np.ndarray = np.cumsum(counts) - (counts - 1) / 2
    return ranks[places]


def slices(start: int, stop: int, models: int) -> Iterator[slice]:
    """Yield slices of similar size, small enough that a block of records stays in the processor's cache."""
    parts = -(-(stop - start) // max(BLOCK_RECORDS, BLOCK_CELLS // models))
    yield from (slice(*edges) for edges in pairwise(np.linspace(start, stop, parts + 1).astype(int).tolist()))


SUMMARIES = {"variance": "variance", "l1": "L1 norm", "l2": "L2 norm", "linf": "largest value"}
"""Summaries of an attribution, in the order of their columns, with their names in words."""

VECTOR = "vector"
"""Suffix of columns that hold an attribution itself, as a short vector over its L1 norm."""

SHARES = (10, 25, 50)
"""Percentages of a record's coordinates after which curves of deletion and insertion are signals."""

PROBED = {
    measure: {f"{measure}": f"mean height of the {measure} curve"}
    | {f"{measure}-{share}": f"confidence after {measure} of {share} %" for share in SHARES}
    for measure in ("deletion", "insertion")
} | {measure: {measure: measure} for measure in ("infidelity", "sensitivity")}
"""Signals of each measure that queries the model again, with their names in words."""

PROBES = {name: words for names in PROBED.values() for name, words in names.items()}

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

NAMED = 3
"""Largest number of signals read together that a label names one by one."""

ATTRIBUTION = re.compile(
    rf"(?P<explainer>.+?)(?:_(?P<quantity>(?:log_)?probability))?(?P<true>_true)?_(?P<summary>{'|'.join([*SUMMARIES, VECTOR, *PROBES])})"
)


@dataclass(frozen=True)
class Signal:
    """A signal: its name, its scale and whether members have the high or the low values.

    The name encodes explainer, explained quantity and class, and summary; each is None if the signal is not a summary
    of an attribution. Names joined by + belong to signals that are read together; summaries of one attribution keep its
    parts, with the first one's summary.
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
        """The quantity explained: `logit`, `probability` or `log_probability`."""
        return None if self._parts is None else self._parts["quantity"] or "logit"

    @property
    def explained_class(self) -> str | None:
        """The class explained: `predicted` or `true`."""
        return None if self._parts is None else "true" if self._parts["true"] else "predicted"

    @property
    def summary(self) -> str | None:
        """The summary of the attribution."""
        return self._part("summary")

    @property
    def is_vector(self) -> bool:
        """Whether the signal has several numbers per record and model."""
        return self.summary == VECTOR

    @property
    def channel(self) -> str:
        """The channel of the signal: `outputs`, `explanations`, `both` or `other`."""
        parts = [Signal(part.strip()) for part in self.name.split("+")]
        if len(parts) > 1:
            channels = {part.channel for part in parts}
            return channels.pop() if len(channels) == 1 else "both" if "other" not in channels else "other"
        if self.name in OUTPUTS:
            return "outputs"
        return "explanations" if self.name == FIT_ERROR or self._parts is not None else "other"

    @property
    def label(self) -> str:
        """The signal in words, such as 'L1 norm of input × gradient, probability'."""
        if "+" in self.name:
            return self._joined_label
        if self.name == FIT_ERROR:
            return "how well the explanation fits the record"
        if self.summary is None:
            return self.name
        quantity = in_words(self.quantity)
        true_class = ", true class" if self.explained_class == "true" else ""
        return f"{(SUMMARIES | PROBES).get(self.summary, 'whole map')} of {self.explainer_label}{quantity}{true_class}"

    @property
    def _joined_label(self) -> str:
        """The label of signals that are read together: names a few signals, and counts many."""
        parts = [read_signal(part.strip()) for part in self.name.split("+")]
        if parts[0].is_vector:
            return parts[0].label
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
        found = [ATTRIBUTION.fullmatch(name) for name in self.name.split("+")]
        parts = [one.groupdict() for one in found if one]
        of = [{**one, "summary": None} for one in parts]  # one explanation has several summaries
        return parts[0] if len(parts) == len(found) and of.count(of[0]) == len(of) else None

    def _part(self, name: str) -> str | None:
        return None if self._parts is None else self._parts[name]


def read_signal(name: str) -> Signal:
    """Return the signal of that name: confidences and `probability` are high in members; all others are positive and low."""
    signal = Signal(name)
    if name == "confidence" or (signal.summary or "").startswith(("deletion", "insertion")):
        return Signal(name, "real", "high")
    return Signal(name, "positive", "high") if name == PROBABILITY else signal


def in_words(quantity: str | None) -> str:
    """Return what a label says about the quantity explained: nothing about the logit."""
    return "" if quantity in (None, "logit") else f", {quantity.replace('_', ' ')}"


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
        return np.asarray(self.prepared(as_is, scaled=False))

    @property
    def scaled(self) -> Cells:
        """The mean over queries, on the scale on which the signal is closest to a Gaussian.

        For a positive signal this is the logarithm. A Gaussian ratio needs only the mean of exchangeable queries.
        """
        return np.asarray(self.prepared(as_is))

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
    return np.asarray(columns.stored().astype(np.float64, copy=False))


def named(name: str) -> Reads:
    """Read the signal of that name."""
    return lambda signals: [(signal,) for signal in signals if signal.name == name]


def every(summary: str) -> Reads:
    """Read this summary of every explainer's attributions."""
    return lambda signals: [(signal,) for signal in signals if signal.summary == summary]


def all_but(name: str) -> Reads:
    """Read every signal except the one of that name."""
    return lambda signals: [(signal,) for signal in signals if signal.name != name]


def others(signals: Sequence[Signal]) -> list[tuple[Signal, ...]]:
    """Read the signals that are neither outputs (loss, confidence) nor summaries of an attribution or its vector."""
    read = (None, *PROBES)
    return [(signal,) for signal in signals if signal.channel != "outputs" and signal.summary in read]


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
