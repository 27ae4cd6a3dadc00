"""Means and standard deviations of columns, released once under differential privacy from bounds known beforehand.

Let u in [−1, 1] be the position of a value between its column's bounds. A record adds (u, 1 − u²) for every column to
the released sums. The squared norm of that pair is 1 − u² + u⁴ ≤ 1, so d columns together have sensitivity √d. Without
second moments the sensitivity would be the same, so the second moments cost nothing (Kalinin et al. 2025 show this for
streams). Neighbouring pools differ by one record, added or removed; n is public, as it is for training. If the unit is
the person, a person adds the mean of the pairs of their records, whose norm is at most the largest norm of a pair;
neighbouring pools differ by one person, and n counts persons.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from mia_audit.privacy.gaussian import multiplier_for

Secret = tuple[int | str, ...]
"""The secret of a release's noise: the seed, and names that identify the release."""

Column = Float[np.ndarray, " d"]


class Bounds(NamedTuple):
    """Low and high [d] of every column, known without looking at the records; low is below high."""

    low: Column
    high: Column

    @property
    def centre(self) -> Column:
        """The middle between the bounds."""
        return np.asarray((self.low + self.high) / 2)

    @property
    def reach(self) -> Column:
        """Half the distance between the bounds."""
        return np.asarray((self.high - self.low) / 2)

    def places(self, values: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n d"]:
        """Return the positions of values between the bounds: −1 at or below the low bound, 1 at or above the high bound, NaN for NaN."""
        with np.errstate(over="ignore", invalid="ignore"):
            return np.asarray(np.clip((values.astype(np.float64) - self.centre) / self.reach, -1, 1))


@dataclass(frozen=True)
class Moments:
    """Noisy mean and standard deviation [d], a mask of deviations below the noise [d], and the noise.

    `noise` is the standard deviation of a mean's noise, as a share of half the distance between the bounds.
    """

    mean: Column
    sd: Column
    floored: Bool[np.ndarray, " d"]
    noise_multiplier: float
    sensitivity: float
    noise: float


def sensitivity(columns: int) -> float:
    """Return the L2 sensitivity to one record of the sums of that many columns."""
    return math.sqrt(columns)


def sums(
    chunks: Iterable[Float[np.ndarray, "n d"]], bounds: Bounds, shares: Column | None = None
) -> Float[np.ndarray, "2 d"]:
    """Return Σ u and Σ (1 − u²) over all records; a NaN adds nothing to the sums of its column.

    If the unit is the person, `shares` is 1 over the number of records of each record's person.
    """
    total = np.zeros((2, len(bounds.low)))
    start = 0
    for chunk in chunks:
        places = bounds.places(chunk)
        weights = 1.0 if shares is None else shares[start : start + len(chunk), None]
        start += len(chunk)
        total += np.stack([np.nansum(weights * places, axis=0), np.nansum(weights * (1 - places**2), axis=0)])
    return total


def release(
    chunks: Iterable[Float[np.ndarray, "n d"]],
    records: int,
    ends: tuple[Column, Column],
    epsilon: float,
    delta: float,
    secret: Secret | None,
    shares: Column | None = None,
) -> Moments:
    """Release the moments of n records' columns, with known bounds, by one Gaussian mechanism for (ε, δ).

    Like the noise of training, it is keyed by the secret, all terms and the records' content. So a release on other
    terms, or from other records, has different noise. The noise is added in float64 and the sum rounded to float32.
    Without a secret the noise is drawn as for a released model: from the operating system's entropy, and every normal
    number as a sum of four.

    If `shares` (as in `sums`) are given, `records` is the number of persons and the guarantee is for persons; if every
    person has one record, the release is the same as without `shares`.

    Post-processing costs no privacy: means are clipped to the bounds, and variances below the noise of their second
    moment are raised to a floor. Raises UserError for an ε so large that it needs almost no noise.
    """
    import torch

    from mia_audit.privacy.noise import RELEASED, Stream, fresh_key, training_key

    bounds = Bounds(*ends)
    moved = sensitivity(len(bounds.low))
    multiplier = multiplier_for(epsilon, 1, delta)
    digest = hashlib.sha256()
    total = sums(_digested(chunks, digest), bounds, shares)
    if shares is not None and (shares != 1).any():
        digest.update(shares.tobytes())
    terms = {
        "records": records,
        "bounds": [bounds.low.tolist(), bounds.high.tolist()],
        "epsilon": epsilon,
        "delta": delta,
    }
    key = fresh_key() if secret is None else training_key(secret, terms, digest.digest())
    noise_source = Stream(key, "moments", RELEASED if secret is None else 1)
    noisy = noise_source.add_noise(torch.from_numpy(total.ravel()), multiplier * moved).double().numpy().reshape(2, -1)
    noise = multiplier * moved / records
    mean = np.clip(noisy[0] / records, -1, 1)
    variance = 1 - noisy[1] / records - mean**2
    least = min(noise, 1.0)
    sd = np.sqrt(np.clip(variance, least, 1))
    return Moments(bounds.centre + bounds.reach * mean, bounds.reach * sd, variance < least, multiplier, moved, noise)


def _digested(chunks: Iterable[Float[np.ndarray, "n d"]], digest: hashlib._Hash) -> Iterator[Float[np.ndarray, "n d"]]:
    for chunk in chunks:
        digest.update(f"{chunk.dtype} {chunk.shape}".encode())
        digest.update(np.ascontiguousarray(chunk).tobytes())
        yield chunk


def release_afresh(
    chunks: Iterable[Float[np.ndarray, "n d"]],
    records: int,
    ends: tuple[Column, Column],
    epsilon: float,
    delta: float,
    secret: Secret,
    shares: Column | None = None,
) -> Moments:
    """Release moments as `release` does, with noise that nobody can repeat; the secret is not used."""
    return release(chunks, records, ends, epsilon, delta, None, shares)
