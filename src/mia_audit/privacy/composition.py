"""ε of many equal steps from the privacy loss distribution of one, precise in the tail that ε is read from.

The distribution of the summed losses is the n-th power of a Fourier transform, whose rounding error is some n · 10⁻¹⁶ of its
largest probability: at 10⁵ steps as much as a δ of 10⁻¹⁰. So probabilities are tilted by e^(tl) first, with the t at which ε
is where the sum's mean lies, and tilted back after it (Esscher 1932; large deviations).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from jaxtyping import Float

WIDTH = 8.0
"""Standard deviations of the tilted sum on both sides of its mean that are kept."""

FARTHEST = 0.999
"""The logarithm of δ is looked for up to this share of that of the largest loss alone, which no tilt reaches."""

NEGLIGIBLE = -80.0
"""Logarithm of what does not count beside 1 in a Fourier transform, whose rounding is some 10⁻¹⁶."""

LARGEST_EXPONENT = 600.0
"""Factors far below ε, which nothing is read from, do not overflow."""


def epsilon_of_sum(
    losses: Float[np.ndarray, " m"], probabilities: Float[np.ndarray, " m"], infinite: float, steps: int, delta: float
) -> float:
    """Return the ε at which `steps` independent losses have δ(ε) = δ: 0 where δ(0) is smaller, inf where no ε has it.

    `losses` are equally spaced, and `infinite` is the probability of an infinite one.
    """
    left = delta + math.expm1(steps * math.log1p(-infinite))  # the rest is δ of sums that hold an infinite loss
    if left <= 0:
        return math.inf
    kept = probabilities > 0
    losses, logs = losses[kept], np.log(probabilities[kept])
    if losses[-1] <= 0:
        return 0.0
    # rounding may leave the mass 10⁻¹⁰ off, which 10⁵ steps make 10⁻⁵
    logs += math.log1p(-infinite) - _moments(losses, logs, 0.0)[0]
    tilt = _tilt_for(losses, logs, steps, left)
    return max(0.0, _epsilon(losses, logs, tilt, steps, left))


def _moments(losses: Float[np.ndarray, " m"], logs: Float[np.ndarray, " m"], tilt: float) -> tuple[float, float, float]:
    """Return the log of the sum of p e^(tl), and the tilted mean and variance."""
    from scipy.special import logsumexp

    exponents = logs + tilt * losses
    total = float(logsumexp(exponents))
    weights = np.exp(exponents - total)
    mean = float(weights @ losses)
    return total, mean, float(weights @ np.square(losses - mean))


def _tilt_for(losses: Float[np.ndarray, " m"], logs: Float[np.ndarray, " m"], steps: int, delta: float) -> float:
    """Return the tilt at whose mean the sum has about this δ: e^(nK(t) − tnK′(t)) / (1 + t(1 + t)√(2πn K″(t))).

    The denominator is the saddle point's, where it is large. Without it the tilt would go by the probability of a larger loss,
    which is near 1 where ε is so small that δ is what losses exceed it by.
    """
    from scipy.optimize import brentq

    log_delta = max(math.log(delta), steps * FARTHEST * float(logs[-1]))

    def excess(tilt: float) -> float:
        total, mean, variance = _moments(losses, logs, tilt)
        beyond = math.log1p(tilt * (1 + tilt) * math.sqrt(2 * math.pi * steps * variance))
        return steps * (total - tilt * mean) - beyond - log_delta

    high = 1 / float(losses[-1])
    while excess(high) > 0:
        high *= 2
    return float(brentq(excess, 0.0, high, xtol=1e-4 * high, rtol=1e-4)) if excess(0.0) > 0 else 0.0


def _epsilon(
    losses: Float[np.ndarray, " m"], logs: Float[np.ndarray, " m"], tilt: float, steps: int, delta: float
) -> float:
    """Return ε at δ by the sums of losses within reach of the tilted mean, −inf where all of them together have less."""
    from scipy.fft import irfft, next_fast_len, rfft
    from scipy.signal import lfilter

    total, mean, variance = _moments(losses, logs, tilt)
    spacing = float(np.diff(losses).min())
    places = np.rint((losses - losses[0]) / spacing).astype(np.int64)
    reach = WIDTH * math.sqrt(steps * variance) + places[-1] * spacing
    size = next_fast_len(int(2 * reach / spacing) + 2, real=True)
    row = np.zeros(size)
    np.add.at(row, places % size, np.exp(logs + tilt * losses - total))
    sums = np.maximum(irfft(_power(rfft(row), steps), size), 0.0)
    # the sums, modulo the size of the transform, from the one that is farthest below the mean
    lowest = math.ceil((steps * (mean - losses[0]) - reach) / spacing)
    sums = np.roll(sums, -(lowest % size))
    loss = steps * losses[0] + (lowest + np.arange(size)) * spacing
    # undo the tilt around the mean: the rest of the factor is one number
    weight = sums * np.exp(np.minimum(-tilt * (loss - steps * mean), LARGEST_EXPONENT))
    target = delta * math.exp(-steps * (total - tilt * mean))
    # δ at a loss: the mass from it on, less that mass discounted by e^(how much larger the loss is)
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
    """Return base ** exponent, 0 where that is negligible beside 1."""
    sizes = np.abs(base)
    kept = sizes > math.exp(NEGLIGIBLE / exponent)
    result = np.zeros_like(base)
    result[kept] = base[kept] ** exponent
    return result
