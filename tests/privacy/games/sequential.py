"""Anytime-valid tests of the (ε, δ)-DP inequality for one event: P(S | D) ≤ e^ε P(S | D′) + δ.

A trial runs the mechanism once on each of the two inputs. With X and Y for "the event occurred", the claim says that
E[X − e^ε Y − δ] ≤ 0. Betting a share λ of the wealth on X − e^ε Y − δ multiplies the wealth by 1 + λ(X − e^ε Y − δ), so
the wealth is a supermartingale: the probability that it ever reaches 1/α is at most α, at any stopping time (Ville
1939; Waudby-Smith and Ramdas 2024). The wealth here is the mean over several λ, which is a supermartingale too.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from jaxtyping import Bool

SHARES = (*(2.0**-k for k in range(10, 0, -1)), 0.75, 0.9, 0.97)
"""Values of λ, as shares of the largest λ at which the wealth cannot become 0."""

RANGE = 200.0
"""The search for a bound stops at this ε."""


@dataclass
class Evidence:
    """Counts of an event in pairs of trials: on both inputs, only on the first, only on the second, on neither."""

    both: int = 0
    first: int = 0
    second: int = 0
    neither: int = 0

    @property
    def trials(self) -> int:
        """Pairs of trials so far."""
        return self.both + self.first + self.second + self.neither

    @property
    def on_first(self) -> int:
        """Occurrences on the first input."""
        return self.both + self.first

    @property
    def on_second(self) -> int:
        """Occurrences on the second input."""
        return self.both + self.second

    def add(self, on_first: Bool[np.ndarray, " t"], on_second: Bool[np.ndarray, " t"]) -> None:
        """Count pairs of trials, given whether the event occurred on each input."""
        both = int((on_first & on_second).sum())
        first, second = int(on_first.sum()) - both, int(on_second.sum()) - both
        self.both, self.first, self.second = self.both + both, self.first + first, self.second + second
        self.neither += len(on_first) - both - first - second

    def log_wealth(self, epsilon: float, delta: float) -> float:
        """Return the log wealth of betting against (ε, δ)-DP; if (ε, δ)-DP holds, this wealth reaches log 1/α with probability at most α."""
        ratio = math.exp(epsilon)
        gains = (1 - ratio - delta, 1 - delta, -ratio - delta, -delta)
        return self._mixed(gains, 1 / (ratio + delta))

    def lower_bound(self, alpha: float, delta: float) -> float:
        """Return the largest ε at which (ε, δ)-DP is rejected at level α: a lower bound on the mechanism's ε, valid at any stopping time."""
        threshold = -math.log(alpha)
        if self.log_wealth(0.0, delta) < threshold:
            return 0.0
        low, high = 0.0, RANGE
        while high - low > 1e-6:
            middle = (low + high) / 2
            low, high = (middle, high) if self.log_wealth(middle, delta) >= threshold else (low, middle)
        return low

    def _mixed(self, gains: tuple[float, float, float, float], largest: float) -> float:
        counts = (self.both, self.first, self.second, self.neither)
        logs = [
            sum(count * math.log1p(share * largest * gain) for count, gain in zip(counts, gains, strict=True) if count)
            for share in SHARES
        ]
        top = max(logs)
        return top + math.log(sum(math.exp(value - top) for value in logs) / len(logs))
