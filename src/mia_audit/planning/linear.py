"""Fit the time of work on n records by a line through timed points."""

from collections.abc import Callable
from dataclasses import dataclass

LONG = 0.1
"""A timed run of this many seconds or more is long: it is not repeated, and no larger run follows."""

WARM = 0.5
"""In a first run of more seconds, one-time set-up is negligible, so that the run need not be repeated."""


@dataclass(frozen=True)
class Linear:
    """Seconds of work on n records: `fixed` + `each` · n."""

    fixed: float
    each: float

    def __call__(self, records: float) -> float:
        return self.fixed + self.each * records


def fitted(seconds: Callable[[int], float], most: int, few: int = 0, empty: bool = False, least: int = 1) -> Linear:
    """Time runs of 1, 4, 16 … times `least` records, up to `most` or until a run is long, and fit a line through the last two.

    A run that is nearly long is followed by one of twice as many records. Runs that are not long are timed twice, and so is
    the first one below `WARM`, because it includes one-time set-up. If the seconds are known to be proportional to the number
    of records from `few` records on, and a run of `few` is long, this run alone gives the rate; with `empty`, the seconds
    of a run without records are subtracted first (a private step has a long set-up).
    """

    def timed(count: int, long: float = LONG) -> float:
        taken = seconds(count)
        return taken if taken > long else min(taken, seconds(count))

    few, least = min(few, most), min(least, most)
    first = timed(few or least, WARM)
    if few and first > LONG:
        fixed = seconds(0) if empty else 0.0
        return Linear(fixed, max(first - fixed, 0.0) / few)
    points = [(least, timed(least) if few > least else first)]
    while points[-1][0] < most and (len(points) == 1 or points[-1][1] <= LONG):
        count, taken = points[-1]
        count = min(4 * count if taken < LONG / 2 else 2 * count, most)
        points.append((count, timed(count)))
    (few, less), (many, more) = points[max(len(points) - 2, 0)], points[-1]
    each = more / many if few == many else min(max((more - less) / (many - few), 0.0), more / many)
    return Linear(max(more - each * many, 0.0), each)
