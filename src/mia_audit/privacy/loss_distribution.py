"""Privacy losses of one Poisson-subsampled Gaussian step, rounded to multiples of an interval without lowering any δ.

With P = (1 − q)N(0, σ²) + q N(1, σ²), the output with the record, and Q = N(0, σ²), the loss log P/Q grows with the
output. The mass between two multiples is divided between them so that its probabilities under P and under Q do not
change. This is "connect the dots" (Doroshenko et al. 2022), the smallest distribution on that grid whose δ(ε) is
nowhere too small.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from jaxtyping import Float

LEAST_MASS = 1e-300
"""Smallest mass between two multiples that is divided. A smaller mass has lost its digits, and is moved entirely to the upper multiple."""


ITERATIONS = 12
"""Iterations of Newton's method; more of them change no digit."""

BLOCK = 1 << 22
"""Number of terms of a mixture that are in memory at once."""


class LossDistribution(NamedTuple):
    """Privacy losses [m], ascending and equally spaced, their probabilities [m], and the probability of an infinite loss."""

    losses: Float[np.ndarray, " m"]
    probabilities: Float[np.ndarray, " m"]
    infinite: float


def points(sigma: float, rate: float, interval: float, tail: float) -> float:
    """Return the approximate number of multiples of the interval that the losses span."""
    return (_loss(_reach(sigma, rate, tail)[1], sigma, rate) - math.log1p(-rate)) / interval


def losses_of_step(
    sigma: float, rate: float, interval: float, tail: float
) -> tuple[LossDistribution, LossDistribution]:
    """Return the losses of a record that is removed (log P/Q under P) and of one that is added (log Q/P under Q).

    Outputs beyond the grid have probability `tail` on either side. Losses above the grid count as infinite, losses
    below it as the grid's smallest loss.
    """
    low, high = _reach(sigma, rate, tail)
    first = math.floor(_loss(low, sigma, rate) / interval)
    edges = np.arange(first, math.ceil(_loss(high, sigma, rate) / interval) + 1) * interval
    outputs = _output(edges, sigma, rate)
    below, above = np.append(-np.inf, outputs), np.append(outputs, np.inf)
    q = _mass(below, above)
    return _divided(edges, (1 - rate) * q + rate * _mass(below - 1 / sigma, above - 1 / sigma), q, interval)


def losses_of_mixture(
    sigma: float, weights: Float[np.ndarray, " k"], interval: float, tail: float
) -> tuple[LossDistribution, LossDistribution]:
    """Return the losses of a unit of which 0, 1, … records are sampled with these probabilities, each moving the output by 1.

    P is then Σ w_i N(i, σ²), and log P/Q still grows with the output. The losses are those of `losses_of_step`
    otherwise.
    """
    from scipy.special import logsumexp, ndtri

    counts = np.flatnonzero(weights[1:] > 0) + 1
    logs, slopes = np.log(weights[counts]) - 0.5 * (counts / sigma) ** 2, counts / sigma
    sampled = -math.fsum(weights[1:])  # log P/Q is above log(1 + sampled)
    ends = slopes - ndtri(np.minimum(0.5, tail / (2 * len(counts) * weights[counts])))
    reach = np.array([ndtri(tail), max(-ndtri(tail / 2), ends.max())])
    seen = np.logaddexp(math.log1p(sampled), logsumexp(logs + reach[:, None] * slopes, axis=1))
    edges = np.arange(math.floor(seen[0] / interval), math.ceil(seen[1] / interval) + 1) * interval
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        excess = np.where(
            edges < 1, np.log(np.expm1(edges) - sampled), edges + np.log1p(-(1 + sampled) * np.exp(-edges))
        )
    parts = np.array_split(excess, math.ceil(excess.size * logs.size / BLOCK))
    outputs = np.concatenate([_output_of_mixture(part, logs, slopes) for part in parts])
    below, above = np.append(-np.inf, outputs), np.append(outputs, np.inf)
    q = _mass(below, above)
    p = (1 + sampled) * q + sum(weights[i] * _mass(below - i / sigma, above - i / sigma) for i in counts)
    return _divided(edges, p, q, interval)


