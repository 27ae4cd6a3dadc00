"""The data of figures: what their axes show, and nothing else."""

import numpy as np
import polars as pl
import pytest
from matplotlib.figure import Figure

from mia_audit.report.data.series import strongest
from mia_audit.report.figures.roc import attack_by_epsilon
from mia_audit.report.figures.style import COLUMNS, draw_roc, paper_style, table_of


@pytest.fixture
def figure():
    figure = Figure()
    left, right = figure.subplots(1, 2)
    left.set_title("a panel", loc="left")
    left.errorbar([0, 1], [0.5, 0.7], yerr=[[0.1, 0.2], [0.1, 0.1]], fmt="o", label="outputs")
    left.set_xticks([0, 1], ["no DP", "ε = 8"])
    left.axhline(0.5)
    right.plot([1, 10], [2, 3], label="line")
    right.fill_between([1, 10], [1, 2], [3, 4])
    right.barh([0], [0.25], label="bar")
    right.imshow(np.zeros((2, 2)))
    return figure


def test_points_intervals_bands_and_bars_are_rows(figure):
    table = table_of(figure)
    assert tuple(table.columns) == COLUMNS
    rows = table.filter(series="outputs").to_dicts()
    assert [row["label"] for row in rows] == ["no DP", "ε = 8"] and {row["panel"] for row in rows} == {"a panel"}
    assert [(row["y"], row["y_low"], row["y_high"]) for row in rows] == [
        (0.5, pytest.approx(0.4), pytest.approx(0.6)),
        (0.7, pytest.approx(0.5), pytest.approx(0.8)),
    ]
    second = table.filter(panel="2")
    assert second.filter(kind="point")["y"].to_list() == [2, 3]
    assert second.filter(kind="band").select("x", "y_low", "y_high").rows() == [(1, 1, 3), (10, 2, 4)]
    assert second.filter(kind="bar").select("series", "x", "y").rows() == [("bar", 0.25, 0)]
    assert len(second) == 5, "a picture has no rows"


def test_the_name_of_a_curve_has_no_number_glued_to_it():
    from matplotlib.figure import Figure

    axes = Figure().add_subplot()
    draw_roc(axes, np.array([0.1, 1]), np.array([0.2, 1]), "outputs", 0.678)
    assert axes.get_legend_handles_labels()[1] == ["outputs, 0.678"]
    assert table_of(axes.figure)["series"].to_list() == ["outputs"] * 2


def test_a_figure_and_its_data_agree(findings):
    with paper_style():
        table = table_of(attack_by_epsilon(None, findings))
    outputs = table.filter(pl.col("series") == "outputs")
    expected = [strongest(finding)["outputs"].auc_estimate for finding in findings.settings]
    first = outputs.head(len(expected))
    assert first["y"].to_list() == pytest.approx([one.mean for one in expected])
    assert first["y_low"].to_list() == pytest.approx([one.mean - one.below for one in expected])
    assert first["label"].to_list() == ["no DP", "ε = 8", "ε = 1"]
