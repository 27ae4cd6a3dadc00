"""The subcommand `report`, from files to files."""

import json

import pyarrow as pa
import pytest

from mia_audit.config.specs import ReportSpec
from mia_audit.evaluation.metrics import SHARES, called_columns
from mia_audit.report.figures.catalogue import figure_files
from mia_audit.report.tables.catalogue import table_files
from mia_audit.storage import write_table

from ..builders import run

SETTING = {
    "dataset": "d",
    "architecture": "m",
    "mechanism": "none",
    "epsilon": "inf",
    "private": False,
    "trained": False,
}
SPEC = {"audit": "a", "settings": [SETTING], "likelihood": "none", "exposed": 2}


@pytest.fixture
def results(tmp_path):
    """One threshold attack on four targets and ten records, without training."""
    folder = tmp_path / "results" / "d" / "m" / "none-epsinf"
    keys = {"attack": "threshold", "signal": "loss", "likelihood": "none", "null_control": False}
    metrics = [
        keys
        | {"target": k, "members": 5, "non_members": 5, "unscored": 0, "auc": 0.8 + k / 100, "balanced_accuracy": 0.7}
        for k in range(4)
    ]
    metrics = [row | {"tpr_at_fpr_0.5": 0.6, "tpr_at_fpr_0.5_low": 0.1, "tpr_at_fpr_0.5_high": 0.9} for row in metrics]
    called = {name: int(share * 5) for share in SHARES for name in called_columns(share)}
    metrics = [row | called for row in metrics]
    write_table(folder / "metrics.parquet", pa.Table.from_pylist(metrics), "metrics", 4)
    scores = [
        keys | {"target": k, "record": i, "member": i % 2 == k % 2, "score": float((i * 7 + k) % 10)}
        for k in range(4)
        for i in range(10)
    ]
    write_table(folder / "scores.parquet", pa.Table.from_pylist(scores), "scores", 40)
    return tmp_path / "results"


def test_every_output_is_written(results):
    spec = ReportSpec(**SPEC)
    assert run("report", results=results, spec=SPEC) == 0
    assert {path.name for path in (results / "tables").iterdir()} == set(table_files(spec))
    assert {path.name for path in (results / "figures").iterdir()} == set(figure_files(spec))
    assert (results / "report.html").read_text().startswith("<!DOCTYPE html>")
    assert json.loads((results / "provenance.json").read_text())["audit"] == "a"


def test_mistakes_are_one_line_and_nothing_is_written(results, tmp_path, capsys):
    assert run("report", results=results, spec={"audit": "a"}) == 2
    assert run("report", results=tmp_path / "nowhere", spec=SPEC) == 2
    errors = capsys.readouterr().err.splitlines()
    assert len(errors) == 2 and "'settings'" in errors[0] and "metrics.parquet: no such file" in errors[1]
    assert [path.name for path in results.iterdir()] == ["d"] and not (tmp_path / "nowhere").exists()


def test_damaged_scores_are_named(results, capsys):
    path = results / "d" / "m" / "none-epsinf" / "scores.parquet"
    path.write_bytes(path.read_bytes()[:-20])
    assert run("report", results=results, spec=SPEC) == 2
    assert "scores.parquet: truncated or" in capsys.readouterr().err
    assert not (results / "report.html").exists() and not (results / "provenance.json").exists()
