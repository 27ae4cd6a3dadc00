"""Measures of explanations in tables, figures and on the page, against what was planted."""

import re
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from scipy.stats import t

from mia_audit.report.explained import overlay, section
from mia_audit.report.figures.catalogue import NEGATIVE, POSITIVE, data_uri, draw, paper_style, table_of
from mia_audit.report.figures.explanations import curves, explanation_metrics, explanations, releases
from mia_audit.report.opened import find
from mia_audit.report.series import interpretations, similarity
from mia_audit.report.tables.catalogue import latex, tables

from .built import build


@pytest.fixture(scope="module")
def found(interpreted):
    results = interpreted.results()
    return results, find(results), interpretations(results)


@pytest.fixture(scope="module")
def rows(interpreted):
    return pl.read_parquet(interpreted.root / "toy" / "net" / "explanation_metrics.parquet")


def per_shadow(rows, **wanted):
    return rows.filter(**wanted).group_by("shadow", maintain_order=True).agg(pl.col("value").mean())["value"].to_numpy()


def test_the_table_has_means_over_records_then_over_models(found, rows):
    results, findings, _ = found
    table = build(results, findings)["explanation_metrics"]
    row = table.row(by_predicate=(pl.col("epsilon") == "1") & (pl.col("explainer") == "ig") & (pl.col("measure") == "ssim")
                    & (pl.col("against") == "reference"), named=True)  # fmt: skip
    values = per_shadow(rows, epsilon="1", explainer="ig", measure="ssim", against="reference")
    assert row["models"] == len(values) == 12 and row["value_mean"] == pytest.approx(values.mean())
    low, high = t.interval(0.95, 11, values.mean(), values.std(ddof=1) / np.sqrt(12))
    assert (row["value_low"], row["value_high"]) == pytest.approx((low, high))
    assert row["same_class"] == pytest.approx(0.8)
    gini = table.filter(measure="gini")
    assert len(gini) == 4 * 2 and gini["against"].null_count() == 8 and gini["same_class"].null_count() == 8
    assert table.filter(against="other model")["models"].unique().to_list() == [6]


def test_mechanisms_of_the_same_budget_are_compared_over_the_same_models(found, rows):
    results, findings, _ = found
    table = build(results, findings)["differences"]
    row = table.row(by_predicate=pl.col("metric") == "ssim of ixg (logit)", named=True)
    assert (row["minuend"], row["subtrahend"], row["epsilon"]) == ("other-eps8", "dp-sgd-eps8", "8")
    values = [
        per_shadow(rows, mechanism=name, explainer="ixg", measure="ssim", against="reference")
        for name in ("other", "dp-sgd")
    ]
    values[1] = per_shadow(rows, mechanism="dp-sgd", epsilon="8", explainer="ixg", measure="ssim", against="reference")
    gap = values[0] - values[1]
    assert row["mean"] == pytest.approx(gap.mean()) and row["sd"] == pytest.approx(gap.std(ddof=1))
    compared = table.filter(minuend="other-eps8", subtrahend="dp-sgd-eps8")["metric"].to_list()
    assert {"test_accuracy", "auc of outputs", "auc of explanations"} < set(compared)


def test_equivalence_is_tested_where_a_margin_is_stated(interpreted):
    results = interpreted.results()
    results = replace(results, spec=results.spec.model_copy(update={"margins": {"test_accuracy": 0.5, "ssim": 1e-6}}))
    findings = find(results)
    table = build(results, findings)["differences"]
    row = table.row(by_predicate=pl.col("metric") == "ssim of ixg (logit)", named=True)
    error = row["sd"] / np.sqrt(row["targets"])
    assert row["p_equivalence"] == pytest.approx(t.cdf((abs(row["mean"]) - 1e-6) / error, row["targets"] - 1))
    assert table.filter(metric="auc of outputs")["margin"].null_count() == len(table.filter(metric="auc of outputs"))
    (part,) = section(results, findings, interpretations(results))
    text = next(item["text"] for item in part["items"] if " against " in item["term"])
    assert "accuracy equivalent within ±0.5 (p = " in text and "equivalence not shown within ±1e-06" in text


