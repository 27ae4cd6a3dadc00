"""The same records explained by several architectures: what is chosen, and that it is drawn."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from mia_audit.config.specs import ReportSpec
from mia_audit.errors import UserError
from mia_audit.report.figures.catalogue import figure_files
from mia_audit.report.figures.explanations import image_figure, side_by_side, strips, table_figure
from mia_audit.report.findings import Finding, Findings, LowerBound
from mia_audit.report.results import Results
from mia_audit.report.spec import AuditedSetting
from mia_audit.storage import write_table

SETTINGS = [
    AuditedSetting("toy", "llm", "none", "inf"),
    AuditedSetting("toy", "llm", "dp-sgd", "2", private=True, delta=1e-5),
]


def explanations(explainers: list[str], records: list[int], seed: int, height: int = 4) -> pl.DataFrame:
    random = np.random.default_rng(seed)
    rows = [
        {
            "mechanism": mechanism,
            "epsilon": epsilon,
            "shadow": 0,
            "record": record,
            "explainer": explainer,
            "quantity": quantity,
            "label": 0,
            "class": record % 2,
            "height": height,
            "width": 4,
            "map": random.normal(size=height * 4).astype(np.float32).tolist(),
        }
        for mechanism, epsilon in (one.within_group.values() for one in SETTINGS)
        for explainer in explainers
        for quantity in ("log_probability", "logit")
        for record in records
    ]
    return pl.DataFrame(rows)


def test_a_model_s_own_explanation_stands_beside_what_explains_the_others() -> None:
    maps = {
        "llm": explanations(["ig", "llm-local", "llm-top"], [3, 5], 0),
        "cnn": explanations(["ig", "captum:NoiseTunnel+Saliency"], [3, 5], 1),
        "vit": explanations(["ig", "captum:NoiseTunnel+Saliency"], [3, 5], 2),
    }
    found = strips(maps, dict.fromkeys(maps, SETTINGS))
    assert [(strip.setting, strip.architecture, strip.explainer) for strip in found[:5]] == [
        ("No protection", "llm", "llm-local"),
        ("No protection", "cnn", "ig"),
        ("No protection", "cnn", "captum:NoiseTunnel+Saliency"),
        ("No protection", "vit", "ig"),
        ("No protection", "vit", "captum:NoiseTunnel+Saliency"),
    ]
    assert {strip.setting for strip in found[5:]} == {"dp-sgd, ε = 2"} and len(found) == 10
    for place, name, explainer, quantity in (
        (0, "llm", "llm-local", "logit"),
        (1, "cnn", "ig", "log_probability"),
    ):
        rows = maps[name].filter(mechanism="none", explainer=explainer, quantity=quantity, record=5)
        assert found[place].explainer == explainer
        assert np.allclose(found[place].maps[1].ravel(), rows["map"][0].to_numpy())
    assert found[2].label == "cnn\nSmoothGrad (captum)"
    figure = image_figure(found, np.zeros((2, 1, 4, 4), np.uint8), {"classes": ["a", "b"]})
    pictures = [axes for band in figure.subfigs for axes in band.axes if axes.images]
    assert len(pictures) == 2 * 2 * (1 + 5)


def test_a_table_has_a_strip_for_every_explanation() -> None:
    maps = {"llm": explanations(["llm-local"], [3], 0, height=1), "mlp": explanations(["ig"], [3], 1, height=1)}
    found = strips(maps, {"llm": SETTINGS, "mlp": SETTINGS[:1]})
    (axes,) = table_figure(found, [3], {"features": ["a", "b", "c", "d"]}).axes
    assert [text.get_text() for text in axes.get_yticklabels()] == [
        "llm, the weighted map, No protection",
        "mlp, integrated gradients, No protection",
        "llm, the weighted map, dp-sgd, ε = 2",
    ]
    shares = np.asarray(axes.images[0].get_array())
    assert shares.shape == (3, 4) and np.allclose(np.abs(shares).max(axis=1), 1)
    assert [text.get_text() for text in axes.get_xticklabels()] == ["a", "b", "c", "d"]


def test_the_figure_is_drawn_from_disk(small, tmp_path: Path) -> None:
    (tmp_path / "pools").mkdir()
    (tmp_path / "pools" / "toy").symlink_to(small.root / "pools" / "toy")
    named = {name: [replace(one, architecture=name, model=name) for one in SETTINGS] for name in ("llm", "cnn")}
    for seed, name in enumerate(named):
        table = explanations(["llm-local"] if name == "llm" else ["ig"], [3, 5], seed).to_arrow()
        write_table(tmp_path / "toy" / name / "explanations.parquet", table, "explanations", len(table))
    settings = [one for known in named.values() for one in known]
    spec = ReportSpec(audit="a", settings=settings, explanation_metrics=True, explanation_maps=True)
    assert "side_by_side_toy.svg" in figure_files(spec)
    alike = [replace(one, model="cnn") for one in settings]  # one model, trained in two ways
    assert "side_by_side_toy.svg" not in figure_files(spec.model_copy(update={"settings": alike}))
    bound = LowerBound(0.0, 1e-5, "clopper-pearson", 1)
    findings = Findings(None, [Finding(one, {}, None, None, None, None, bound) for one in settings])
    shown = side_by_side(Results(tmp_path, spec), findings, "toy")
    assert not isinstance(shown, str)
    assert len([axes for band in shown.subfigs for axes in band.axes if axes.images]) == 2 * 2 * (1 + 2)
    table = explanations(["ig"], [3, 6], 1).to_arrow()
    write_table(tmp_path / "toy" / "cnn" / "explanations.parquet", table, "explanations", len(table))
    with pytest.raises(UserError, match="hold different records"):
        side_by_side(Results(tmp_path, spec), findings, "toy")
