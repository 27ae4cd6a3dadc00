"""Figures as files: their bytes, what they show, and the data beside them."""

import re
from dataclasses import replace

import matplotlib
import numpy as np
import polars as pl
import pytest
from matplotlib.figure import Figure
from PIL import Image

from mia_audit.errors import UserError
from mia_audit.explain.catalogue import explainer_label
from mia_audit.report.figures.catalogue import (
    disclaimed,
    draw,
    draw_roc,
    figures,
    paper_style,
    save,
    shared_legend,
    table_of,
    tick,
)
from mia_audit.report.figures.roc import attack_by_epsilon, roc_figure, tradeoff
from mia_audit.report.opened import find
from mia_audit.report.series import MOST, PALETTE, roc_curves, series, strongest
from mia_audit.report.spec import Figures


@pytest.mark.slow
@pytest.mark.xdist_group("drawn")
def test_the_same_inputs_give_the_same_bytes_whatever_the_users_settings(small, drawn, tmp_path):
    with matplotlib.rc_context({"font.size": 20, "savefig.dpi": 50, "svg.hashsalt": None, "axes.facecolor": "red"}):
        draw(small.results(), find(small.results()), tmp_path)
    first, second = ({path.name: path.read_bytes() for path in folder.iterdir()} for folder in (drawn, tmp_path))
    assert first == second
    for name, content in first.items():
        assert b"CreationDate" not in content and b"dc:date" not in content, name
        assert len(content) > (50 if name.endswith("csv") else 2000)


def test_curves_are_the_mean_of_every_targets_steps(small, findings):
    found = findings.settings[0]
    drawn = series(findings.settings)
    (curve,) = [one for one in roc_curves(small.results(), found, drawn) if one.series.name == "outputs"]
    rows = pl.read_parquet(small.root / "toy" / "net" / "none-epsinf" / "scores.parquet").filter(
        pl.col("attack") == "loss-lira", pl.col("likelihood") == "pooled", ~pl.col("null_control")
    )
    scores, membership = (rows[name].to_numpy().reshape(12, 300) for name in ("score", "member"))
    assert curve.fpr[0] == pytest.approx(1 / 150) and curve.fpr[-1] == 1
    for position in (0, 13, 30):
        rates = []
        for score, member in zip(scores, membership, strict=True):
            outside = np.sort(score[~member])[::-1]
            allowed = int(np.floor(curve.fpr[position] * len(outside) + 1e-9))
            rates.append((score[member] > outside[allowed]).mean() if allowed < len(outside) else 1.0)
        assert curve.mean[position] == pytest.approx(np.mean(rates))
        assert curve.sd[position] == pytest.approx(np.std(rates, ddof=1))


def test_series_keep_their_colours_over_the_settings_of_a_group(findings):
    drawn = series(findings.settings)
    assert [one.name for one in drawn] == [
        "outputs",
        "integrated gradients",
        "input × gradient",
        "outputs by threshold",
    ]
    assert drawn[0].colour == PALETTE[0] and len({one.colour for one in drawn}) == len(drawn) <= MOST + 1
    assert strongest(findings.settings[0])["integrated gradients"].attack == "l1-lrt"


def test_a_series_looks_the_same_in_every_group(findings):
    first, second = findings.settings[:1], findings.settings[1:]
    everywhere = {one.name: one for one in series(findings.settings)}
    for group in (first, second):
        for one in series(group, findings.settings):
            assert one == everywhere[one.name]


@pytest.fixture
def two_kinds(monkeypatch):
    """Draw figures of two kinds alone: all take seconds."""
    chosen = {name: figures[name] for name in figures if name in ("roc", "roc_by_epsilon")}
    monkeypatch.setitem(vars(figures), "_known", chosen)


@pytest.mark.usefixtures("two_kinds")
def test_figures_have_the_width_and_the_formats_that_the_config_asks_for(small, findings, tmp_path):
    results = small.results()
    look = Figures(column="3.25in", formats=("png",))
    draw(replace(results, spec=results.spec.model_copy(update={"figures": look})), findings, tmp_path)
    assert {path.suffix for path in tmp_path.iterdir()} == {".png", ".csv"}
    with Image.open(tmp_path / "roc_toy_net_none-epsinf.png") as image:
        assert image.width == pytest.approx(3.25 * 300, abs=1)