def test_similarity_is_read_against_that_of_two_unprotected_models(found, rows):
    _, findings, interpreted = found
    interpretation = interpreted["toy", "net"]
    base, weak, strong, _ = findings.settings
    (one, _) = interpretation.drawn
    assert interpretation.headline == "ssim" and one.label == "input × gradient"
    assert similarity(base, base, interpretation)[one].mean == pytest.approx(0.7, abs=0.02)
    gap = interpretation.shortfall(strong.setting, base.setting, one, "ssim")
    level = per_shadow(rows, epsilon="inf", explainer="ixg", measure="ssim", against="other model")
    alike = per_shadow(rows, epsilon="1", explainer="ixg", measure="ssim", against="reference")
    pairs = level - (alike[::2] + alike[1::2]) / 2
    assert gap.mean == pytest.approx(pairs.mean()) and gap.sd == pytest.approx(pairs.std(ddof=1)) and gap.targets == 6
    assert interpretation.difference(weak.setting, strong.setting, one, "ssim").mean == pytest.approx(0.4, abs=0.03)
    assert interpretation.estimate(base.setting, one, "infidelity") is None


def test_the_section_says_what_was_planted(found):
    results, findings, interpreted = found
    (part,) = section(results, findings, interpreted)
    similar = [column for column in part["table"].columns if column.group == "Similarity of explanations"]
    assert [column.title for column in similar] == ["input × gradient", "integrated gradients"]
    assert "Similarity is the SSIM between" in part["table"].caption
    assert [row[0] for row in part["table"].rows] == ["No protection", "dp-sgd, ε = 8", "dp-sgd, ε = 1", "other, ε = 8"]
    told = {item["term"]: item["text"] for item in part["items"]}
    strong = told["dp-sgd, ε = 1"]
    assert "0.20 (input × gradient) and 0.20 (int" in strong
    assert re.search(r"less similar .*gradient \(by 0\.50\d, 0\.4", strong)
    assert "the same class for 80.0\u00a0% of" in strong
    assert "less similar" in told["dp-sgd, ε = 8"]
    between = told["other, ε = 8 against dp-sgd, ε = 8"]
    assert "No difference could be measured in" in between and "test accuracy" in between and "SSIM of" in between


def test_without_an_unprotected_setting_nothing_is_claimed(found, interpreted):
    results = interpreted.results(
        settings=[one for one in interpreted.spec["settings"] if one["mechanism"] == "dp-sgd"]
    )
    (part,) = section(results, find(results), interpretations(results))
    assert [item["term"] for item in part["items"]] == ["No reference"]
    assert all(str(cell) == "–" for row in part["table"].rows for cell in row[4:])


def test_the_pictures_lay_every_settings_map_over_the_record(found):
    results, findings, interpreted = found
    (part,) = section(results, findings, interpreted)
    (shown,) = part["pictures"]
    assert [one["explainer"] for one in shown["explained"]] == ["input × gradient", "integrated gradients"]
    first = shown["explained"][0]
    assert first["settings"] == ["No protection", "dp-sgd, ε = 8", "dp-sgd, ε = 1", "other, ε = 8"]
    assert [row["record"] for row in first["rows"]] == [4, 7]
    stored = np.load(results.root / "pools" / "toy" / "records.npy")
    maps = results.maps(("toy", "net")).filter(mechanism="dp-sgd", epsilon="1", explainer="ixg", record=7)
    expected = overlay(stored[7], np.reshape(maps["map"][0].to_list(), (8, 8)))
    assert first["rows"][1]["cells"][2] == {"picture": data_uri(expected), "class": "dog"}


