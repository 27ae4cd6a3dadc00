"""Figures of private explanations of models: pictures by training, and losses beside misclassification."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import polars as pl
import pytest

from mia_audit.pools.store import StoredRecords
from mia_audit.report.figures.private import correlation, iterations, misclassified, models
from mia_audit.report.results import Studied

QUERIES = 8


def _studied(epsilon: str, classes: list[int], wrong: list[float], path: list[float] | None = None) -> Studied:
    setting = {"architecture": "net", "mechanism": "dp-sgd", "epsilon": epsilon}
    rows = [
        {"experiment": "protocols", "protocol": "non-adaptive", "number": number, "record": number, "class": classes[number],
         "excess_loss": 0.01 * (number + 1 + again), "misclassified": wrong[number], "repetition": again,
         "explanation": [0.5] * 4, "path": path if number == 0 else None}
        for again in range(3)
        for number in range(QUERIES)
    ]  # fmt: skip
    study = {"pictures": 2, "nearest": 4, "traced": 1, "delta": 1e-5, "epsilon": 1.0}
    frame = pl.DataFrame(rows, schema_overrides={"path": pl.List(pl.Float64)})
    return Studied("toy", f"net-eps{epsilon}", study, frame, setting)


def test_images_that_every_model_misclassifies_come_first(monkeypatch: pytest.MonkeyPatch) -> None:
    labels = np.zeros(QUERIES, dtype=np.int64)
    records = StoredRecords(np.arange(QUERIES * 4, dtype=np.uint8).reshape(QUERIES, 1, 2, 2), labels, {})
    monkeypatch.setattr("mia_audit.pools.store.read_records", lambda folder: records)
    rising = [number / QUERIES for number in range(QUERIES)]
    one = _studied("inf", [0, 1, 0, 0, 0, 1, 0, 0], rising)
    other = _studied("2", [0, 0, 1, 0, 0, 1, 0, 0], rising)
    results: Any = SimpleNamespace(studied=[one, other], root=Path("none"))
    figure = models(results, SimpleNamespace(), "toy")  # type: ignore[arg-type]
    shown = [axes.images[0].get_array() for axes in figure.axes]
    assert len(shown) == 2 * 3
    np.testing.assert_array_equal(shown[0], records.data[5][0])  # the only one that both misclassify
    np.testing.assert_array_equal(shown[3], records.data[0][0])
    assert "no DP" in figure.axes[1].get_title() and "ε = 2" in figure.axes[2].get_title()


def test_the_correlation_is_over_the_queries_of_every_repetition() -> None:
    rising = [number / QUERIES for number in range(QUERIES)]
    one, other = _studied("2", [0] * QUERIES, rising), _studied("2", [0] * QUERIES, [0.25] * QUERIES)
    value = correlation(one)
    assert value is not None and (value.mean, value.targets) == (pytest.approx(1.0), 3)
    assert correlation(other) is None
    figure: Any = misclassified(SimpleNamespace(studied=[one, other]), SimpleNamespace())  # type: ignore[arg-type]
    assert len(figure.axes[0].collections[0].get_offsets()) == 3 * QUERIES
    assert "rank correlation 1.00 (1.00 to 1.00)" in figure.axes[0].get_title()
    assert "No black box" in str(misclassified(SimpleNamespace(studied=[other]), SimpleNamespace()))  # type: ignore[arg-type]


def test_a_line_is_drawn_for_every_recorded_query() -> None:
    flat = [0.0] * QUERIES
    one, none = _studied("2", [0] * QUERIES, flat, [0.1, 0.3, 0.1]), _studied("2", [0] * QUERIES, flat)
    figure = iterations(SimpleNamespace(studied=[one, none]), SimpleNamespace())  # type: ignore[arg-type]
    assert [len(axes.lines) for axes in figure.axes[:2]] == [3, 0]
    assert figure.axes[0].lines[0].get_ydata().tolist() == [0.1, 0.3, 0.1]
    assert figure.axes[1].texts[0].get_text() == "no query started this close"
