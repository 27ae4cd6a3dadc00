"""Privacy losses of one Poisson-subsampled Gaussian step, rounded to multiples of an interval without lowering any δ.

With P = (1 − q)N(0, σ²) + q N(1, σ²), the output with the record, and Q = N(0, σ²), the loss log P/Q grows with the
output. The mass between two multiples is divided between them so that its probabilities under P and under Q do not
change. This is "connect the dots" (Doroshenko et al. 2022), the smallest distribution on that grid whose δ(ε) is
nowhere too small.

ε of many steps from the privacy loss distributions of single ones, precise in the tail that determines ε.

The distribution of the summed losses is the n-th power of a Fourier transform, whose rounding error is about n · 10⁻¹⁶
of its largest probability. At 10⁵ steps this is as much as a δ of 10⁻¹⁰. So probabilities are first tilted by e^(tl),
with t such that the sum's mean is near ε, and tilted back afterwards (Esscher 1932; large deviations).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
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


WIDTH = 8.0
"""Range kept on both sides of the tilted sum's mean, in standard deviations."""

FARTHEST = 0.999
"""Lower limit of log δ in the search for a tilt, as a share of the log probability that every loss is the largest."""

NEGLIGIBLE = -80.0
"""Logarithm of a value that is negligible beside 1 in a Fourier transform, whose rounding error is about 10⁻¹⁶."""

LARGEST_EXPONENT = 600.0
"""Limit on exponents. It prevents overflow in factors for losses far below ε, which are not used."""


class Summand(NamedTuple):
    """Losses [m] of one step, ascending, the logs of their probabilities [m], and the number of such steps."""

    losses: Float[np.ndarray, " m"]
    logs: Float[np.ndarray, " m"]
    steps: int


def epsilon_of_sum(
    losses: Float[np.ndarray, " m"], probabilities: Float[np.ndarray, " m"], infinite: float, steps: int, delta: float
) -> float:
    """Return the ε at which the sum of `steps` independent losses has δ(ε) = δ: 0 if δ(0) is smaller, inf if no ε reaches δ.

    `losses` are equally spaced, and `infinite` is the probability of an infinite loss.
    """

    return epsilon_of_sums([(LossDistribution(losses, probabilities, infinite), steps)], delta)


def epsilon_of_sums(parts: Sequence[tuple[LossDistribution, int]], delta: float, spacing: float | None = None) -> float:
    """Return the ε at δ of a sum of losses of several distributions, each with its number of independent steps.

    All differences between losses of one distribution are multiples of `spacing`; without it the least difference is
    the spacing.
    """
    count = sum(steps for _, steps in parts)
    finite = sum(steps * math.log1p(-one.infinite) if one.infinite < 1 else -math.inf for one, steps in parts)
    # subtract the δ of sums that contain an infinite loss; a single step needs no rounding
    left = delta + (math.expm1(finite) if count > 1 else -parts[0][0].infinite)
    if left < 0:
        return math.inf
    summands = []
    for one, steps in parts:
        kept = one.probabilities > 0
        losses, logs = one.losses[kept], np.log(one.probabilities[kept])
        # rounding may change the mass by 10⁻¹⁰, which becomes 10⁻⁵ after 10⁵ steps
        logs += math.log1p(-one.infinite) - _moments(losses, logs, 0.0)[0]
        summands.append(Summand(losses, logs, steps))
    largest = sum(one.steps * float(one.losses[-1]) for one in summands)
    if largest <= 0:
        return 0.0
    if left == 0:
        return largest
    if spacing is None:
        spacing = min(float(np.diff(one.losses).min()) for one in summands)
    exact = _epsilon(summands, _tilt_for(summands, left), spacing, left)
    return min(largest, max(0.0, exact))  # rounding may exceed the largest sum


def _moments(losses: Float[np.ndarray, " m"], logs: Float[np.ndarray, " m"], tilt: float) -> tuple[float, float, float]:
    """Return the log of the sum of p e^(tl), and the tilted mean and variance."""
    from scipy.special import logsumexp

    exponents = logs + tilt * losses
    total = float(logsumexp(exponents))
    weights = np.exp(exponents - total)
    mean = float(weights @ losses)
    return total, mean, float(weights @ np.square(losses - mean))


