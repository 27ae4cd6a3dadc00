"""The time of attacks and their evaluation, by a clock that is as exact as brief."""

from itertools import count
from types import SimpleNamespace

import pytest

from mia_audit.attacks.run import plan
from mia_audit.attacks.subsets import counts
from mia_audit.planning import attacks, pace
from mia_audit.signals.name import read_signal

TICK = 2**-7
"""Seconds between two looks at the clock."""

SIGNALS = [read_signal(name) for name in ("loss", "confidence", "ixg_l1", "ig_l1")]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every look at the clock take a tick, so that a run of any size takes one."""
    ticks = count()
    monkeypatch.setattr(pace, "time", SimpleNamespace(process_time=lambda: TICK * next(ticks)))


@pytest.mark.usefixtures("clock")
def test_every_run_is_scored_and_every_run_on_the_true_membership_scored_again() -> None:
    runs = plan(["threshold", "l1-lrt"], SIGNALS, ["pooled", "hierarchical"])
    ratios, models = 2 * 2, 9  # two signals by two likelihoods, each with a null control
    own = 3 + ratios
    assert len(runs) == own + ratios
    fewer = 2 * len(counts(models))  # the first ratio's signal under both likelihoods, with 4 and with 8 others
    times = attacks.AttackTimes()
    seconds = times(runs, 300, models, (0.1,))
    assert seconds == pytest.approx(TICK * (len(runs) + own + fewer))
    assert times(runs * 2, 300, models, (0.1,)) > seconds


def test_attacks_with_the_same_code_are_timed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    timed: list[str] = []
    monkeypatch.setattr(attacks, "_seconds", lambda stage, run, *_: timed.append(run.attack) or 1.0)
    runs = plan(["l1-lrt", "loss-lira"], SIGNALS, ["pooled"])
    assert len(runs) == 6
    assert attacks.AttackTimes()(runs, 300, 5, (0.1,)) == 6 + 3
    assert len(timed) == 2, "scored once, and once without each of some models"


@pytest.mark.usefixtures("clock")
def test_the_pace_of_a_machine_is_that_of_parsing_python() -> None:
    assert pace.pace() == pytest.approx(TICK / pace.PARSED)
