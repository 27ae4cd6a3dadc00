"""The published table, cell by cell, from the published files (skipped where they are not) through the command line."""

import os
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from mia_audit.attacks.engine.ratios import RATIOS
from mia_audit.attacks.io.published import read_per_model_csv
from mia_audit.cli import main
from mia_audit.evaluation import tpr_at_fpr
from mia_audit.reproduction.models import measure

FOLDER = os.environ.get("MIA_AUDIT_PUBLISHED_SCORES", "")

published = pytest.mark.skipif(
    not Path(FOLDER, "indices_CIFAR10").is_dir(),
    reason="the published score matrices are not here: set MIA_AUDIT_PUBLISHED_SCORES to their folder",
)

TABLE = {
    ("L1-LRT", "authors' score, authors' read-out", "ixg_l1"): (0.0922, 0.1562, 0.6380),
    ("L1-LRT", "authors' score, exact ROC", "ixg_l1"): (0.0118, 0.0622, 0.6380),
    ("L1-LRT", "as the algorithm is written", "ixg_l1"): (0.0005, 0.0244, 0.6297),
    ("L1-LRT", "threshold", "ixg_l1"): (0.0012, 0.0107, 0.5590),
    ("L1-LRT", "pooled", "ixg_l1"): (0.0129, 0.0652, 0.6325),
    ("L1-LRT", "pooled", "log ixg_l1"): (0.0211, 0.0755, 0.6407),
    ("L1-LRT", "per-record", "log ixg_l1"): (0.0120, 0.0568, 0.6313),
    ("L1-LRT", "shrunk", "log ixg_l1"): (0.0258, 0.0797, 0.6393),
    ("L1-LRT", "hierarchical", "log ixg_l1"): (0.0265, 0.0818, 0.6445),
    ("L1-LRT", "types", "log ixg_l1"): (0.0245, 0.0822, 0.6509),
    ("L1-LRT", "blend (default)", "log ixg_l1"): (0.0262, 0.0827, 0.6505),
    ("L1-LRT", "joint with the confidence, pooled", "confidence + log ixg_l1"): (0.0394, 0.0951, 0.6506),
    ("L1-LRT", "joint with the confidence, hierarchical", "confidence + log ixg_l1"): (0.0409, 0.0960, 0.6541),
    ("L1-LRT", "joint with the confidence, types", "confidence + log ixg_l1"): (0.0444, 0.1008, 0.6677),
    ("L1-LRT", "joint with the confidence, blend (best)", "confidence + log ixg_l1"): (0.0447, 0.1014, 0.6675),
    ("Loss LiRA", "authors' score, authors' read-out", "loss"): (0.0543, 0.0946, 0.5696),
    ("Loss LiRA", "authors' score, exact ROC", "loss"): (0.0094, 0.0302, 0.5696),
    ("Loss LiRA", "threshold", "loss"): (0.0010, 0.0103, 0.5643),
    ("Loss LiRA", "pooled", "loss"): (0.0134, 0.0415, 0.5957),
    ("Loss LiRA", "pooled", "confidence"): (0.0380, 0.0915, 0.6460),
    ("Loss LiRA", "per-record", "confidence"): (0.0105, 0.0637, 0.6414),
    ("Loss LiRA", "shrunk", "confidence"): (0.0397, 0.0932, 0.6469),
    ("Loss LiRA", "hierarchical", "confidence"): (0.0400, 0.0934, 0.6473),
    ("Loss LiRA", "types", "confidence"): (0.0433, 0.0988, 0.6641),
    ("Loss LiRA", "blend (default)", "confidence"): (0.0435, 0.0988, 0.6637),
}


