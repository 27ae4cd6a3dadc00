"""The time of attacks and their evaluation, by a clock that is as exact as brief."""

import pickle
from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest

from mia_audit.attacks.run import plan
from mia_audit.attacks.subsets import counts
from mia_audit.config.load import parse
from mia_audit.config.schema import Audit
from mia_audit.planning import attacks, pace
from mia_audit.planning.attacks import Attacked, attack_seconds, attacked
from mia_audit.planning.sizes import Size
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
    seconds = attack_seconds([Attacked(9, runs, 300, models)], (0.1,))
    assert seconds == pytest.approx(TICK * (len(runs) + own + fewer))
    assert attack_seconds([Attacked(9, runs, 300, models)] * 2, (0.1,)) == 2 * seconds


def test_attacks_with_the_same_code_are_timed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    timed: list[str] = []
    monkeypatch.setattr(attacks, "_seconds", lambda stage, run, *_: timed.append(run.attack) or 1.0)
    runs = plan(["l1-lrt", "loss-lira"], SIGNALS, ["pooled"])
    assert len(runs) == 6
    assert attack_seconds([Attacked(9, runs, 300, 5)], (0.1,)) == 6 + 3
    assert len(timed) == 2, "scored once, and once without each of some models"


CONFIG: dict[str, Any] = {
    "audit": "tiny",
    "datasets": {"digits": {"public": 100}},
    "membership": {"models": 10},
    "architectures": {"mlp": {}},
    "mechanisms": {"none": {}, "dp-sgd": {"epsilon": [8, 2], "models": 4}},
    "explainers": {"methods": ["ixg"]},
    "attacks": {"methods": ["threshold", "l1-lrt"], "likelihoods": ["pooled"]},
}


def test_settings_are_attacked_and_so_are_the_explanation_sets_of_every_black_box() -> None:
    study = {"black_boxes": ["forest", "labels"], "attacked": ["inf", 1]}
    audit = parse(Audit, CONFIG | {"private_explanations": {"digits": study}}, "tiny.yaml")
    every = list(attacked(audit, {"digits": Size(1000, 100, (1, 8, 8), 10)}))
    assert [(one.records, one.models) for one in every] == [(1000, models) for models in (10, 4, 4, 10, 10, 10, 10)]
    read = [{run.signal for run in one.runs} for one in every]
    assert all({"loss", "ixg_l1"} < signals for signals in read[:3])
    assert all("fit_error" in signals and "loss" not in signals for signals in read[3:])


def test_what_is_attacked_can_be_sent_to_another_process() -> None:
    every = list(attacked(parse(Audit, CONFIG, "tiny.yaml"), {"digits": Size(1000, 100, (1, 8, 8), 10)}))
    assert pickle.loads(pickle.dumps(every)) == every


@pytest.mark.usefixtures("clock")
def test_the_pace_of_a_machine_is_that_of_parsing_python() -> None:
    assert pace.pace() == pytest.approx(TICK / pace.PARSED)
