"""The bound on ε from canaries in one training of a setting, as the workflow wrote it (docs/canaries.md)."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path

from mia_audit.errors import UserError

CANARIES = "canaries.csv"
METHOD = "one-run-f-dp"
"""The method of the quoted bound: it assumes only fair coins, and one bound alone holds at its confidence."""


@dataclass(frozen=True)
class CanaryBound:
    """A lower bound on ε at δ, at a confidence, and the number of canaries behind it."""

    epsilon: float
    delta: float
    confidence: float
    canaries: int


def canary_bound(folder: Path) -> CanaryBound | None:
    """Return the bound in a setting's folder; None if no canaries were asked for, UserError for a damaged file."""
    path = folder / CANARIES
    try:
        with path.open(encoding="utf-8", newline="") as file:
            (row,) = [row for row in csv.DictReader(file) if row.get("method") == METHOD]
        epsilon, delta, confidence = (float(row[name]) for name in ("epsilon", "delta", "confidence"))
        return CanaryBound(epsilon, delta, confidence, int(row["canaries"]))
    except FileNotFoundError:
        return None
    except (OSError, KeyError, TypeError, ValueError):
        raise UserError(f"{path}: damaged; expected what mia-audit canary-bounds writes") from None
