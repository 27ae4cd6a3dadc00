"""ε of many steps from the privacy loss distributions of single ones, precise in the tail that determines ε.

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

    from mia_audit.privacy.loss_distribution import LossDistribution

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
    from mia_audit.privacy.loss_distribution import LossDistribution

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
    return max(0.0, _epsilon(summands, _tilt_for(summands, left), spacing, left))


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
    # δ at a loss: the mass of larger losses, minus that mass discounted by e^(difference of the losses)
    mass = np.cumsum(weight[::-1])[::-1]
    discounted = lfilter([1.0], [1.0, -math.exp(-spacing)], weight[::-1])[::-1]
    over = np.flatnonzero(mass - discounted > target)
    if not len(over):
        return -math.inf
    last = over[-1]
    if last + 1 == size or mass[last + 1] <= target:
        return float(loss[last])
    return float(loss[last + 1] + math.log((mass[last + 1] - target) / discounted[last + 1]))


def _power(base: np.ndarray, exponent: int) -> np.ndarray:
    """Return base ** exponent, or 0 where this is negligible beside 1."""
    sizes = np.abs(base)
    kept = sizes > math.exp(NEGLIGIBLE / exponent)
    result = np.zeros_like(base)
    result[kept] = base[kept] ** exponent
    return result