def test_an_overlay_shows_the_record_where_the_map_says_nothing():
    record = np.arange(0, 160, 10, dtype=np.uint8).reshape(1, 4, 4)
    values = np.array([[0.0, 2.0], [-1.0, 0.0]])
    pixels = overlay(record, values).astype(float)
    assert (pixels[:2, :2] == record[0, :2, :2, None]).all() and (pixels[2:, 2:] == record[0, 2:, 2:, None]).all()
    assert pixels[0, 2] == pytest.approx(0.25 * record[0, 0, 2] + 0.75 * POSITIVE, abs=0.5)
    assert pixels[3, 0] == pytest.approx(0.625 * record[0, 3, 0] + 0.375 * NEGATIVE, abs=0.5)
    assert (overlay(record, np.zeros((2, 2))) == record[0][..., None]).all()


def test_the_figures_show_estimates_and_maps(found):
    results, findings, _ = found
    with paper_style():
        accuracy, alike, leakage = explanation_metrics(results, findings).axes
        assert [axes.get_ylabel() for axes in (accuracy, alike, leakage)] == [
            "test accuracy",
            "SSIM\nwith no DP",
            "AUC of attacks",
        ]
        means = [bars.lines[0].get_ydata() for bars in alike.containers if len(bars.lines[0].get_ydata()) == 3]
        assert means[0] == pytest.approx([0.6, 0.2, 0.6], abs=0.05), "ALIKE of the settings but the reference"
        sheet = explanations(results, findings, ("toy", "net"))
    titles = [axes.get_title(loc="left") for axes in sheet.axes]
    assert "input × gradient\nno DP" in titles and "integrated gradients\nno DP" in titles
    maps = results.maps(("toy", "net")).filter(mechanism="none", explainer="ixg")
    shown = next(axes.images[0].get_array() for axes in sheet.axes if axes.get_title(loc="left").startswith("input"))
    first = np.reshape(maps["map"][0].to_list(), (8, 8))
    assert np.asarray(shown) == pytest.approx(first / np.abs(first).max())
    arrows = [text.get_text() for axes in sheet.axes for text in axes.texts]
    assert arrows == ["→ dog"] * 4, "at ε = 1 the models explain another class than the unprotected one"


def test_curves_are_drawn_and_tabulated_with_intervals_over_models(found, interpreted):
    results, findings, _ = found
    rows = pl.read_parquet(interpreted.root / "toy" / "net" / "curves.parquet")
    wanted = {"mechanism": "dp-sgd", "epsilon": "1", "explainer": "ig", "share": 0.25}
    values = rows.filter(**wanted)["value"].to_numpy()
    built = build(results, findings)
    row = built["curves"].filter(**wanted).row(0, named=True)
    assert len(built["curves"]) == 4 * 2 * 5 and row["models"] == 12
    assert (row["value_mean"], row["value_sd"]) == pytest.approx((values.mean(), values.std(ddof=1)))
    low, high = t.interval(0.95, 11, values.mean(), values.std(ddof=1) / np.sqrt(12))
    assert (row["value_low"], row["value_high"]) == pytest.approx((low, high))
    tex = latex(tables["curves"].layout(results, findings, built["curves"]))
    assert "0.00 & 0.25 & 0.50 & 0.75 & 1.00" in tex and f"{values.mean():.3f}" in tex
    with paper_style():
        first, second = curves(results, findings, ("toy", "net")).axes
    assert (first.get_title(loc="left"), second.get_title(loc="left")) == ("input × gradient", "integrated gradients")
    assert [line.get_label() for line in second.lines] == [
        "No protection",
        "dp-sgd, ε = 8",
        "dp-sgd, ε = 1",
        "other, ε = 8",
    ]
    assert second.lines[2].get_ydata()[1] == pytest.approx(values.mean())