@pytest.mark.slow
@published
def test_every_cell_comes_out(tmp_path, capsys):
    assert main(["reproduce", FOLDER, "--out", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    assert "L1-LRT" in shown and "0.0922" in shown
    table = pl.read_csv(tmp_path / "table.csv")
    found = {tuple(row[:3]): (row[3], row[5], row[7]) for row in table.rows() if row[1] != "as printed"}
    assert set(found) == set(TABLE)
    for key, expected in TABLE.items():
        assert found[key] == pytest.approx(expected, abs=2e-4), key
    assert {path.name for path in tmp_path.iterdir()} == {
        "table.csv",
        "table.tex",
        *(f"curves.{kind}" for kind in ("pdf", "svg", "png")),
    }


@published
def test_the_loss_threshold_with_its_ties_and_with_ties_broken_by_the_records_order():
    """The published losses have few digits: what a read-out does with equal scores shows in the fourth decimal."""
    full = read_per_model_csv(Path(FOLDER), {})
    pairs = [(-loss, member) for loss, member in zip(full.signals["loss"].T, full.member.T, strict=True)]
    distinct = [len(np.unique(scores)) for scores, _ in pairs]
    assert 4000 < np.mean(distinct) < 5000
    exact = [[tpr_at_fpr(scores, member, fpr) for fpr in (0.001, 0.01)] for scores, member in pairs]
    ordered = [[tpr_at_fpr(_ranks_by_order(scores), member, fpr) for fpr in (0.001, 0.01)] for scores, member in pairs]
    assert np.mean(exact, axis=0).round(4).tolist() == [0.0010, 0.0103]
    assert np.mean(ordered, axis=0).round(4).tolist() == [0.0011, 0.0107]


def _ranks_by_order(scores):
    ranks = np.empty(len(scores))
    ranks[np.argsort(-scores, kind="stable")] = -np.arange(len(scores))
    return ranks


@published
def test_sixteen_models_suffice(monkeypatch):
    monkeypatch.setattr("mia_audit.reproduction.models.COUNTS", (16, 32))
    monkeypatch.setattr(
        "mia_audit.reproduction.models.RATIOS", {name: RATIOS[name] for name in ("hierarchical", "pooled")}
    )
    full = read_per_model_csv(Path(FOLDER), {})
    full.signals.pop("loss"), full.signals.pop("confidence")
    table = measure(full)
    auc = {(row["likelihood"], row["models"]): row["auc_mean"] for row in table.iter_rows(named=True)}
    assert auc["hierarchical", 16] >= auc["pooled", 32] > auc["pooled", 16]
    assert max(auc, key=auc.__getitem__) == ("hierarchical", 32)


def test_a_folder_that_is_not_there_is_named(tmp_path, capsys):
    assert main(["reproduce", str(tmp_path / "none"), "--out", str(tmp_path / "out")]) == 2
    assert "no such folder" in capsys.readouterr().err and not (tmp_path / "out").exists()


def few(root, records, models):
    """Write small matrices in the layout of the published ones."""
    random = np.random.default_rng(0)
    member = np.stack([random.permutation(records) < records // 2 for _ in range(models)], axis=1)
    for kind, setting, matrix in (
        ("indices", "model=vit", member.astype(int)),
        ("losses", "model=vit", random.exponential(size=member.shape)),
        ("norms_l1", "model=vit_type=ixg", random.exponential(size=member.shape)),
    ):
        folder = root / f"{kind}_CIFAR10" / setting
        folder.mkdir(parents=True)
        for model in range(models):
            np.savetxt(folder / f"{model}.csv", matrix[:, model], header=str(model), comments="")
    return root


def test_metrics_that_few_records_do_not_resolve_are_left_empty(tmp_path, capsys):
    out = tmp_path / "out"
    assert main(["reproduce", str(few(tmp_path / "scores", 240, 5)), "--out", str(out)]) == 0
    shown = capsys.readouterr().out
    assert "–" in shown and "nan" not in shown and "nan" not in (out / "table.tex").read_text()
    computed = pl.read_csv(out / "table.csv").filter(pl.col("way") == "blend (default)")
    assert computed["tpr_at_fpr_0.001_mean"].null_count() == len(computed) == 2
    assert computed["tpr_at_fpr_0.01_mean"].null_count() == computed["auc_mean"].null_count() == 0
    assert (out / "curves.pdf").exists()


def test_too_few_models_to_leave_some_out_are_refused_first(tmp_path, capsys):
    assert main(["reproduce", str(few(tmp_path / "s", 40, 4)), "--out", str(tmp_path / "out"), "--models"]) == 2
    error = capsys.readouterr().err
    assert "4 models; expected more than 4" in error and error.count("\n") == 1 and not (tmp_path / "out").exists()
