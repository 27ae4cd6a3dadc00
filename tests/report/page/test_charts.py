import json
import re

import pytest

from mia_audit.report.data.series import roc_curves, series
from mia_audit.report.page.charts import leak_chart, roc_chart, tradeoff_chart
from mia_audit.report.text.formatting import protection


@pytest.fixture(scope="module")
def named(findings):
    return [(protection(found.setting), found) for found in findings.settings]


def drawn_svg(chart):
    """Compile and draw a chart as the page does; an invalid one raises."""
    import vl_convert

    return vl_convert.vegalite_to_svg({**chart, "width": 400})


@pytest.fixture(scope="module")
def lines(small, named):
    drawn = series([found for _, found in named])
    return {name: roc_curves(small.results(), found, drawn) for name, found in named}, drawn


def test_roc_chart_carries_the_curves_and_draws_one_setting_at_a_time(lines):
    by_setting, drawn = lines
    chart = roc_chart(by_setting, drawn)
    (parameter,) = [one for one in chart["params"] if one["name"] == "setting"]
    assert parameter["bind"]["options"] == list(by_setting) and parameter["value"] == "no protection"
    svg = drawn_svg(chart)
    assert "False-positive rate" in svg and "integrated gradients" in svg
    (outputs, *_) = by_setting["no protection"]
    text = json.dumps(chart)
    for rate in (outputs.mean[0], outputs.mean[20], outputs.mean[-1]):
        assert f'"tpr": {float(f"{rate:.4g}")}' in text


def test_leak_chart_carries_means_and_intervals(named):
    drawn = series([found for _, found in named])
    chart = leak_chart(named, drawn, "auc", None)
    estimate = named[1][1].strongest["outputs"].auc_estimate
    text = json.dumps(chart)
    assert f'"low": {float(f"{estimate.low:.4g}")}' in text and f'"mean": {float(f"{estimate.mean:.4g}")}' in text
    assert "dp-sgd, ε = 8" in drawn_svg(chart)
    assert "TPR at 1" in drawn_svg(leak_chart(named, drawn, "tpr", 0.01))


def test_tradeoff_chart_carries_accuracies(named):
    chart = tradeoff_chart(named)
    accuracy = named[2][1].test_accuracy
    assert f'"accuracy_mean": {float(f"{accuracy.mean:.4g}")}' in json.dumps(chart)
    assert "Test accuracy" in drawn_svg(chart)


def test_many_settings_are_chosen_from_a_list(lines):
    by_setting, drawn = lines
    curves = next(iter(by_setting.values()))
    chart = roc_chart({f"setting {i}": curves for i in range(6)}, drawn)
    (parameter,) = [one for one in chart["params"] if one["name"] == "setting"]
    assert parameter["bind"]["input"] == "select"


def test_names_of_settings_are_broken_where_many_stand_side_by_side():
    from mia_audit.report.page.charts import _broken

    assert _broken(["no protection", "dp-sgd, ε = 8"]) == {}
    expression = _broken(["no protection", "dp-sgd, ε = 8", "dp-sgd, ε = 2", "no protection"])["labelExpr"]
    lines = json.loads(expression.partition("(")[2].rpartition(")[")[0])
    assert lines["dp-sgd, ε = 8"] == ["dp-sgd,", "ε\u00a0=\u00a08"] and len(lines) == 3


def test_accuracies_without_intervals_keep_their_names_and_their_direction(named):
    from dataclasses import replace

    from mia_audit.report.data.findings import estimate
    from mia_audit.report.page.charts import ROOM

    long = [
        (f"a mechanism of quite a long name {k}", replace(found, test_accuracy=estimate([0.6 + k / 10], 0.95)))
        for k, (_, found) in enumerate(named)
    ]
    chart = tradeoff_chart(long)
    text = json.dumps(chart)
    assert "a mechanism of\\nquite a long\\nname 0" in text
    assert max(map(int, re.findall(r'"padding": (\d+)', text))) <= ROOM
    assert set(re.findall(r'"end": ([0-9.]+)', text)) == set(re.findall(r'"accuracy_mean": ([0-9.]+)', text))
    drawn_svg(chart)
