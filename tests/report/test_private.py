"""Numbers of a study of private explanations: means over repetitions, with Student's t intervals."""

from types import SimpleNamespace
from typing import Any

import polars as pl
import pytest

from mia_audit.report.figures import private as figures
from mia_audit.report.findings import estimate, mean_over_seeds
from mia_audit.report.private import _conclusion, _losses, _protocols
from mia_audit.report.results import Studied, StudiedOverSeeds
from mia_audit.report.tables.explanations import private_explanations

STUDY: dict[str, Any] = {
    "black_boxes": ["forest"], "queries": 4, "epsilons": [0.5, 5.0], "epsilon": 0.5, "delta": 1e-6, "steps": 20, "c": 1.0,
    "kernel": "stable", "adjacency": "zero-out", "repetitions": 3,
}  # fmt: skip
RUNS = [
    *(("epsilon", "non-adaptive", published, epsilon) for published in ("", "sigma") for epsilon in STUDY["epsilons"]),
    *(("protocols", name, "", 0.5) for name in ("non-adaptive", "adaptive", "enhanced", "non-interactive")),
    *((name, "adaptive", "", 0.5) for name in ("random", "dense", "sparse", "overfitted")),
]
FACTORS = (0.8, 1.0, 1.5)
"""What losses and costs of the repetitions are multiplied by."""


def _studied(repetitions: int) -> Studied:
    rows = [
        {"experiment": experiment, "protocol": protocol, "as_published": published, "epsilon": epsilon, "number": number,
         "record": number, "class": 0, "source": "scratch", "steps": 20, "mu_squared": 0.01,
         "mu_squared_spent": 0.01 * factor * epsilon * (number + 1) / (2 if protocol == "adaptive" else 1),
         "excess_loss": factor * (9 if published else 1) * 0.1 / epsilon, "excess_loss_of_zero": 0.4,
         "distance": None, "explanation": [1.0]}
        | ({"repetition": again} if repetitions > 1 else {})
        for again, factor in enumerate(FACTORS[:repetitions])
        for experiment, protocol, published, epsilon in RUNS
        for number in range(4)
    ]  # fmt: skip
    return Studied("toy", "forest", STUDY, pl.DataFrame(rows, schema_overrides={"distance": pl.Float64}), None)


def test_numbers_are_means_over_repetitions_with_intervals() -> None:
    one = _studied(3)
    expected = estimate([0.2 * factor for factor in FACTORS], 0.95)
    loss = one.mean(figures.of_protocol("adaptive"), "excess_loss")
    assert (loss.mean, loss.low, loss.high) == pytest.approx((expected.mean, expected.low, expected.high))
    saved = one.saved(figures.of_protocol("adaptive"))
    assert saved is not None and saved.low < saved.mean < saved.high and saved.targets == 3
    table = private_explanations(SimpleNamespace(studied=[one]), None)  # type: ignore[arg-type]
    (row,) = table.filter(experiment="protocols", protocol="adaptive").iter_rows(named=True)
    assert row["excess_loss_low"] == pytest.approx(expected.low) and row["repetitions"] == 3
    assert row["epsilon_spent_low"] < row["epsilon_spent_mean"] < row["epsilon_spent_high"] and row["answers"] == 4
    assert row["distance_mean"] is None and row["distance_low"] is None


def test_numbers_over_seeds_are_means_of_their_means() -> None:
    seeds = _studied(3), _studied(2)
    one = StudiedOverSeeds("toy", "forest", STUDY, seeds[0].answers, None, every=seeds)
    adaptive = figures.of_protocol("adaptive")
    for value in (
        lambda of: of.mean(adaptive, "excess_loss"),
        lambda of: of.saved(adaptive),
        lambda of: of.losses()["", 5.0],
    ):
        assert value(one) == mean_over_seeds([value(seed) for seed in seeds], 0.95)
    assert value(one).targets == 2


def test_the_page_prints_every_number_with_its_interval() -> None:
    one = _studied(3)
    cell = _losses([one], STUDY).rows[0][1]
    assert str(cell) == "0.220" and cell.notes[0] == "0.0409 to 0.399" and "1.98 (" in cell.notes[1]
    assert all(len(row[at].notes) == 1 for row in _protocols([one]).rows[:3] for at in (3, 6))
    said = " ".join(_conclusion([one]))
    assert "best fit by 0.220 (0.0409 to 0.399)" in said and "less than queries from scratch" in said


def test_figures_shade_the_intervals() -> None:
    for repetitions, bands in ((3, 3), (1, 0)):
        figure = figures.spending(SimpleNamespace(studied=[_studied(repetitions)]), None)  # type: ignore[arg-type]
        assert len(figure.axes[0].collections) == bands


def test_a_study_that_was_not_repeated_has_no_interval() -> None:
    one = _studied(1)
    assert not _losses([one], STUDY | {"repetitions": 1}).rows[0][2].notes[1:]
    assert "(" not in next(_conclusion([one])).replace("(δ", "")
    table = private_explanations(SimpleNamespace(studied=[one]), None)  # type: ignore[arg-type]
    assert table["excess_loss_low"].null_count() == len(table) and (table["repetitions"] == 1).all()
