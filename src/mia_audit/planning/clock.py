"""Time work on this machine: in processor seconds, which other processes do not affect, or in a GPU's seconds."""

import argparse
import ast
import inspect
import time
from collections.abc import Callable

LONG = 0.1
"""No larger run follows a timed run of this many seconds, unless the caller says otherwise."""

PARSED = 0.028
"""Processor seconds to parse the source of `argparse` on the machine that gave the constants of `estimate`."""


def pace() -> float:
    """Return this machine's processor time relative to that of the machine that gave the constants of `estimate`."""
    source = inspect.getsource(argparse)
    return min(_once(lambda: ast.parse(source), time.process_time) for _ in range(5)) / PARSED


def extrapolated(
    work: Callable[[int], Callable[[], object]],
    most: int,
    least: int = 1,
    clock: Callable[[], float] = time.process_time,
    empty: bool = False,
    long: float = LONG,
) -> float:
    """Return the seconds of work on `most` records: runs of `least`, 4, 16 … times `least` records are timed until one is long.

    A line through the last two gives the rest. `work` prepares a run, which is not timed. With `empty`, a first run that
    is long is compared with a run without records, as a private step has a long set-up.
    """

    def seconds(count: int) -> float:
        run = work(count)
        taken = _once(run, clock)
        return taken if taken > 5 * LONG and warm else min(taken, _once(run, clock))

    warm, before = False, (0, 0.0)
    count = min(least, most)
    taken = seconds(count)
    warm = True
    while count < most and taken < long:
        before = count, taken
        count = min(4 * count, most)
        taken = seconds(count)
    if count == most:
        return taken
    if empty and not before[0]:
        before = 0, seconds(0)
    each = min(max(taken - before[1], 0.0) / (count - before[0]), taken / count)
    return taken + each * (most - count)


def _once(run: Callable[[], object], clock: Callable[[], float]) -> float:
    start = clock()
    run()
    return clock() - start
