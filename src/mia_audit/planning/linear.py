"""Fit the time of work on n records by a line through timed points."""

from collections.abc import Callable
from dataclasses import dataclass

LONG = 0.1
"""A timed run of this many seconds or more is long: it is not repeated, and no larger run follows."""

WARM = 1.0
"""If a first run takes this many seconds or more, one-time set-up is negligible, and the run is not repeated."""


@dataclass(frozen=True)
class Linear:
    """Seconds of work on n records: `fixed` + `each` · n."""

    fixed: float
    each: float

    def __call__(self, records: float) -> float:
        return self.fixed + self.each * records


def fitted(seconds: Callable[[int], float], most: int, few: int = 0, empty: bool = False) -> Linear:
    """Time runs of 1, 4, 16 … records, up to `most` of them or until a run is long, and fit a line through the last two.

    A run that is nearly long is followed by one with twice as many records. Runs that are not long are timed twice. The
    first run includes one-time set-up, and is repeated. If the seconds are known to be proportional to the number of
    records from `few` records on, and a run of `few` is long, this run alone gives the rate. With `empty`, the seconds
    of a run without records are subtracted first, because a private step has a long set-up.
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