@pytest.mark.usefixtures("two_kinds")
def test_figures_have_the_colours_names_sizes_and_height_that_the_config_asks_for(small, findings, tmp_path):
    results, name = small.results(), "roc_toy_net_none-epsinf"
    colours = {"ixg": "#123456", "dp-sgd-eps8": "#654321"}
    asked = {"colours": colours, "names": {"ixg": "our explainer"}, "font_size": 10, "height": 1.5}
    for kind, keys in (("plain", {}), ("styled", asked)):
        look = Figures(formats=("png", "svg"), **keys)
        draw(replace(results, spec=results.spec.model_copy(update={"figures": look})), findings, tmp_path / kind)
    plain, styled = ((tmp_path / kind / f"{name}.svg").read_text() for kind in ("plain", "styled"))
    label = explainer_label("ixg")
    assert f"<!-- {label}" in plain and f"<!-- {label}" not in styled and "<!-- our explainer" in styled
    was = next(one.colour for one in series(findings.settings) if one.name == label).lower()
    assert was in plain and was not in styled and "#123456" in styled and "#123456" not in plain
    # the file of numbers keeps the names of the config
    assert (tmp_path / "plain" / f"{name}.csv").read_bytes() == (tmp_path / "styled" / f"{name}.csv").read_bytes()
    sizes = {one: [Image.open(tmp_path / one / f"{name}.png").size] for one in ("plain", "styled")}
    assert sizes["styled"][0] == pytest.approx((sizes["plain"][0][0], 1.5 * sizes["plain"][0][1]), abs=1)
    # the smallest and largest text of a figure, with ticks that are made while drawing
    tallest = [max(map(float, re.findall(r"scale\(0\.(\d+) ", text))) for text in (plain, styled)]
    assert tallest[1] > tallest[0]
    assert any("#654321" in path.read_text() for path in (tmp_path / "styled").glob("*.svg"))


def test_an_unknown_font_is_one_line(small, findings, tmp_path):
    results = small.results()
    look = results.spec.model_copy(update={"figures": Figures(font="Helvetika Neu")})
    with pytest.raises(UserError, match=r"^report.figures.font: no font 'Helvetika Neu' is installed here"):
        draw(replace(results, spec=look), findings, tmp_path)


def relative_luminance(colour):
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return float(np.dot(linear, [0.2126, 0.7152, 0.0722]))


@pytest.mark.parametrize("colour", PALETTE)
def test_colours_stand_out_from_a_white_and_a_dark_page(colour):
    for page in ("#ffffff", "#14171c"):
        light, dark = sorted((relative_luminance(colour), relative_luminance(page)), reverse=True)
        assert (light + 0.05) / (dark + 0.05) >= 3


def test_what_the_figures_show(small, findings):
    with paper_style():
        drawn = series(findings.settings)
        figure = roc_figure(findings.settings[1], roc_curves(small.results(), findings.settings[1], drawn))
        (axes,), (legend,) = figure.axes, figure.legends
        figure.draw_without_rendering()
        box = legend.get_window_extent()
        assert box.x0 >= -1 and box.x1 <= figure.bbox.width + 1
        assert axes.get_xscale() == axes.get_yscale() == "log" and axes.get_xlim()[0] == pytest.approx(1 / 150)
        assert "ε = 8" in axes.get_title(loc="left")
        diagonal = axes.lines[-1]
        assert np.array_equal(diagonal.get_xdata(), diagonal.get_ydata())
        panels = attack_by_epsilon(None, findings).axes
        assert [axes.get_ylabel() for axes in panels] == ["AUC", "TPR at 1\u00a0% FPR"]
        assert [tick.get_text() for tick in panels[1].get_xticklabels()] == ["no DP", "ε = 8", "ε = 1"]
        price = tradeoff(None, findings).axes[0]
        outputs = [found.strongest["outputs"].auc_estimate.mean for found in findings.settings]
        assert price.lines[0].get_ydata() == pytest.approx(outputs)


