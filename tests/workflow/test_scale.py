"""A large audit, planned and dry-run: 3 data sets × 3 architectures × 3 ε × 33 models."""

import json

import pytest
import yaml

from mia_audit.cli import main

SETTINGS, MODELS = 3 * 3 * 3, 33
LARGE = {
    "audit": "large",
    "datasets": {f"pool{i}": {"source": "breast_cancer", "records": 400} for i in range(3)},
    "membership": {"models": MODELS},
    "architectures": {"net": {"model": "mlp", "sweep": {"width": [8, 16, 24]}}},
    "mechanisms": {"none": {}, "dp-sgd": {"epsilon": [1, 8]}},
    "training": {"epochs": 2},
    "explainers": {"methods": ["ixg"]},
    "explanation_metrics": {"records": 0},
}


@pytest.fixture
def large(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "large.yaml"
    path.write_text(yaml.safe_dump(LARGE), encoding="utf-8")
    return path


@pytest.mark.slow
def test_a_large_audit_is_planned_and_every_merge_fans_in_once(large, capsys):
    assert main(["plan", str(large), "--records-per-second", "1000", "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert plan["models"] == SETTINGS * MODELS
    blocks = 4  # of compute.shadows_per_job = 9
    expected = {
        "pool": 3,
        "membership": 3,
        "architecture": 9,
        "train": SETTINGS * blocks,
        "signals": SETTINGS * blocks,
    }
    expected |= dict.fromkeys(("merge", "attack", "evaluate"), SETTINGS)
    expected |= dict.fromkeys(("report", "manifest"), 1)
    assert plan["jobs"] == expected
