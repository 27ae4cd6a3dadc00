"""The last three subcommands, from files to files."""

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


def call(command, results, out, spec=SPEC):
    return run(command, results=results, spec=spec, out=out)


def test_every_output_is_written(results, tmp_path):
    spec = ReportSpec(**SPEC)
    assert call("tables", results, tmp_path / "tables") == 0
    assert call("figures", results, tmp_path / "figures") == 0
    assert call("report", results, tmp_path / "report.html") == 0
    assert {path.name for path in (tmp_path / "tables").iterdir()} == set(table_files(spec))
    assert {path.name for path in (tmp_path / "figures").iterdir()} == set(figure_files(spec))
    assert (tmp_path / "report.html").read_text().startswith("<!DOCTYPE html>")
    assert json.loads((tmp_path / "provenance.json").read_text())["audit"] == "a"


@pytest.mark.parametrize("command", ["tables", "figures", "report"])
def test_mistakes_are_one_line_and_nothing_is_written(command, results, tmp_path, capsys):
    out = tmp_path / "out" / "report.html"
    assert call(command, results, out, {"audit": "a"}) == 2
    assert call(command, tmp_path / "nowhere", out) == 2
    errors = capsys.readouterr().err.splitlines()
    assert len(errors) == 2 and "'settings'" in errors[0] and "metrics.parquet: no such file" in errors[1]
    assert not out.parent.exists()


def test_damaged_scores_are_named(results, tmp_path, capsys):
    path = results / "d" / "m" / "none-epsinf" / "scores.parquet"
    path.write_bytes(path.read_bytes()[:-20])
    assert call("report", results, tmp_path / "report.html") == 2
    assert "scores.parquet: truncated or" in capsys.readouterr().err
    assert not (tmp_path / "report.html").exists() and not (tmp_path / "provenance.json").exists()