def test_names_of_many_settings_do_not_overlap(findings):
    """Below panels and beside points, with the reasons of a mechanism without a guarantee above them."""
    none, weak, *_ = findings.settings
    named = [replace(weak.setting, epsilon=str(epsilon)) for epsilon in range(1, 10)]
    broken = replace(weak.setting, mechanism="fadp-algorithm-2", no_guarantee="a long reason " * 20)
    many = replace(findings, settings=[none, *(replace(weak, setting=setting) for setting in (*named, broken))])
    with paper_style():
        for kind in (attack_by_epsilon, tradeoff):
            figure = disclaimed(kind(None, many), many.settings)
            figure.draw_without_rendering()
            boxes = [
                text.get_window_extent()
                for axes in figure.axes
                for text in (*(axes.get_xticklabels() if kind is attack_by_epsilon else ()), *axes.texts)
                if text.get_text() and text.get_visible()
            ]
            assert len(boxes) >= len(many.settings)
            assert not [one for place, one in enumerate(boxes) for other in boxes[:place] if one.overlaps(other)]


def test_panels_of_several_data_sets_have_the_same_axis(findings):
    """What leaks more is drawn higher, and no panel cuts off what another has room for."""
    none, weak, *_ = findings.settings
    elsewhere = replace(weak, setting=replace(weak.setting, dataset="elsewhere"))
    both = replace(findings, settings=[none, elsewhere])
    with paper_style():
        for figure in (tradeoff(None, both), attack_by_epsilon(None, both)):
            (low, high), *others = (
                axes.get_ylim() for axes in figure.axes if axes.get_ylabel() != "TPR at 1\u00a0% FPR"
            )
            assert (low, high) in others
            aucs = [found.strongest["outputs"].auc_estimate for found in both.settings]
            assert low < min(auc.low for auc in aucs) and max(auc.high for auc in aucs) < high


def test_a_name_that_looks_like_a_formula_is_drawn_as_it_is_written(tmp_path):
    figure = Figure(layout="constrained")
    axes = figure.add_subplot(xscale="log", title=r"price $\foo$")
    axes.plot([1, 100], [0, 1], label=r"$\bar$")
    shared_legend(figure, np.array([axes]))
    save(figure, tmp_path, "named")
    drawn = (tmp_path / "named.svg").read_text(encoding="utf-8")
    assert r"<!-- price $\foo$ -->" in drawn and r"<!-- $\bar$ -->" in drawn and "10^{1}" in drawn
    assert (tmp_path / "named.pdf").exists() and (tmp_path / "named.png").exists()


def test_nothing_is_said_of_the_protection_of_given_signals(findings):
    found = next(found for found in findings.settings if found.setting.mechanism == "none")
    for mechanism in ("none", "imported"):
        given = replace(found, setting=replace(found.setting, trained=False, mechanism=mechanism))
        assert tick(given, [given]) == "given signals"


def test_the_name_of_a_curve_has_no_number_glued_to_it():
    axes = Figure().add_subplot()
    draw_roc(axes, np.array([0.1, 1]), np.array([0.2, 1]), "C0", "outputs", 0.678)
    assert axes.get_legend_handles_labels()[1] == ["outputs, 0.678"]
    assert table_of(axes.figure)["series"].to_list() == ["outputs"] * 2


def test_the_data_have_the_places_and_names_of_what_is_drawn(findings):
    with paper_style():
        table = table_of(attack_by_epsilon(None, findings))
    assert table["panel"].unique(maintain_order=True).to_list() == ["toy, net: AUC", "toy, net: TPR at 1 % FPR"]
    outputs = table.filter(series="outputs", panel="toy, net: AUC")
    expected = [strongest(finding)["outputs"].auc_estimate for finding in findings.settings]
    assert outputs.select("y", "y_low", "y_high").rows() == [(one.mean, one.low, one.high) for one in expected]
    assert outputs.select("x", "label").rows() == [(0, "no DP"), (1, "ε = 8"), (2, "ε = 1")]
