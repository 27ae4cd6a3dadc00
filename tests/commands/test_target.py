"""A finished model is attacked with shadow models of its own recipe as references, and they are not attacked with it."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from sklearn.ensemble import RandomForestClassifier

from mia_audit.attacks.engine.likelihood import likelihood_ratio
from mia_audit.pools.section import Membership
from mia_audit.pools.store import draw_membership, write_membership
from mia_audit.report.results import Results
from mia_audit.report.spec import AuditedSetting, ReportedAudit
from mia_audit.storage import table_metadata

from ..builders import run

MODELS = 5
FOREST = {"model": "sklearn.ensemble:RandomForestClassifier", "parameters": {"n_estimators": 10}}
ARCHITECTURE, EVALUATION = {"architecture": "architecture.json"}, {"evaluation": {"fprs": [0.1]}}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A pool of 150 rows, and a forest that was trained on some of them elsewhere."""
    skops = pytest.importorskip("skops.io")
    monkeypatch.chdir(tmp_path)
    random = np.random.default_rng(0)
    rows = random.normal(size=(150, 5)).round(3)
    labels = (rows[:, 0] + random.normal(size=150) > 0).astype(int)
    trained = random.random(150) < 0.5
    table = pl.DataFrame(rows, schema=list("vwxyz")).with_columns(
        pl.Series("label", labels), pl.Series("trained", trained), pl.Series("id", np.arange(150) + 1000)
    )
    table.write_csv("table.csv")
    dataset = {"source": "table", "path": "table.csv", "columns": {"trained": "drop", "id": "drop"}}
    assert run("pool", spec={"seed": 0, "name": "toy", "dataset": dataset}, out="pool") == 0
    forest = RandomForestClassifier(10, random_state=9).fit(rows[trained].astype(np.float32), labels[trained])
    skops.dump(forest, "release.skops")
    assert (
        run("architecture", pool="pool", spec={"name": "forest", "architecture": FOREST}, out="architecture.json") == 0
    )
    return tmp_path


def train_references(member: np.ndarray, **records: str) -> None:
    """Train five forests on parts of the pool, and compute their signals."""
    write_membership(Path("pool", "membership.parquet"), member, {})
    training = {
        "seed": 0, "dataset": "toy", "architecture": "forest", "mechanism_name": "none", "mechanism": {"mechanism": "none"},
        "epsilon": "inf", "training": {"epochs": 1},
    }  # fmt: skip
    assert run("train", pool="pool", **ARCHITECTURE, spec=training, shadows="0-4", out="models") == 0
    signals("models", "0-4", "shadows")
    merge("shadows", 0, MODELS, "pool/membership.parquet", "references.parquet", **records)


def signals(models: str, shadows: str, out: str) -> None:
    options = {"explainers": [], "explain": ["logit"], "explained_class": "predicted"}
    spec = {"seed": 0, "dataset": "toy", "families": {"gradient": options}}
    assert run("signals", pool="pool", **ARCHITECTURE, models=models, spec=spec, shadows=shadows, out=out) == 0


def merge(signals: str, first: int, models: int, membership: str, out: str, **options: str) -> None:
    spec = {"families": ["gradient"], "first": first, "models": models}
    assert run("merge", signals=signals, membership=membership, spec=spec, out=out, **options) == 0


def take_over(**changes: Any) -> int:
    target = {"architecture": "forest", "model": "release.skops", "members": "column:trained"} | changes
    values = {"name": "release", "target": target, "number": MODELS, "data": {"source": "table", "path": "table.csv"}}
    return run("target", pool="pool", **ARCHITECTURE, spec=values, out="model")


def attack_it(**records: str) -> tuple[Path, Path]:
    """Take the model over as trained on these records; return the files of its scores and metrics."""
    signals("model", f"{MODELS}-{MODELS}", "own")
    references = {"references": "references.parquet"} | records
    merge("own", MODELS, 1, "model/membership.parquet", "signals.parquet", **references)
    out = Path("toy/release/none-epsinf").absolute()
    out.mkdir(parents=True)
    scores, metrics = out / "scores.parquet", out / "metrics.parquet"
    spec = {"seed": 0, "dataset": "toy", "attacks": {"methods": ["threshold", "loss-lira"], "likelihoods": ["pooled"]}}
    assert run("attack", signals="signals.parquet", spec=spec, out=scores) == 0
    assert run("evaluate", scores=scores, signals="signals.parquet", spec=EVALUATION, out=metrics) == 0
    return scores, metrics


