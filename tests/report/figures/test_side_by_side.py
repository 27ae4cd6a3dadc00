"""The same records explained by several architectures: what is chosen, and that it is drawn."""

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from mia_audit.cli import main
from mia_audit.report.figures.explanations import image_figure, strips, table_figure
from mia_audit.storage import write_table

SETTINGS = {("none", "inf"): "no DP", ("dp-sgd", "2"): "dp-sgd, ε = 2"}


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
        for mechanism, epsilon in SETTINGS
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
        ("no DP", "llm", "llm-local"),
        ("no DP", "cnn", "ig"),
        ("no DP", "cnn", "captum:NoiseTunnel+Saliency"),
        ("no DP", "vit", "ig"),
        ("no DP", "vit", "captum:NoiseTunnel+Saliency"),
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
    found = strips(maps, {"llm": SETTINGS, "mlp": {("none", "inf"): "no DP"}})
    (axes,) = table_figure(found, [3], {"features": ["a", "b", "c", "d"]}).axes
    assert [text.get_text() for text in axes.get_yticklabels()] == [
        "llm, the weighted map, no DP",
        "mlp, integrated gradients, no DP",
        "llm, the weighted map, dp-sgd, ε = 2",
    ]
    shares = np.asarray(axes.images[0].get_array())
    assert shares.shape == (3, 4) and np.allclose(np.abs(shares).max(axis=1), 1)
    assert [text.get_text() for text in axes.get_xticklabels()] == ["a", "b", "c", "d"]


def test_the_figure_is_drawn_from_disk(small, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "pools").mkdir()
    (tmp_path / "pools" / "toy").symlink_to(small.root / "pools" / "toy")
    for seed, name in enumerate(("llm", "cnn")):
        table = explanations(["llm-local"] if name == "llm" else ["ig"], [3, 5], seed).to_arrow()
        write_table(tmp_path / "toy" / name / "explanations.parquet", table, "explanations", len(table))
    settings = [[*setting, heading] for setting, heading in SETTINGS.items()]
    spec = tmp_path / "spec.json"
    spec.write_text(json.dumps({"dataset": "toy", "architectures": {"llm": settings, "cnn": settings}}))
    arguments = ["side-by-side", "--results", str(tmp_path), "--spec", str(spec), "--out", str(tmp_path / "out")]
    assert main(arguments) == 0
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        f"explanations.{suffix}" for suffix in ("pdf", "png", "svg")
    ]
    table = explanations(["ig"], [3, 6], 1).to_arrow()
    write_table(tmp_path / "toy" / "cnn" / "explanations.parquet", table, "explanations", len(table))
    assert main(arguments) == 2
    assert "hold different records" in capsys.readouterr().err
