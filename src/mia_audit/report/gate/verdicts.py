"""Verdicts: an interval compared with a limit, and the result of a criterion."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np


class Verdict(StrEnum):
    """The outcome of a criterion."""

    PASS = "pass"
    FAIL = "fail"
    CANNOT_TELL = "cannot tell"


EXIT_CODES = {Verdict.PASS: 0, Verdict.FAIL: 3, Verdict.CANNOT_TELL: 4}


@dataclass(frozen=True)
class Interval:
    """A value, the limits of its confidence interval (NaN if it has none), and what the value is of."""

    value: float
    low: float
    high: float
    of: str = ""


@dataclass(frozen=True)
class Judged:
    """One criterion on one setting (an empty name: on the whole audit): the measured value, the limit, and the verdict."""

    criterion: str
    setting: str
    verdict: Verdict
    value: str
    limit: str
    note: str = ""

    @property
    def name(self) -> str:
        """The criterion, with its setting if it has one."""
        return f"{self.criterion} of {self.setting}" if self.setting else self.criterion


def at_most(interval: Interval, limit: float) -> Verdict:
    """Pass if the upper confidence limit is within the limit, fail if the lower one is beyond it."""
    if math.isnan(interval.low) or math.isnan(interval.high):
        return Verdict.CANNOT_TELL
    return Verdict.PASS if interval.high <= limit else Verdict.FAIL if interval.low > limit else Verdict.CANNOT_TELL


def at_least(interval: Interval, limit: float) -> Verdict:
    """Pass if the lower confidence limit is within the limit, fail if the upper one is beyond it."""
    if math.isnan(interval.low) or math.isnan(interval.high):
        return Verdict.CANNOT_TELL
    return Verdict.PASS if interval.low >= limit else Verdict.FAIL if interval.high < limit else Verdict.CANNOT_TELL


def largest(intervals: Sequence[Interval]) -> Interval:
    """Return the interval of the largest of several values: each of its limits is the largest of theirs.

    Its upper limit is too small only if the upper limit of the truly largest value is. Lower limits must already be
    corrected for the number of values. NaN if one of the limits is not known.
    """
    chief = max(intervals, key=lambda one: one.value)
    low, high = (float(np.max(ends)) for ends in ([one.low for one in intervals], [one.high for one in intervals]))
    return Interval(chief.value, low, high, chief.of)


def overall(judged: Iterable[Judged]) -> Verdict:
    """Return the verdict of all criteria together: one failure fails all, an undecided criterion leaves it open."""
    verdicts = {one.verdict for one in judged}
    return next((one for one in (Verdict.FAIL, Verdict.CANNOT_TELL) if one in verdicts), Verdict.PASS)
