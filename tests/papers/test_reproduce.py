"""The published table, cell by cell, from the published files (skipped where they are not) through the command line."""

import os
from pathlib import Path
from shutil import copytree

import numpy as np
import polars as pl
import pytest

from mia_audit.attacks.design import scored_with
from mia_audit.attacks.engine.ratios import RATIOS
from mia_audit.attacks.io.layouts import read_per_model_csv
from mia_audit.cli import main
from mia_audit.evaluation.metrics import metrics_of_columns, tpr_at_fpr
from mia_audit.signals.name import Reading, read_signal

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
    ("VAR-LRT", "authors' score, authors' read-out", "ixg_variance"): (0.0372, 0.1224, 0.6138),
    ("VAR-LRT", "authors' score, exact ROC", "ixg_variance"): (0.0021, 0.0299, 0.6138),
    ("VAR-LRT", "as the algorithm is written", "ixg_variance"): (0.0006, 0.0068, 0.6144),
    ("VAR-LRT", "threshold", "ixg_variance"): (0.0012, 0.0104, 0.5587),
    ("VAR-LRT", "pooled", "ixg_variance"): (0.0028, 0.0378, 0.6205),
    ("VAR-LRT", "pooled", "log ixg_variance"): (0.0208, 0.0747, 0.6377),
    ("VAR-LRT", "per-record", "log ixg_variance"): (0.0101, 0.0522, 0.6277),
    ("VAR-LRT", "shrunk", "log ixg_variance"): (0.0240, 0.0769, 0.6362),
    ("VAR-LRT", "hierarchical", "log ixg_variance"): (0.0253, 0.0800, 0.6422),
    ("VAR-LRT", "types", "log ixg_variance"): (0.0231, 0.0800, 0.6484),
    ("VAR-LRT", "blend (default)", "log ixg_variance"): (0.0256, 0.0807, 0.6481),
    ("VAR-LRT", "joint with the confidence, pooled", "confidence + log ixg_variance"): (0.0389, 0.0951, 0.6497),
    ("VAR-LRT", "joint with the confidence, hierarchical", "confidence + log ixg_variance"): (0.0409, 0.0962, 0.6539),
    ("VAR-LRT", "joint with the confidence, types", "confidence + log ixg_variance"): (0.0455, 0.1007, 0.6674),
    ("VAR-LRT", "joint with the confidence, blend (best)", "confidence + log ixg_variance"): (0.0463, 0.1013, 0.6673),
    ("L2-LRT", "authors' score, authors' read-out", "ixg_l2"): (0.0775, 0.1464, 0.6335),
    ("L2-LRT", "authors' score, exact ROC", "ixg_l2"): (0.0110, 0.0595, 0.6334),
    ("L2-LRT", "as the algorithm is written", "ixg_l2"): (0.0007, 0.0152, 0.6224),
    ("L2-LRT", "threshold", "ixg_l2"): (0.0012, 0.0104, 0.5587),
    ("L2-LRT", "pooled", "ixg_l2"): (0.0115, 0.0632, 0.6329),
    ("L2-LRT", "pooled", "log ixg_l2"): (0.0208, 0.0747, 0.6377),
    ("L2-LRT", "per-record", "log ixg_l2"): (0.0101, 0.0522, 0.6277),
    ("L2-LRT", "shrunk", "log ixg_l2"): (0.0240, 0.0769, 0.6362),
    ("L2-LRT", "hierarchical", "log ixg_l2"): (0.0253, 0.0800, 0.6422),
    ("L2-LRT", "types", "log ixg_l2"): (0.0232, 0.0801, 0.6484),
    ("L2-LRT", "blend (default)", "log ixg_l2"): (0.0257, 0.0807, 0.6481),
    ("L2-LRT", "joint with the confidence, pooled", "confidence + log ixg_l2"): (0.0389, 0.0951, 0.6497),
    ("L2-LRT", "joint with the confidence, hierarchical", "confidence + log ixg_l2"): (0.0409, 0.0962, 0.6539),
    ("L2-LRT", "joint with the confidence, types", "confidence + log ixg_l2"): (0.0455, 0.1007, 0.6674),
    ("L2-LRT", "joint with the confidence, blend (best)", "confidence + log ixg_l2"): (0.0463, 0.1013, 0.6673),
    ("L∞-LRT", "authors' score, authors' read-out", "ixg_linf"): (0.0216, 0.0881, 0.6019),
    ("L∞-LRT", "authors' score, exact ROC", "ixg_linf"): (0.0030, 0.0361, 0.6019),
    ("L∞-LRT", "as the algorithm is written", "ixg_linf"): (0.0009, 0.0083, 0.5884),
    ("L∞-LRT", "threshold", "ixg_linf"): (0.0009, 0.0108, 0.5588),
    ("L∞-LRT", "pooled", "ixg_linf"): (0.0031, 0.0380, 0.6046),
    ("L∞-LRT", "pooled", "log ixg_linf"): (0.0167, 0.0627, 0.6149),
    ("L∞-LRT", "per-record", "log ixg_linf"): (0.0060, 0.0393, 0.6059),
    ("L∞-LRT", "shrunk", "log ixg_linf"): (0.0164, 0.0613, 0.6131),
    ("L∞-LRT", "hierarchical", "log ixg_linf"): (0.0185, 0.0674, 0.6219),
    ("L∞-LRT", "types", "log ixg_linf"): (0.0193, 0.0681, 0.6276),
    ("L∞-LRT", "blend (default)", "log ixg_linf"): (0.0199, 0.0689, 0.6275),
    ("L∞-LRT", "joint with the confidence, pooled", "confidence + log ixg_linf"): (0.0384, 0.0930, 0.6460),
    ("L∞-LRT", "joint with the confidence, hierarchical", "confidence + log ixg_linf"): (0.0396, 0.0940, 0.6510),
    ("L∞-LRT", "joint with the confidence, types", "confidence + log ixg_linf"): (0.0440, 0.0988, 0.6654),
    ("L∞-LRT", "joint with the confidence, blend (best)", "confidence + log ixg_linf"): (0.0442, 0.0990, 0.6650),
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
def test_sixteen_models_suffice():
    full = read_per_model_csv(Path(FOLDER), {})
    signal = Reading(read_signal("ixg_l1"), [full.signals["ixg_l1"]]).scaled

    def auc(likelihood, models):
        def ratio(some, member):
            return RATIOS[likelihood](np.asfortranarray(signal[:, some]), member)

        scores = scored_with(ratio, full.member, models, 0)
        return metrics_of_columns(np.nan_to_num(scores).astype(np.float32), full.member, (0.01,))["auc"].mean()

    few, many = auc("hierarchical", 16), auc("hierarchical", 32)
    assert many > few >= auc("pooled", 32) > auc("pooled", 16)


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
    assert "–" in shown and "nan" not in shown
    computed = pl.read_csv(out / "table.csv").filter(pl.col("way") == "blend (default)")
    assert computed["tpr_at_fpr_0.001_mean"].null_count() == len(computed) == 2
    assert computed["tpr_at_fpr_0.01_mean"].null_count() == computed["auc_mean"].null_count() == 0
    assert (out / "curves.pdf").exists()


