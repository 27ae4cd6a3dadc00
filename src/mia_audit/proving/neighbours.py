"""Neighbouring sets of records chosen as worst cases: one record among ordinary ones, among equal ones, or alone."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np

from mia_audit.errors import UserError
from mia_audit.proving.mechanism import ADJACENCIES, Pair

if TYPE_CHECKING:
    from jaxtyping import Float

FEWEST = 2
"""Smallest number of records of an input with `--no-empty`."""
DENORMAL = 5e-324
SMALL, HUGE = 1e6, 1e160

DOMAINS = ("any", "finite", "bounded")
"""Domains of the numbers in a claim's records: all, including NaN and infinity; all finite ones; or those within ±1."""


def canaries(features: int, domain: str) -> Mapping[str, Float[np.ndarray, " d"]]:
    """Return canaries by name, from records within ±1 to the largest that the domain allows."""
    ones, axis = np.ones(features), np.zeros(features)
    axis[-1] = 1.0
    alternating = np.where(np.arange(features) % 2, -1.0, 1.0)
    known = {
        "aligned": ones,
        "opposite": -ones,
        "orthogonal": alternating if features > 1 else -ones,
        "one feature": axis,
        "zero": np.zeros(features),
        "denormal": np.full(features, DENORMAL),
    }
    if domain in ("any", "finite"):
        known |= {
            "large": SMALL * ones,
            "large orthogonal": SMALL * alternating,
            "huge": HUGE * ones,
            "minus huge": -HUGE * ones,
        }
    if domain == "any":
        known |= {
            "NaN": np.full(features, math.nan),
            "one NaN": np.where(axis > 0, math.nan, ones),
            "infinite": np.full(features, math.inf),
            "minus infinite": np.full(features, -math.inf),
        }
    return known


def pairs(
    records: int, features: int, adjacency: str, domain: str = "any", classes: int = 0, empty: bool = True
) -> Iterator[Pair]:
    """Yield neighbouring arrays [n, d], of at most `records` rows; with `classes` the last column is a label from 0.

    With adjacency add-remove the first input has one more record. Otherwise a record replaces another one. Without
    `empty`, sets with fewer than two records are left out. With classes, every set has records of each class. Raises
    UserError if no pair is left.
    """
    if adjacency not in ADJACENCIES:
        raise UserError(f"adjacency '{adjacency}': expected {', '.join(ADJACENCIES)}")
    least_records = FEWEST + (adjacency == "add-remove")
    if not empty and records < least_records:
        raise UserError(
            f"--records {records}: with --no-empty both inputs have at least {FEWEST} records: expected at least {least_records}"
        )
    random = np.random.default_rng(0)
    wide = features - bool(classes)
    ordinary = random.uniform(-0.5, 0.5, (records - 1, wide)) + 0.2
    bases = {"ordinary": ordinary, "equal": np.tile(ordinary[:1], (records - 1, 1))}
    if empty:
        bases["no"] = ordinary[:0]
    least = canaries(wide, "bounded")["zero"]
    for kind, base in bases.items():
        known = {**canaries(wide, domain), **({"equal": base[0]} if len(base) else {})}
        if kind != "ordinary":
            known = {name: known[name] for name in ("aligned", "large", "NaN") if name in known}
        for name, canary in known.items():
            for label in range(classes or 1):
                with_it = _labelled(np.vstack([base, canary]), classes, label)
                without = with_it[:-1] if adjacency == "add-remove" else with_it.copy()
                if adjacency != "add-remove":
                    without[-1] = _labelled(np.vstack([base, least if name != "zero" else -canary + 0.5]), classes, 0)[
                        -1
                    ]
                    if np.array_equal(with_it, without):
                        continue
                called = f"{name} record" + (f" of class {label}" if classes else "")
                yield Pair(f"{called} among {kind} others", with_it, without)


def _labelled(records: Float[np.ndarray, "n d"], classes: int, label: int) -> Float[np.ndarray, "n d1"]:
    """Append labels: the classes in turn for the others, and the given class for the last record."""
    if not classes:
        return records
    labels = np.arange(len(records)) % classes
    labels[-1] = label
    return np.column_stack([records, labels])