def _tilt_for(summands: Sequence[Summand], delta: float) -> float:
    """Return the tilt t at whose mean the sum has about this δ: e^(nK(t) − tnK′(t)) / (1 + t(1 + t)√(2πn K″(t))).

    If the denominator is large, it is that of the saddle-point approximation. Without a denominator the tilt would
    follow the probability that the loss exceeds ε. For small ε this is near 1, while δ depends on how far losses exceed
    ε.
    """
    from scipy.optimize import brentq

    log_delta = max(math.log(delta), sum(one.steps * FARTHEST * float(one.logs[-1]) for one in summands))

    def excess(tilt: float) -> float:
        exponent = spread = 0.0
        for losses, logs, steps in summands:
            total, mean, variance = _moments(losses, logs, tilt)
            exponent += steps * (total - tilt * mean)
            spread += steps * variance
        return exponent - math.log1p(tilt * (1 + tilt) * math.sqrt(2 * math.pi * spread)) - log_delta

    high = 1 / max(float(one.losses[-1]) for one in summands)
    while excess(high) > 0:
        high *= 2
    return float(brentq(excess, 0.0, high, xtol=1e-4 * high, rtol=1e-4)) if excess(0.0) > 0 else 0.0


def _epsilon(summands: Sequence[Summand], tilt: float, spacing: float, delta: float) -> float:
    """Return ε at δ from the sums of losses around the tilted mean; −inf if all these sums together have a smaller δ."""
    from scipy.fft import irfft, next_fast_len, rfft
    from scipy.signal import lfilter

    known = [_moments(one.losses, one.logs, tilt) for one in summands]
    places = [np.rint((one.losses - one.losses[0]) / spacing).astype(np.int64) for one in summands]
    spread = sum(one.steps * variance for one, (_, _, variance) in zip(summands, known, strict=True))
    reach = WIDTH * math.sqrt(spread) + sum(int(place[-1]) * spacing for place in places)
    size = next_fast_len(int(2 * reach / spacing) + 2, real=True)
    transform: np.ndarray | None = None
    for one, place, (total, _, _) in zip(summands, places, known, strict=True):
        row = np.zeros(size)
        np.add.at(row, place % size, np.exp(one.logs + tilt * one.losses - total))
        power = _power(rfft(row), one.steps)
        transform = power if transform is None else transform * power
    sums = np.maximum(irfft(transform, size), 0.0)
    # the sums are known modulo the size of the transform, and start farthest below the mean
    above = sum(one.steps * (mean - one.losses[0]) for one, (_, mean, _) in zip(summands, known, strict=True))
    lowest = math.ceil((above - reach) / spacing)
    sums = np.roll(sums, -(lowest % size))
    loss = sum(one.steps * one.losses[0] for one in summands) + (lowest + np.arange(size)) * spacing
    # undo the tilt around the mean; the rest of the factor is a single number
    middle = sum(one.steps * mean for one, (_, mean, _) in zip(summands, known, strict=True))
    weight = sums * np.exp(np.minimum(-tilt * (loss - middle), LARGEST_EXPONENT))
    exponent = sum(one.steps * (total - tilt * mean) for one, (total, mean, _) in zip(summands, known, strict=True))
    target = delta * math.exp(-exponent)
    # δ at a loss: the mass of larger losses, minus that mass discounted by e^(difference of the losses). Its own mass would
    # cancel, and with it the digits of the larger losses
    mass = np.cumsum(weight[::-1])[::-1][1:]
    discounted = lfilter([1.0], [1.0, -math.exp(-spacing)], weight[::-1])[::-1][1:]
    over = np.flatnonzero(mass - math.exp(-spacing) * discounted > target)
    if not len(over):
        return -math.inf
    last = over[-1]
    return float(loss[last + 1] + math.log((mass[last] - target) / discounted[last]))


def _power(base: np.ndarray, exponent: int) -> np.ndarray:
    """Return base ** exponent, or 0 where this is negligible beside 1."""
    sizes = np.abs(base)
    kept = sizes > math.exp(NEGLIGIBLE / exponent)
    result = np.zeros_like(base)
    result[kept] = base[kept] ** exponent
    return result