def test_a_membership_without_signals_and_other_folders_are_left_out(tmp_path, capsys):
    scores = few(tmp_path / "scores", 240, 5)
    stray = scores / "indices_CIFAR10" / "model=vit_epochs=5"
    stray.mkdir()
    (stray / "1.csv").write_text("1\n0\n")
    (scores / "indices_CIFAR10" / "model=vit").rename(scores / "indices_CIFAR10" / "model=vit_epochs=30")
    (scores / "losses_CIFAR10" / "model=vit").rename(scores / "losses_CIFAR10" / "model=vit_epochs=30")
    (scores / "norms_l1_CIFAR10" / "model=vit_type=ixg").rename(
        scores / "norms_l1_CIFAR10" / "model=vit_type=ixg_epochs=30"
    )
    (scores / "accuracies_CIFAR10").mkdir()
    (scores / ".DS_Store").write_bytes(b"\0")
    for where in ({}, {"epochs": "30"}):
        assert read_per_model_csv(scores, where).signals.keys() == {"loss", "confidence", "ixg_l1"}
    assert main(["reproduce", str(scores), "--out", str(tmp_path / "out"), "--where", "epoch=30"]) == 2
    error = capsys.readouterr().err
    assert "no folder" in error and "did you mean 'epochs'" in error and error.count("\n") == 1


def test_several_settings_are_a_choice(tmp_path, capsys):
    scores = few(tmp_path / "scores", 240, 5)
    norms = scores / "norms_l1_CIFAR10"
    copytree(norms / "model=vit_type=ixg", norms / "model=vit_type=ixg_epochs=5")
    assert main(["reproduce", str(scores), "--out", str(tmp_path / "out")]) == 2
    assert "choose one with --where KEY=VALUE" in capsys.readouterr().err
