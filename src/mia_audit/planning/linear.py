"""Fit the seconds that work on n records takes by a line through timed points."""

from collections.abc import Callable
from dataclasses import dataclass

LONG = 0.3
"""Seconds from which a timed run is long enough: no more records are timed together, and the run is not repeated."""


@dataclass(frozen=True)
class Linear:
    """Seconds of work on n records: `fixed` + `each` · n."""

    fixed: float
    each: float

    def __call__(self, records: float) -> float:
        return self.fixed + self.each * records


def fitted(seconds: Callable[[int], float], most: int, few: int = 0, empty: bool = False) -> Linear:
    """Fit `seconds` of 1, 4, 16 … records, up to `most` of them or until a run is long, by its last two points.

    Shorter runs are timed twice. Where one record is long already, and seconds are known to be proportional to records from
    a `few` on, a run of those is the rate, less what a run of no records takes where there is such a thing (`empty`).
    """
    few = min(few, most)
    if seconds(1) > LONG and few:  # beside set-up that happens once
        fixed = seconds(0) if empty else 0.0
        return Linear(fixed, max(seconds(few) - fixed, 0.0) / few)
    points: list[tuple[int, float]] = []
    count = 1
    while True:
        taken = seconds(count)
        points.append((count, taken if taken > LONG else min(taken, seconds(count))))
        if count == most or (points[-1][1] > LONG and len(points) > 1):
            break
        count = min(4 * count, most)
    (few, less), (many, more) = points[max(len(points) - 2, 0)], points[-1]
    each = more / many if few == many else min(max((more - less) / (many - few), 0.0), more / many)
    return Linear(max(more - each * many, 0.0), each)
