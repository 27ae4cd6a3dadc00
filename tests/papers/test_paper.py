"""A paper's tables and figures from finished audits: what is filled, what is blank, and with which command."""

import io
import json
import math
from contextlib import redirect_stdout
from dataclasses import replace
from functools import cache
from pathlib import Path
from shutil import copytree
from typing import get_args

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from scipy.stats import t as student

from mia_audit.cli import main
from mia_audit.config import expand
from mia_audit.config.load import load_audit
from mia_audit.config.schema import Audit
from mia_audit.config.specs import PaperSpec
from mia_audit.evaluation.metrics import authors_read_out, metrics_of_columns
from mia_audit.explanation_metrics.tables import COLUMNS
from mia_audit.papers import PAPERS, paper
from mia_audit.papers.cells import Key, Measured, Printed, difference, printed_cells, printed_rows
from mia_audit.report.opened import finished
from mia_audit.report.spec import Report
from mia_audit.storage import write_json, write_table
from mia_audit.training.report import SCHEMA

ROOT = Path(__file__).parents[2]
VIT = "vit_small_patch16_224"
ATTACKS = ("threshold", "authors-lrt", "loss-lira", "var-lrt", "l1-lrt")
RECORDS, MODELS = 2500, 5


@pytest.fixture(scope="module")
def audit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return finished results of one setting of the paper: CIFAR-10, vit_small, without privacy; input × gradient alone."""
    folder = tmp_path_factory.mktemp("paper")
    rng = np.random.default_rng(0)
    member = rng.random((RECORDS, MODELS)) < 0.5
    np.save(folder / "member.npy", member)
    given = ["--membership", f"{folder}/member.npy"]
    for name in ("loss", "ixg_variance", "ixg_l1"):
        values = np.exp(2 * rng.normal(size=(RECORDS, 1)) + rng.normal(size=member.shape) - member)
        np.save(folder / f"{name}.npy", values)
        given += ["--signal", f"{name}={folder}/{name}.npy"]
    root = folder / "results"
    chosen = ["--attacks", *ATTACKS, "--likelihoods", "pooled", "--no-report"]
    assert main(["audit", *given, *chosen, "--out", str(folder / "scored")]) == 0
    setting = root / "cifar10" / VIT / "none-epsinf"
    setting.mkdir(parents=True)
    for name in ("scores", "metrics"):
        next(folder.glob(f"scored/**/{name}.parquet")).rename(setting / f"{name}.parquet")
    shadow, record = (axis.ravel().astype(np.int32) for axis in np.indices((MODELS, RECORDS)))
    columns = {"shadow": shadow, "record": record, "member": member.T.ravel()}
    columns["ixg_l1"] = np.load(folder / "ixg_l1.npy").T.ravel().astype(np.float32)
    write_table(setting / "signals.parquet", pa.table(columns), "signals", MODELS * RECORDS, {})
    rows = [
        {"shadow": k, "epoch": 1, "train_accuracy": 1.0, "test_accuracy": 0.95 + 0.01 * k / (MODELS - 1), "records": 10}
        for k in range(MODELS)
    ]
    table = pa.Table.from_pylist([{name: row.get(name) for name in SCHEMA.names} for row in rows], schema=SCHEMA)
    write_table(setting / "training.parquet", table, "training", MODELS, {})
    stated = {"dataset": "cifar10", "architecture": VIT, "mechanism": "none", "epsilon": "inf", "private": False}
    stated |= {"delta": None, "accountant": None, "clipping": None, "path": f"cifar10/{VIT}/none-epsinf"}
    config = {"attacks": {"likelihoods": ["pooled"]}}
    write_json(root / "provenance.json", {"audit": "huang2024_cifar10", "settings": [stated], "config": config})
    return root


@pytest.fixture(scope="module")
def written(audit: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """Return the folder that the command wrote to, and what it said."""
    folder, said = tmp_path_factory.mktemp("written"), io.StringIO()
    known = PAPERS["huang2024"]
    few = {name: known.figures[name] for name in ("1a", "7")}  # drawing all takes 20 seconds
    few["11"] = [replace(known.figures["11"][0], others=(3, 4, 32))]
    with redirect_stdout(said), pytest.MonkeyPatch.context() as patch:
        patch.setitem(PAPERS, "huang2024", replace(known, figures=few))
        assert main(["paper", "huang2024", str(audit), "--out", str(folder)]) == 0
    return folder, said.getvalue().splitlines()


def test_tables_and_figures_are_filled_as_far_as_results_go(written: tuple[Path, list[str]]) -> None:
    folder, said = written
    filled = [line.split(" cells filled.")[0] for line in said if " cells filled." in line]
    counts = ("1: 6 of 96", "2: 3 of 60", "3: 9 of 12", "5: 2 of 22", "8: 2 of 30", "9: 3 of 48")
    assert filled == [f"Table {count}" for count in counts]
    assert {"Figure 1a: drawn.", "Figure 7: no results for any panel."} < set(said)
    assert any(line.startswith("Table 6: 3 of 33 tests.") for line in said)
    commands = [line for line in said if line.startswith("missing: ")]
    datasets = ("cifar10", "cifar100", "food101", "gtsrb", "svhn")
    assert commands == [f"missing: snakemake --cores all --configfile config/huang2024/{one}.yaml" for one in datasets]
    names = {path.name for path in folder.iterdir()}
    assert {f"table_{table}.csv" for table in "1235689"} < names
    figures = {name for name in names if name.startswith("figure_")}
    assert figures == {f"figure_{name}.{suffix}" for name in ("1a", "11") for suffix in ("pdf", "svg", "png")}


def test_a_cell_has_the_papers_procedure_its_exact_scores_and_ours(
    audit: Path, written: tuple[Path, list[str]]
) -> None:
    folder, _ = written
    table = pl.read_csv(folder / "table_2.csv")
    (row,) = table.filter(dataset="cifar10", explainer="ixg", metric="tpr_at_fpr_0.01").iter_rows(named=True)
    scored = finished(audit).scored(finished(audit).spec.settings[0], "authors-lrt", "ixg_l1", "none")
    read = [authors_read_out(*pair)[0][1] for pair in zip(scored.score.T, scored.member.T, strict=True)]
    assert row["alike_mean"] == pytest.approx(np.mean(read), abs=1e-6)
    assert row["printed_mean"] == 0.156 and row["difference"] == pytest.approx(np.mean(read) - 0.156, abs=1e-6)
    assert row["difference_low"] < row["difference"] < row["difference_high"] and not row["command"]
    assert row["exact_mean"] != row["alike_mean"] and row["our_attack"] == "l1-lrt (pooled)" and row["ours_mean"] > 0
    blank = table.filter(dataset="svhn", explainer="ixg", metric="auc").row(0, named=True)
    assert blank["alike_mean"] is None and blank["printed_mean"] == 0.603 and "svhn.yaml" in blank["command"]
    accuracy = pl.read_csv(folder / "table_5.csv").filter(dataset="cifar10", architecture=VIT)
    assert accuracy["alike_mean"].to_list() == pytest.approx([1.0, 0.955])
    (loss,) = pl.read_csv(folder / "table_3.csv").filter(attack="loss-lira", metric="auc").iter_rows(named=True)
    assert loss["our_attack"] == "loss-lira (pooled)" and loss["alike_mean"] == pytest.approx(
        loss["exact_mean"], abs=2e-3
    )


def test_fewer_shadow_models_attack_the_same_targets(audit: Path) -> None:
    results = finished(audit)
    place, signal = ("cifar10", VIT, "none", math.inf), "ixg_l1"
    several = {others: scores for others, scores, _ in Measured([results]).with_fewer(place, signal, (3, 4, 32))}
    assert list(several) == [3, 4] and several[3].shape == (RECORDS, MODELS)
    stored = results.scored(results.spec.settings[0], "authors-lrt", signal, "none")
    np.testing.assert_allclose(several[4], stored.score, rtol=1e-4, atol=1e-4)
    assert not np.allclose(several[3], several[4])
    assert not list(Measured([]).with_fewer(place, signal, (3,)))


def test_a_cell_of_fewer_models_is_attacked_by_as_many(audit: Path) -> None:
    cell = _cell(Key("cifar10", VIT, "none", "inf", "ixg", "l1-lrt", "auc"))
    results = Measured([finished(audit)])
    whole, fewer = results.results_of(cell), results.results_of(replace(cell, models=4))
    place = "cifar10", VIT, "none", math.inf
    ((_, scores, member),) = results.with_fewer(place, "ixg_l1", (3,))
    known = metrics_of_columns(scores, member, (0.001, 0.01))["auc"]
    assert fewer.exact.tolist() == known.tolist() != whole.exact.tolist() and len(fewer.alike) == MODELS
    assert fewer.our_attack == whole.our_attack and not np.allclose(fewer.ours, whole.ours)


def _cell(key: Key) -> Printed:
    return Printed("", "", 33, key, None, None)


def test_attacks_are_compared_over_the_same_targets(audit: Path, written: tuple[Path, list[str]]) -> None:
    folder, _ = written
    table = pl.read_csv(folder / "table_6.csv")
    (row,) = table.filter(dataset="cifar10", explainer="ixg", metric="auc").iter_rows(named=True)
    assert (row["printed_t"], row["printed_p"], row["targets"]) == (29.013, 1.534e-38, MODELS)
    metrics = finished(audit).metrics[0].filter(pl.col("signal") == "ixg_variance", ~pl.col("null_control"))
    values = {
        (attack, likelihood): metrics.filter(attack=attack, likelihood=likelihood).sort("target")["auc"].to_numpy()
        for attack, likelihood in (("threshold", "none"), ("authors-lrt", "none"), ("var-lrt", "pooled"))
    }
    for name, attack in (("exact", ("authors-lrt", "none")), ("ours", ("var-lrt", "pooled"))):
        gaps = values[attack] - values["threshold", "none"]
        assert row[f"{name}_difference"] == pytest.approx(gaps.mean())
        assert row[f"{name}_low"] < gaps.mean() < row[f"{name}_high"] and 0 <= row[f"{name}_p"] <= 1
    assert "svhn.yaml" in table.filter(dataset="svhn")["command"][0] and len(table) == 33


def test_a_threshold_is_read_exactly(audit: Path) -> None:
    cell = _cell(Key("cifar10", VIT, "none", "inf", "ixg", "threshold", "auc"))
    results = Measured([finished(audit)]).results_of(cell)
    assert len(results.alike) == MODELS and (results.alike == results.exact).all() and not len(results.ours)
    assert not len(Measured([]).results_of(cell).alike)


def test_the_difference_counts_both_spreads_and_the_models_that_targets_share() -> None:
    cell = next(cell for cell in printed_cells("huang2024") if cell.key.attack and cell.mean)
    values = np.linspace(0.4, 0.6, 17)
    gap, low, high = difference(values, cell)
    assert gap == pytest.approx(0.5 - cell.mean) and low < gap < high
    accuracy = replace(cell, key=replace(cell.key, attack=""))
    assert difference(values, accuracy)[2] - gap == pytest.approx((high - gap) / math.sqrt(2 * 16 / 15), rel=0.01)
    assert math.isnan(difference(values, replace(cell, mean=None))[0])
    gap, low, high = difference(values, replace(cell, sd=None))
    assert gap == pytest.approx(0.5 - cell.mean) and math.isnan(low) and math.isnan(high)


def test_a_specification_names_the_paper_as_well(audit: Path, tmp_path: Path) -> None:
    spec = PaperSpec(paper="harder2020").write(tmp_path)
    assert main(["paper", str(audit), "--spec", str(spec), "--out", str(tmp_path / "out")]) == 0
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"table_text.csv", "table_figure_8.csv"}
    assert get_args(Report.model_fields["paper"].annotation) == ("", *PAPERS)


def test_results_have_to_be_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["paper", "huang2024", "--out", str(tmp_path / "out")]) == 2
    assert "expected the folders of finished audits" in capsys.readouterr().err


def test_an_unknown_paper_is_refused(audit: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["paper", "huang2042", str(audit), "--out", str(tmp_path / "out")]) == 2
    assert "no paper 'huang2042' here: " in capsys.readouterr().err and not (tmp_path / "out").exists()


@pytest.mark.parametrize(("name", "count"), [("huang2024", 268), ("harder2020", 9), ("fadp", 45)])
def test_every_cell_of_a_table_has_its_place_and_a_config_that_trains_it(name: str, count: int) -> None:
    known = paper(name)
    cells = printed_cells(name)
    assert {cell.table for cell in cells} == set(known.tables)
    assert len({(cell.table, cell.key) for cell in cells}) == len(cells) == count
    for dataset, path in known.configs.items():
        audit = _audit(path)
        settings = {
            (one.architecture, one.mechanism, one.epsilon) for one in expand.settings(audit) if one.dataset == dataset
        }
        needed = [cell.key for cell in cells if cell.key.dataset == dataset and cell.mean is not None]
        assert {(key.architecture, key.mechanism, key.epsilon) for key in needed} <= settings
        assert {key.explainer for key in needed} <= {"", *audit.explainers.methods}
    for panel in (panel for shown in known.figures.values() for panel in shown):
        (dataset, *_) = next(iter(panel.curves.values()))
        audit = _audit(panel.config or known.configs[dataset])
        everywhere = {(one.dataset, one.architecture, one.mechanism, one.epsilon) for one in expand.settings(audit)}
        assert {place[:4] for place in panel.curves.values()} <= everywhere, panel.title
        assert {place[4] for place in panel.curves.values()} <= {*audit.explainers.methods}


def test_table_6_follows_from_table_1_but_for_the_papers_own_errors() -> None:
    """Every t is that of the printed means and deviations within their rounding; docs/results/papers.md names the others."""
    first = {
        cell.key: (cell.mean, cell.sd)
        for cell in printed_cells("huang2024")
        if cell.table == "1" and cell.mean is not None and cell.sd is not None
    }
    differing = set()
    for row in printed_rows("huang2024_tests"):
        key = Key(row["dataset"], row["architecture"], "none", "inf", row["explainer"], "var-lrt", row["metric"])
        (mean, sd), (other, other_sd) = first[key], first[replace(key, attack="threshold")]
        gap, spread = mean - other, math.hypot(sd, other_sd) / math.sqrt(33)
        least = (gap - 1e-4) / (spread + 1e-4 / math.sqrt(33))
        most = (gap + 1e-4) / (spread - 1e-4 / math.sqrt(33))
        assert float(row["p"]) == pytest.approx(2 * student.sf(float(row["t"]), 64), rel=0.01)
        if not least <= float(row["t"]) <= most:
            differing.add((key.dataset, key.explainer, key.metric))
    food = {one for one in differing if one[0] == "food101"}
    assert len(food) == 9
    assert differing - food == {("svhn", "ixg", "tpr_at_fpr_0.01"), ("cifar10", "ig", "auc")}


@cache
def _audit(path: str) -> Audit:
    return load_audit(ROOT / path)


def test_similarity_is_read_of_what_audits_wrote(audit: Path, tmp_path: Path) -> None:
    root = tmp_path / "results"
    copytree(audit, root)
    group, wanted = root / "cifar10" / VIT, {"explainer": "gradcam", "quantity": "logit", "measure": "ssim"}
    rows = [
        {
            "mechanism": "none",
            "epsilon": "inf",
            **wanted,
            "against": "reference",
            "shadow": k,
            "record": r,
            "value": k / 10,
        }
        for k in range(3)
        for r in range(2)
    ]
    table = pa.Table.from_pylist([{**row, "same_class": True} for row in rows], schema=COLUMNS)
    write_table(group / "explanation_metrics.parquet", table, "explanation_metrics", 6)
    measured, cell = Measured([finished(root)]), _cell(Key("cifar10", VIT, "none", "inf", "gradcam", "", "ssim"))
    assert measured.results_of(cell).alike.tolist() == pytest.approx([0.0, 0.1, 0.2])
    assert not len(measured.results_of(replace(cell, key=replace(cell.key, explainer="ixg"))).alike)
    assert not len(Measured([finished(audit)]).results_of(cell).alike)


def test_a_cell_of_a_stated_noise_is_that_of_its_mechanism(audit: Path, tmp_path: Path) -> None:
    """The results' ε is computed from the noise, and is none of the paper's."""
    root = copytree(audit, tmp_path / "results")
    provenance = json.loads((root / "provenance.json").read_text())
    stated = {"dataset": "fashion_mnist", "architecture": "llm", "mechanism": "sigma-4.1", "private": True}
    provenance["settings"][0] |= stated | {"epsilon": "0.348", "budget": "z4.1"}
    write_json(root / "provenance.json", provenance)
    cell = next(cell for cell in printed_cells("harder2020") if cell.key.epsilon == "z4.1" and cell.mean == 0.807)
    assert len(Measured([finished(root)]).results_of(cell).alike) == MODELS
