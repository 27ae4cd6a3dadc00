"""The time of attacks and their evaluation, by a clock that is as exact as brief."""

from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest

from mia_audit.attacks.catalogue import plan
from mia_audit.attacks.design import counts
from mia_audit.config.load import parse
from mia_audit.config.schema import Audit
from mia_audit.planning import attacks
from mia_audit.planning import attacks as clock
from mia_audit.planning.attacks import Attacked, attack_seconds, attacked
from mia_audit.planning.sizes import Size
from mia_audit.signals.name import read_signal

TICK = 2**-7
"""Seconds between two looks at the clock."""

SIGNALS = [read_signal(name) for name in ("loss", "confidence", "ixg_l1", "ig_l1")]


def test_every_run_is_scored_and_every_run_on_the_true_membership_scored_again(monkeypatch: pytest.MonkeyPatch) -> None:
    timed: list[str] = []
    cost = {"score": 1.0, "evaluate": 10.0, "rescore": 100.0}
    monkeypatch.setattr(attacks, "_seconds", lambda run, *_: timed.append(run.attack) or cost)
    runs = plan(["threshold", "l1-lrt"], SIGNALS, ["pooled", "hierarchical"])
    ratios, models = 2 * 2, 9  # two signals by two likelihoods, each with a null control
    own = 3 + ratios
    assert len(runs) == own + ratios
    fewer = 2 * len(counts(models))  # the first ratio's signal under both likelihoods, with 4 and with 8 others
    seconds = attack_seconds([Attacked(9, runs, 300, models)] * 2, (0.1,))
    assert seconds["attack"] == 2 * len(runs)
    assert seconds["evaluate"] == 2 * (10 * len(runs) + 100 * own + 11 * fewer)
    assert sorted(timed) == ["l1-lrt", "l1-lrt", "threshold"], "equal work is timed once"


def test_attacks_are_timed_on_random_signals() -> None:
    runs = plan(["threshold", "loss-lira"], SIGNALS, ["pooled"])
    seconds = attack_seconds([Attacked(9, runs, 150, 5)], (0.1,))
    assert min(seconds.values()) > 0


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


def test_the_pace_of_a_machine_is_that_of_parsing_python(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = count()
    monkeypatch.setattr(clock, "time", SimpleNamespace(process_time=lambda: TICK * next(ticks)))
    assert clock.pace() == pytest.approx(TICK / clock.PARSED)
