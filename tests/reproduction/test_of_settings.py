"""Confusion matrices and membership probabilities of every setting of an audit."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from mia_audit.report.data.results import Results
from mia_audit.report.data.spec import Setting, Spec
from mia_audit.reproduction.of_settings import confusion, membership_grid, membership_maps
from mia_audit.storage import write_table

SETTING = Setting("d", "net", "none", "inf")


def test_a_confusion_matrix_is_over_what_a_model_was_not_trained_on(tmp_path: Path) -> None:
    rows = [  # shadow, member, label, predicted
        *[(0, False, 0, 0)] * 3,
        (0, False, 0, 1),
        *[(0, True, 0, 1)] * 9,
        *[(1, False, 0, 0)] * 2,
        *[(1, False, 1, 1)] * 5,
    ]
    table = pl.DataFrame(rows, schema=["shadow", "member", "label", "predicted"], orient="row")
    table = table.with_row_index("record").cast(
        {"shadow": pl.Int32, "record": pl.Int32, "label": pl.Int32, "predicted": pl.Int32}
    )
    write_table(tmp_path / SETTING.path / "signals.parquet", table.to_arrow(), "signals", len(table))
    found = confusion([Results(tmp_path, Spec("a", (SETTING, Setting("d", "net", "dp-sgd", "8"))))])
    assert found.select("label", "predicted", "share_mean").rows() == [(0, 0, 0.875), (0, 1, 0.125), (1, 1, 1.0)]
    assert found["share_sd"].to_list()[:2] == pytest.approx([np.std([0.75, 1.0], ddof=1)] * 2)
    assert found["models"].to_list() == [2, 2, 1] and found["mechanism"].unique().to_list() == ["none"]


def test_members_are_left_and_non_members_right() -> None:
    score = np.array([np.inf, -np.inf, 0.0, 0.0, np.log(3)])
    member = np.array([True, False, True, False, True])
    grid = membership_grid(score, member)
    assert grid.shape == (2, 2)
    assert grid[:, 0].tolist() == [1.0, 0.5] and grid[:, 1].tolist() == [0.0, 0.5]
    assert membership_grid(score, member, drawn=1).tolist() == [[1.0, 0.0]]


def test_a_panel_is_drawn_for_every_setting_with_the_attack(tmp_path: Path) -> None:
    def attacked(setting: Setting, attack: str) -> None:
        member = np.tile([True, False], 30)
        rows = {"attack": attack, "signal": "confidence", "likelihood": "none", "null_control": False}
        scores = pl.DataFrame(
            {"target": 0, "record": range(60), "member": member, "score": member * 2.0 - 1}
        ).with_columns(*(pl.lit(value).alias(name) for name, value in rows.items()))
        metrics = pl.DataFrame([{**rows, "target": 0, "auc": 1.0}])
        for name, table in (("scores", scores), ("metrics", metrics)):
            frame = table.cast(
                {"target": pl.Int32} | ({"record": pl.Int32, "score": pl.Float32} if name == "scores" else {})
            )
            write_table(tmp_path / setting.path / f"{name}.parquet", frame.to_arrow(), name, len(frame))

    settings = (SETTING, Setting("d", "net", "dp-sgd", "8", private=True), Setting("e", "net", "none", "inf"))
    for setting in settings:
        attacked(setting, "threshold" if setting.dataset == "e" else "shadow-classifier")
    ((name, figure),) = membership_maps(Results(tmp_path, Spec("a", settings)))
    panels = [axes.get_title() for axes in figure.axes if axes.get_title()]
    assert name == "d_net" and panels == ["no protection\nAUC 1.000", "dp-sgd, ε = 8\nAUC 1.000"]
