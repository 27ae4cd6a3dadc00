"""Fit the seconds that work on n records takes by a line through timed points."""

from collections.abc import Callable
from dataclasses import dataclass

LONG, BRIEF = 0.3, 0.1
"""Seconds from which a timed run is long enough, so that no more records are timed together, and from which one run will do."""


@dataclass(frozen=True)
class Linear:
    """Seconds of work on n records: `fixed` + `each` · n."""

    fixed: float
    each: float

    def __call__(self, records: float) -> float:
        return self.fixed + self.each * records


def fitted(seconds: Callable[[int], float], most: int) -> Linear:
    """Fit `seconds` of 1, 4, 16 … records, up to `most` of them or until a run is long, by its last two points.

    Runs that are brief are timed twice. Where one record is long already, a second run of one record is the rate.
    """
    if seconds(1) > LONG:  # beside set-up that happens once
        return Linear(0.0, seconds(1))
    points: list[tuple[int, float]] = []
    count = 1
    while True:
        taken = seconds(count)
        points.append((count, taken if taken > BRIEF else min(taken, seconds(count))))
        if count == most or (points[-1][1] > LONG and len(points) > 1):
            break
        count = min(4 * count, most)
    (few, less), (many, more) = points[max(len(points) - 2, 0)], points[-1]
    each = more / many if few == many else min(max((more - less) / (many - few), 0.0), more / many)
    return Linear(max(more - each * many, 0.0), each)