def test_a_finished_model_alone_is_scored(folder: Path) -> None:
    train_references(draw_membership(Membership(models=MODELS), 150, "toy", 0))
    assert take_over() == 0
    scores, metrics = attack_it()
    both = pl.read_parquet("signals.parquet")
    assert both["shadow"].unique().to_list() == [*range(MODELS + 1)]
    assert both.head(150 * MODELS).equals(pl.read_parquet("references.parquet").select(both.columns))
    table = pl.read_parquet(scores).filter(~pl.col("null_control"), pl.col("attack") == "loss-lira")
    assert table["target"].unique().to_list() == [MODELS] and len(table) == 150
    values, member = (both[name].to_numpy().reshape(MODELS + 1, 150).T for name in ("confidence", "member"))
    by_hand = likelihood_ratio(values.astype(np.float64), member, "pooled")[:, MODELS].astype(np.float32)
    np.testing.assert_array_equal(table["score"].to_numpy(), by_hand)
    trained = pl.read_csv("table.csv")["trained"].to_numpy()
    np.testing.assert_array_equal(table["member"].to_numpy(), trained)
    row = pl.read_parquet(metrics).filter(~pl.col("null_control"), pl.col("attack") == "loss-lira").row(0, named=True)
    assert row["auc_low"] < row["auc"] < row["auc_high"] and row["auc"] > 0.6
    assert list(table_metadata(metrics, "metrics")["given_sha256"]) == ["release.skops"]
    say_it(folder)


def say_it(folder: Path) -> None:
    """The report calls it the finished model, with an interval over its records, and ranks its members."""
    from mia_audit.report.opened import find
    from mia_audit.report.page import render
    from mia_audit.report.provenance import provenance

    setting = AuditedSetting("toy", "release", "none", "inf", trained=False, finished="release.skops")
    results = Results(folder, ReportedAudit(audit="release", settings=(setting,), exposed=2))
    findings = find(results)
    page = render(results, findings, provenance(results, findings.settings))
    assert "interval is that of this one model" in page
    assert "records of release whose membership" in page and not re.search(r"\bnan\b", page.split("<script")[0])
    assert "shadow models, whose accuracy" in page


def test_what_is_no_model_is_named(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("bad.skops").write_bytes(b"not a zip")
    for changes, message in (
        ({"model": "gone.skops"}, "targets.release.model: gone.skops: no such file or folder"),
        ({"model": "table.csv"}, "targets.release.model: table.csv: not a .skops file"),
        ({"model": "bad.skops"}, "targets.release.model: bad.skops/estimator.skops: damaged, or not an estimator"),
        ({"members": "gone.txt"}, "targets.release.members: gone.txt: no such file"),
    ):
        assert take_over(**changes) == 2
        assert message in capsys.readouterr().err and not Path("model").exists()


def test_a_model_of_another_recipe_is_refused_before_training(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    skops = pytest.importorskip("skops.io")
    skops.dump(RandomForestClassifier(30).fit(np.zeros((4, 5)), [0, 1, 0, 1]), "release.skops")
    assert take_over() == 2
    message = "its n_estimators is 30, and 10 in shadow models"
    assert message in capsys.readouterr().err
    target = {"architecture": "forest", "model": "release.skops", "members": "column:trained"}
    planned, spec = {"config": {"targets": {"release": target}}}, {"name": "forest", "architecture": FOREST}
    assert run("architecture", pool="pool", spec=spec, run=planned, out="again.json") == 2
    assert message in capsys.readouterr().err


def test_a_model_that_answers_unlike_its_references_is_named(folder: Path) -> None:
    skops = pytest.importorskip("skops.io")
    train_references(draw_membership(Membership(models=MODELS), 150, "toy", 0))
    skops.dump(RandomForestClassifier(10, random_state=0).fit(np.zeros((4, 5)), [0, 1, 0, 1]), "release.skops")
    assert take_over() == 0
    signals("model", f"{MODELS}-{MODELS}", "own")
    merge("own", MODELS, 1, "model/membership.parquet", "signals.parquet", references="references.parquet")
    unlike = table_metadata(Path("signals.parquet"), "signals")["unlike_references"]
    own, low, high = unlike["train_accuracy"]
    assert own < 0.7 < low <= high and "train_loss" in unlike
