"""How many models: the table, its figure and its part of the page."""

import polars as pl
import pytest

from mia_audit.report.figures.roc import models as drawing
from mia_audit.report.figures.roc import roc_by_models
from mia_audit.report.results import Results
from mia_audit.report.tables.attacks import models


def counted(more):
    return [
        {
            "attack": "loss-lira", "signal": "confidence", "likelihood": likelihood, "others": others,
            "auc_mean": 0.7 - gap, "auc_more": gap, "auc_more_error": 0.001,
            "non_members": 100, "roc": [0.1 - gap, 0.5, 1.0],
            "tpr_at_fpr_0.01_mean": 0.1 - gap, "tpr_at_fpr_0.01_more": gap, "tpr_at_fpr_0.01_more_error": 0.001,
        }
        for likelihood in ("blend", "hierarchical")
        for others, gap in zip((4, 8, 11), more, strict=True)
    ]  # fmt: skip


@pytest.fixture
def known(small):
    results: Results = small.results()
    results.__dict__["model_counts"] = [counted((0.02, 0.004, 0.0)), counted((0.03, 0.01, 0.0)), []]
    return results


def test_the_table_marks_where_more_models_add_little(known, findings):
    table = models(known, findings)
    assert len(table) == 12 and table["others"].to_list() == [4, 8, 11] * 4
    assert table.filter("level").select("epsilon", "others").unique().rows() == [("inf", 8)]
    assert table["tpr_more"].to_list()[:3] == [0.02, 0.004, 0.0]
    layout = models.printed(known, findings)
    assert any("8*" in map(str, row) for row in layout.rows) and "0.005" in layout.caption


def test_the_figure_has_a_line_per_setting_and_likelihood(known, findings):
    figure = drawing(known, findings)
    lines = [line for line in figure.axes[0].lines if len(line.get_xdata()) == 3]
    assert len(lines) == 4 and isinstance(models(known, findings), pl.DataFrame)


def test_roc_curves_of_every_number_share_a_panel_per_setting(known, findings):
    first, second = roc_by_models(known, findings).axes
    curves = [line for line in first.lines if len(line.get_xdata()) == 3]
    assert [line.get_label() for line in curves] == ["4 others, 0.680", "8 others, 0.696", "11 others, 0.700"]
    assert list(curves[0].get_xdata()) == pytest.approx([0.01, 0.1, 1]) and curves[0].get_ydata()[0] == pytest.approx(
        0.08
    )
    assert "ε = 8" in second.get_title()


def test_an_audit_that_knows_nothing_of_fewer_models_says_so(small, findings):
    assert models.printed(small.results(), findings) is None
    assert "Fewer models cannot be evaluated" in drawing(small.results(), findings)
    assert "No ROC curve is kept" in roc_by_models(small.results(), findings)
