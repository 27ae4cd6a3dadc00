"""Mechanisms to judge: sound ones, and some that are broken on purpose. All claim ε = 1 where they have no other."""

from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from mia_audit.privacy.gaussian import multiplier_for

DELTA = 1e-5


def clipped(records: np.ndarray) -> np.ndarray:
    """Return the sum of records whose length is at most 1; what is not finite counts as 0."""
    records = np.nan_to_num(records, nan=0.0, posinf=0.0, neginf=0.0)
    largest = np.maximum(np.abs(records).max(axis=1, keepdims=True, initial=1.0), 1.0)
    records = records / largest
    return np.asarray((records / np.maximum(np.linalg.norm(records, axis=1, keepdims=True), 1.0)).sum(axis=0))


def gaussian(records, randomness, scale=1.0, epsilon=1.0, delta=DELTA):
    deviation = scale * multiplier_for(epsilon, 1, delta)
    return clipped(records) + np.random.default_rng(randomness).normal(0, deviation, records.shape[1])


def laplace(records, randomness):
    return clipped(records[:, :1]) + np.random.default_rng(randomness).laplace(0, 1)


def randomized_response(records, randomness):
    """Tell of the last record whether it is positive, rightly with probability e/(1 + e)."""
    truth = bool(len(records)) and records[-1, 0] > 0
    return truth if np.random.default_rng(randomness).random() < np.e / (1 + np.e) else not truth


def gaussian_with_a_fifth_of_the_noise(records, randomness):
    return gaussian(records, randomness, scale=0.2)


def gaussian_that_passes_nan_on(records, randomness):
    return records.clip(-1, 1).sum(axis=0) + np.random.default_rng(randomness).normal(0, 10, records.shape[1])


def gaussian_that_raises(records, randomness):
    if np.abs(records).max(initial=0.0) > 1e3:
        raise ValueError("a record is too large")
    return gaussian(records, randomness)


def gaussian_that_warns(records, randomness):
    if np.abs(records).max(initial=0.0) > 1e3:
        np.log(np.zeros(1))
    return gaussian(records, randomness)


def gaussian_that_writes_a_file(records, randomness):
    if len(np.unique(records, axis=0)) < len(records):
        Path("duplicates.txt").write_text("some")
    return gaussian(records, randomness)


def gaussian_that_says_how_many(records, randomness):
    return [gaussian(records, randomness), len(records)]


def laplace_of_the_mean(records, randomness):
    """Noise for a mean of n records, n being the number there is: of one record it tells more."""
    return clipped(records[:, :1]).sum() + np.random.default_rng(randomness).laplace(0, 1 / max(len(records), 1))


def gaussian_of_32_bits(records, randomness):
    random = np.random.RandomState(randomness % 2**32)
    return clipped(records) + random.normal(0, multiplier_for(1.0, 1, DELTA), records.shape[1])


AT_FOUR = multiplier_for(4.0, 1, DELTA)


def number_at_four(records, randomness, scale=1.0):
    """One number whose noise is exactly that of ε = 4."""
    total = float(np.clip(records[:, 0], -1, 1).sum())
    return total + scale * AT_FOUR * np.random.Generator(np.random.Philox(randomness)).standard_normal()


def number_at_four_with_three_quarters_of_the_noise(records, randomness):
    return number_at_four(records, randomness, 0.75)


@dataclass
class Released:
    """A release with a name."""

    total: Any


TYPES = {
    "decimal": Decimal,
    "fraction": Fraction,
    "complex": lambda total: complex(0, total),
    "dataclass": Released,
    "integer": lambda total: int(Fraction(total) * 2**80),
    "object array": lambda total: np.array([Decimal(total), int(total * 2**70)], dtype=object),
    "text": str,
    "object": lambda total: lambda: total,
}
"""Types of a released number."""


def laplace_with_a_fifth_of_the_noise_of_type(records, randomness, kind):
    return TYPES[kind](float(clipped(records[:, :1])[0] + np.random.default_rng(randomness).laplace(0, 0.2)))


def laplace_as_text(records, randomness):
    """Release text, but nothing from fewer than two records."""
    return str(laplace(records, randomness)) if len(records) > 1 else "nothing"


def noise_of_two_records(records, randomness):
    """Refuse fewer than two records."""
    if len(records) < 2:
        raise ValueError("too few records")
    return gaussian(records, randomness)


def rounded(records, randomness):
    """Release text with few values."""
    return f"{float(laplace(records, randomness)[0]):.0f}"