def _divided(
    edges: Float[np.ndarray, " m"], p: Float[np.ndarray, " n"], q: Float[np.ndarray, " n"], interval: float
) -> tuple[LossDistribution, LossDistribution]:
    """Divide the masses between edges, and beyond the first and the last, between the edges."""
    # the share of the mass between two multiples that goes to the upper one; the first and last are the two tails
    width = -math.expm1(-interval)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        up = (p[1:-1] - q[1:-1] * np.exp(edges[:-1])) / width
        up = np.where((p[1:-1] > LEAST_MASS) & (q[1:-1] > LEAST_MASS), np.clip(up, 0, p[1:-1]), p[1:-1])
        down = np.clip((q[1:-1] - p[1:-1] * np.exp(-edges[1:])) / width, 0, q[1:-1])
    removed = np.append(p[1:-1] - up, 0.0) + np.append(p[0], up)
    added = np.append(down, q[-1]) + np.append(0.0, q[1:-1] - down)
    return (
        LossDistribution(edges, removed, float(p[-1])),
        LossDistribution(-edges[::-1], added[::-1], float(q[0])),
    )


def _reach(sigma: float, rate: float, tail: float) -> tuple[float, float]:
    """Return two outputs in units of σ. Both distributions have at most mass `tail` below the first, and above the second."""
    from scipy.special import ndtri

    sampled = 1 / sigma - ndtri(min(0.5, tail / (2 * rate)))
    return float(ndtri(tail)), float(max(-ndtri(tail / 2), sampled))


def _loss(output: float, sigma: float, rate: float) -> float:
    """Return log P/Q at an output in units of σ."""
    ratio = output / sigma - 0.5 / sigma**2
    if rate == 1:
        return ratio
    if ratio < 1:
        return math.log1p(rate * math.expm1(ratio))
    return float(np.logaddexp(math.log1p(-rate), math.log(rate) + ratio))


def _output(losses: Float[np.ndarray, " m"], sigma: float, rate: float) -> Float[np.ndarray, " m"]:
    """Return the outputs, in units of σ, at which log P/Q has these values; −∞ for values that log P/Q never reaches."""
    if rate == 1:
        return np.asarray(sigma * losses + 0.5 / sigma)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        small = np.log1p(np.maximum(np.expm1(losses) / rate, -1.0))
        large = losses - math.log(rate) + np.log1p(-(1 - rate) * np.exp(-losses))
    return np.asarray(sigma * np.where(losses < 1, small, large) + 0.5 / sigma)


def _output_of_mixture(
    excess: Float[np.ndarray, " m"], logs: Float[np.ndarray, " k"], slopes: Float[np.ndarray, " k"]
) -> Float[np.ndarray, " m"]:
    """Return y with log Σ e^(logs + y slopes) = excess; −∞ where the excess is not finite.

    The sum is no smaller than each of its terms, and its logarithm is convex, so Newton's method descends to y.
    """
    outputs = np.full(len(excess), -np.inf)
    known = np.isfinite(excess)
    y = ((excess[known, None] - logs) / slopes).min(axis=1)
    for _ in range(ITERATIONS):
        exponents = logs + y[:, None] * slopes
        largest = exponents.max(axis=1)
        shares = np.exp(exponents - largest[:, None])
        totals = shares.sum(axis=1)
        y -= (largest + np.log(totals) - excess[known]) * totals / (shares @ slopes)
    outputs[known] = y
    return outputs


def _mass(low: Float[np.ndarray, " m"], high: Float[np.ndarray, " m"]) -> Float[np.ndarray, " m"]:
    """Return the normal distribution's mass between two points, computed in the tail where they lie."""
    from scipy.special import ndtr

    flip = low > 0
    return np.asarray(ndtr(np.where(flip, -low, high)) - ndtr(np.where(flip, -high, low)))
