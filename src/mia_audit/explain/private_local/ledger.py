"""Explanations and their costs as ledger entries: one per charged answer, written to disk before the answer is released.

An answer and its charge are written in one append. So a crash loses both, or leaves a charge for an answer that nobody
received. Nothing is released without a charge. Free answers are functions of charged ones, and are not stored.
"""

from __future__ import annotations

import math
import secrets
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa

from mia_audit.explain.private_local.history import Entry, History
from mia_audit.privacy import ledger
from mia_audit.privacy.gaussian import epsilon_of_gdp

WHAT = "explanation"
KINDS = {"query": list, "value": float, "class": int, "source": str, "steps": int, "explanation": list, "number": int}
"""Fields of an entry's release, with their types."""


class Ledger:
    """The charged answers so far, in memory and, given a path, in a ledger file (`mia_audit.privacy.ledger`).

    `terms` must equal those in an existing file. Raises UserError for the same reasons as
    `mia_audit.privacy.ledger.Ledger`.
    """

    def __init__(
        self,
        path: Path | None,
        features: int,
        delta: float,
        adjacency: str,
        terms: dict[str, Any],
        unit: str = "record",
    ) -> None:
        self.delta, self.features = delta, features
        self.entries: list[Entry] = []
        self.history = History()
        self._kept = ledger.Ledger(path, ledger.Header(unit, adjacency, terms), self._check)
        self._take(self._kept.entries)
        self.id = self._kept.header.id or secrets.token_hex(16)
        """The random id of the file or, without a file, of this object."""

    @property
    def mu_squared(self) -> float:
        """Total μ² of all charges so far."""
        return self.history.mu_squared

    @property
    def epsilon(self) -> float:
        """Total ε at δ of all charges so far."""
        return epsilon_of_gdp(math.sqrt(self.mu_squared), self.delta)

    def append(self, entries: list[Entry]) -> None:
        """Charge for entries and store them. Their explanations may be released only after this call has returned."""
        before = len(self._kept.entries)
        try:
            self._kept.append([self._kept_entry(entry) for entry in entries])
        finally:
            self._take(self._kept.entries[before:])

    def close(self) -> None:
        """Close the file; another process may then open it."""
        self._kept.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def table(self) -> pa.Table:
        """Return all entries: number, query, value, class, source, steps, mu_squared, mu_squared_spent and epsilon (at δ), explanation."""
        totals = np.cumsum([entry.mu_squared for entry in self.entries]).tolist()
        vector = pa.list_(pa.float64(), self.features)
        entries = self.entries
        return pa.table(
            {
                "number": pa.array([entry.number for entry in entries], pa.int64()),
                "query": pa.array([entry.query for entry in entries], vector),
                "value": pa.array([entry.value for entry in entries], pa.float64()),
                "class": pa.array([entry.explained_class for entry in entries], pa.int32()),
                "source": pa.array([entry.source for entry in entries], pa.string()),
                "steps": pa.array([entry.steps for entry in entries], pa.int32()),
                "mu_squared": pa.array([entry.mu_squared for entry in entries], pa.float64()),
                "mu_squared_spent": pa.array(totals, pa.float64()),
                "epsilon": pa.array([epsilon_of_gdp(math.sqrt(total), self.delta) for total in totals], pa.float64()),
                "explanation": pa.array([entry.explanation for entry in entries], vector),
            }
        )

    def _kept_entry(self, entry: Entry) -> ledger.Entry:
        released = {
            "query": entry.query.tolist(),
            "value": entry.value,
            "class": entry.explained_class,
            "source": entry.source,
            "steps": entry.steps,
            "explanation": entry.explanation.tolist(),
            "number": entry.number,
        }
        return ledger.Entry(
            WHAT, self._kept.header.unit, self._kept.header.adjacency, {"mu_squared": entry.mu_squared}, released
        )

    def _check(self, entry: ledger.Entry) -> None:
        """Raise ValueError unless an entry is an explanation in this feature space."""
        released = entry.released
        if (
            entry.what != WHAT
            or entry.terms.keys() != {"mu_squared"}
            or type(entry.terms["mu_squared"]) is not float
            or released.keys() != KINDS.keys()
            or any(type(released[name]) is not kind for name, kind in KINDS.items())
        ):
            raise ValueError("an entry is not a private explanation")
        for name in ("query", "explanation"):
            if len(released[name]) != self.features or any(type(number) is not float for number in released[name]):
                raise ValueError(f"an entry whose {name} is not {self.features} numbers")

    def _take(self, kept: list[ledger.Entry]) -> None:
        for entry in kept:
            said, cost = entry.released, entry.terms["mu_squared"]
            query, explanation = np.array(said["query"]), np.array(said["explanation"])
            rest = (said["value"], said["class"], said["source"], said["steps"], cost, explanation, said["number"])
            self.entries.append(Entry(query, *rest))
            self.history = self.history.after(self.entries[-1])
