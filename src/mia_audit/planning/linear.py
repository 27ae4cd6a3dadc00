"""Fit the time of work on n records by a line through timed points."""

from collections.abc import Callable
from dataclasses import dataclass

LONG = 0.1
"""Seconds from which a timed run is long enough: no more records are timed together, and the run is not repeated."""

WARM = 1.0
"""Seconds from which set-up that happens once is small beside a run of a model, so that the first run counts."""


@dataclass(frozen=True)
class Linear:
    """Seconds of work on n records: `fixed` + `each` · n."""

    fixed: float
    each: float

    def __call__(self, records: float) -> float:
        return self.fixed + self.each * records


def fitted(seconds: Callable[[int], float], most: int, few: int = 0, empty: bool = False) -> Linear:
    """Fit `seconds` of 1, 4, 16 … records, up to `most` of them or until a run is long, by its last two points.

    A run that is nearly long is followed by one of twice as many. Shorter runs are timed twice, and so is the first one, beside
    set-up that happens once. Where seconds are known to be proportional to records from a `few` on, and those are long already,
    their run is the rate, less what a run of no records takes where there is such a thing (`empty`: a private step, whose
    set-up is long).
    """
    few = min(few, most)
    first = seconds(few or 1)
    if few and first > LONG:
        taken = first if first > WARM and not empty else min(first, seconds(few))
        fixed = seconds(0) if empty else 0.0
        return Linear(fixed, max(taken - fixed, 0.0) / few)
    points: list[tuple[int, float]] = []
    count = 1
    while True:
        taken = seconds(count)
        again = count > 1 or few > 1
        points.append((count, min(taken, seconds(count) if again else first) if taken <= LONG else taken))
        if count == most or (points[-1][1] > LONG and len(points) > 1):
            break
        count = min(4 * count if points[-1][1] < LONG / 2 else 2 * count, most)
    (few, less), (many, more) = points[max(len(points) - 2, 0)], points[-1]
    each = more / many if few == many else min(max((more - less) / (many - few), 0.0), more / many)
    return Linear(max(more - each * many, 0.0), each)
