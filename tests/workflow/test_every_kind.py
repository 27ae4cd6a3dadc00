"""Models of the libraries that people use, each from a CSV file to the report."""

import re
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from mia_audit.config.load import check_audit
from mia_audit.storage import read_frame

from .stages import run_stages

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "docs" / "examples"
LIBRARIES = ("accelerate", "lightgbm", "lightning", "transformers", "xgboost")
RECORDS, MODELS = 90, 4

CONFIG: dict[str, Any] = {
    "audit": "tiny",
    "datasets": {"people": {"source": "table", "path": "people.csv", "label": "ill"}},
    "membership": {"models": MODELS},
    "architectures": {
        "forest": {"model": "sklearn.ensemble:RandomForestClassifier", "parameters": {"n_estimators": 20}},
        "boosted": {"model": "sklearn.ensemble:HistGradientBoostingClassifier", "parameters": {"min_samples_leaf": 2}},
        "lightgbm": {
            "model": "lightgbm:LGBMClassifier",
            "parameters": {"n_estimators": 20, "min_child_samples": 2, "verbose": -1},
        },
        "xgboost": {"model": "xgboost:XGBClassifier", "parameters": {"n_estimators": 20}},
        "pipeline": {"model": "pipeline.py:imputed", "parameters": {"categories": "1", "trees": 20}},
        "huggingface": {"model": "huggingface_trainer.py", "training": {"learning_rate": 0.01}},
        "lightning": {"model": "lightning_module.py", "parameters": {"width": 64, "learning_rate": 0.05}},
        "opacus": {"model": "opacus_engine.py", "mechanisms": {"none": {}, "claimed": {}}},
    },
    "training": {"epochs": 10, "batch": 16},
    "mechanisms": {"none": {}, "claimed": {"mechanism": "own", "epsilon": [8], "delta": 1e-3}},
    "explainers": {"methods": ["ixg"]},
    "explanation_metrics": {"records": 0},
    "attacks": {"methods": ["threshold", "loss-lira"], "likelihoods": ["pooled"]},
    "evaluation": {"fprs": [0.1]},
    "report": {"exposed": 2},
    "compute": {"shadows_per_job": MODELS, "device": "cpu", "micro_batch": 256},
}
for _architecture in CONFIG["architectures"].values():
    _architecture.setdefault("mechanisms", {"none": {}})


def write_people(path: Path) -> None:
    """Write a table whose first column has missing values, -1, whose second holds categories, and whose classes are partly wrong."""
    random = np.random.default_rng(0)
    age, region = random.random(RECORDS).round(2), random.integers(0, 4, RECORDS)
    pressure, weight = random.normal(0, 1, (2, RECORDS)).round(3)
    ill = (pressure + 0.8 * (region == 2) + random.normal(0, 0.7, RECORDS) > 0).astype(int)
    age = np.where(random.random(RECORDS) < 0.1, -1, age)
    columns = {"age": age, "region": region, "pressure": pressure, "weight": weight, "ill": ill}
    pl.DataFrame(columns).write_csv(path)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of the libraries
@pytest.mark.skipif(any(find_spec(name) is None for name in LIBRARIES), reason=f"needs {', '.join(LIBRARIES)}")
def test_models_of_every_library_go_from_a_table_to_the_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_people(tmp_path / "people.csv")
    for name in ("pipeline.py", "huggingface_trainer.py", "lightning_module.py"):
        (tmp_path / name).write_text((EXAMPLES / name).read_text())
    page = (ROOT / "docs" / "how-to" / "models.md").read_text(encoding="utf-8")
    (tmp_path / "opacus_engine.py").write_text(re.findall(r"```python\n(.*?)```", page, re.DOTALL)[1])
    results = tmp_path / "results" / "tiny"
    run_stages(check_audit(CONFIG, "tiny.yaml"), results)
    settings = pl.read_csv(results / "tables" / "settings.csv")
    found = {(row["architecture"], row["mechanism"]): row for row in settings.iter_rows(named=True)}
    assert set(found) == {(name, "none") for name in CONFIG["architectures"]} | {("opacus", "claimed")}
    for (architecture, mechanism), row in found.items():
        assert row["models"] == MODELS and (mechanism == "claimed" or row["train_accuracy_mean"] > 0.6), architecture
        setting = results / "people" / architecture / f"{mechanism}-eps{str(row['epsilon']).removesuffix('.0')}"
        signals = read_frame(setting / "signals.parquet", "signals")
        assert len(signals) == RECORDS * MODELS and signals["confidence"].is_finite().all(), architecture
        explained = architecture in ("huggingface", "lightning", "opacus")
        assert ("ixg_l1" in signals.columns) == explained, architecture
    assert all(found[name, "none"]["output_auc_mean"] > 0.65 for name in ("forest", "boosted", "lightgbm", "xgboost"))
    assert found["opacus", "claimed"]["accountant"] == "claimed"
    assert "at a claimed ε = 8" in (results / "report.html").read_text().replace("\u00a0", " ")