def test_a_group_that_nothing_is_left_of_gets_a_notice(interpreted, tmp_path, monkeypatch):
    results = interpreted.results()
    curves_, maps = results.explanation_curves(("toy", "net")).clear(), results.maps(("toy", "net")).clear()
    monkeypatch.setattr(type(results), "explanation_curves", lambda self, group: curves_)
    monkeypatch.setattr(type(results), "maps", lambda self, group: maps)
    drawn: dict[str, float] = {}
    monkeypatch.setattr(
        "mia_audit.report.figures.catalogue.save",
        lambda figure, folder, name, caption, look: drawn.update({name: figure.get_figheight()}),
    )
    draw(results, find(results), tmp_path)
    assert {"explanation_metrics", "explanations_toy_net", "curves_toy_net"} < set(drawn)
    assert drawn["explanations_toy_net"] < 2 and drawn["curves_toy_net"] < 2


def test_a_table_is_drawn_as_its_most_important_features(found, interpreted, monkeypatch):
    results, findings, _ = found
    metadata = {"kind": "table", "features": [f"column {i}" for i in range(8)], "classes": ["a", "b"]}
    monkeypatch.setattr(type(results), "pool_metadata", lambda self, dataset: metadata)
    flat = results.maps(("toy", "net")).with_columns(
        pl.lit(1).alias("height"), pl.lit(8).alias("width"), pl.col("map").list.head(8)
    )
    monkeypatch.setattr(type(results), "maps", lambda self, group: flat)
    with paper_style():
        sheet = explanations(results, findings, ("toy", "net"))
        first = sheet.axes[0]
        assert len(sheet.axes) == 2 and len(first.containers) == 4
        assert sorted(tick.get_text() for tick in first.get_yticklabels()) == metadata["features"]
        widths = np.array([[bar.get_width() for bar in bars] for bars in first.containers])
        assert (np.diff(widths.mean(axis=0)) <= 0).all() and ((widths > 0) & (widths <= 1)).all()
        data = table_of(sheet).filter(kind="bar")
    assert len(data) == 2 * 4 * 8 and set(data["label"]) == set(metadata["features"])


def test_releases_are_drawn_over_what_they_keep(interpreted):
    """Ig's measures and attack stand in for those of input × gradient with noise."""
    results = interpreted.results(explainers=interpreted.spec["explainers"] | {"release": ["full", "noisy"]})
    place = ("toy", "net")
    form, against = {"ig": "ixg~noisy"}, {"reference": "full map"}
    frame = results.explanation_metrics[place].with_columns(
        pl.col("explainer").replace(form), pl.col("against").replace(against)
    )
    results.__dict__["explanation_metrics"] = {place: frame}
    findings = find(results)
    name = {"ig_probability_l1": "ixg~noisy_l1"}
    settings = [
        replace(
            one,
            leaks={
                key: [replace(leak, signal=name.get(leak.signal, leak.signal)) for leak in leaks]
                for key, leaks in one.leaks.items()
            },
        )
        for one in findings.settings
    ]
    with paper_style("DejaVu Sans"):
        points = table_of(releases(results, replace(findings, settings=settings), place)).filter(kind="point")
    panels = [f"{name}: SSIM" for name in ("No protection", "dp-sgd, ε = 8", "dp-sgd, ε = 1", "other, ε = 8")]
    assert points["panel"].unique(maintain_order=True).to_list() == panels
    full, noisy = (points.filter(series=label) for label in ("input × gradient", "input × gradient, noisy"))
    assert full["x"].to_list() == [1.0] * 4 and len(noisy) == 3, "no measures stand in for the unprotected setting's"
    kept = frame.filter(explainer="ixg~noisy", against="full map", epsilon="1")["value"].mean()
    weak = noisy.row(by_predicate=pl.col("panel") == panels[2], named=True)
    assert weak["x"] == pytest.approx(kept)
    (leak,) = (one for one in settings[2].leaks["explanations"] if one.signal == "ixg~noisy_l1")
    assert weak["y"] == pytest.approx(leak.auc.mean()) and weak["y_low"] < weak["y"] < weak["y_high"]
    assert not interpreted.results().spec.releases and results.spec.releases
