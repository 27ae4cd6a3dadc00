"""ε of many equal steps from the privacy loss distribution of one, precise in the tail that determines ε.

The distribution of the summed losses is the n-th power of a Fourier transform, whose rounding error is about n · 10⁻¹⁶
of its largest probability. At 10⁵ steps this is as much as a δ of 10⁻¹⁰. So probabilities are first tilted by e^(tl),
with t such that the sum's mean is near ε, and tilted back afterwards (Esscher 1932; large deviations).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from jaxtyping import Float

WIDTH = 8.0
"""Range kept on both sides of the tilted sum's mean, in standard deviations."""

FARTHEST = 0.999
"""Lower limit of log δ in the search for a tilt, as a share of the log probability that every loss is the largest."""

NEGLIGIBLE = -80.0
"""Logarithm of a value that is negligible beside 1 in a Fourier transform, whose rounding error is about 10⁻¹⁶."""

LARGEST_EXPONENT = 600.0
"""Limit on exponents. It prevents overflow in factors for losses far below ε, which are not used."""


def epsilon_of_sum(
    losses: Float[np.ndarray, " m"], probabilities: Float[np.ndarray, " m"], infinite: float, steps: int, delta: float
) -> float:
    """Return the ε at which the sum of `steps` independent losses has δ(ε) = δ: 0 if δ(0) is smaller, inf if no ε reaches δ.

    `losses` are equally spaced, and `infinite` is the probability of an infinite loss.
    """
    left = delta + math.expm1(steps * math.log1p(-infinite))  # subtract the δ of sums that contain an infinite loss
    if left <= 0:
        return math.inf
    kept = probabilities > 0
    losses, logs = losses[kept], np.log(probabilities[kept])
    if losses[-1] <= 0:
        return 0.0
    # rounding may change the mass by 10⁻¹⁰, which becomes 10⁻⁵ after 10⁵ steps
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
    """Return the tilt t at whose mean the sum has about this δ: e^(nK(t) − tnK′(t)) / (1 + t(1 + t)√(2πn K″(t))).

    If the denominator is large, it is that of the saddle-point approximation. Without a denominator the tilt would
    follow the probability that the loss exceeds ε. For small ε this is near 1, while δ depends on how far losses exceed
    ε.
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
    """Return ε at δ from the sums of losses around the tilted mean; −inf if all these sums together have a smaller δ."""
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
    # the sums are known modulo the size of the transform, and start farthest below the mean
    lowest = math.ceil((steps * (mean - losses[0]) - reach) / spacing)
    sums = np.roll(sums, -(lowest % size))
    loss = steps * losses[0] + (lowest + np.arange(size)) * spacing
    # undo the tilt around the mean; the rest of the factor is a single number
    weight = sums * np.exp(np.minimum(-tilt * (loss - steps * mean), LARGEST_EXPONENT))
    target = delta * math.exp(-steps * (total - tilt * mean))
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
