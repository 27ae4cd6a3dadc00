"""Fit the seconds that work on n records takes by a line through timed points."""

from collections.abc import Callable
from dataclasses import dataclass

LONG = 0.4
"""Seconds after which a timed run is long enough: until then, more records are timed together."""


@dataclass(frozen=True)
class Linear:
    """Seconds of work on n records: `fixed` + `each` · n."""

    fixed: float
    each: float

    def __call__(self, records: float) -> float:
        return self.fixed + self.each * records


def fitted(seconds: Callable[[int], float], most: int) -> Linear:
    """Fit `seconds` of 1, 4, 16 … records, up to `most` of them or until a run is long, by its last two points.

    Where one record is long already, two records are the second point, and each is timed once.
    """
    long = seconds(1) > LONG  # beside set-up that happens once
    factor, repeats = (2, 1) if long else (4, 2)
    points: list[tuple[int, float]] = []
    count = 1
    while True:
        points.append((count, min(seconds(count) for _ in range(repeats))))
        if count == most or (points[-1][1] > LONG and len(points) > 1):
            break
        count = min(factor * count, most)
    (few, less), (many, more) = points[max(len(points) - 2, 0)], points[-1]
    each = more / many if few == many else min(max((more - less) / (many - few), 0.0), more / many)
    return Linear(max(more - each * many, 0.0), each)
