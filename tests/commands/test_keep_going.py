"""Models whose training diverges: named, or left out of everything that follows, which says so."""

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from mia_audit.config import expand, specs
from mia_audit.config.load import check_audit
from mia_audit.config.specs import ReportSpec
from mia_audit.evaluation.files import read_scores
from mia_audit.pools.store import read_membership
from mia_audit.storage import read_table, write_table
from mia_audit.storage.tables import diverged_models

from ..builders import halves, run, write_pool

RECORDS, MODELS, LOST = 30, 6, 1
CONFIG: dict[str, Any] = {
    "audit": "hot",
    "datasets": {"toy": {"source": "breast_cancer"}},
    "membership": {"models": MODELS},
    "architectures": {"net": {"model": "mlp", "parameters": {"width": 4}}},
    "training": {"epochs": 4, "batch": 5, "optimizer": "sgd", "learning_rate": 0.1},
    "mechanisms": {"none": {}, "hot": {"mechanism": "none", "training": {"learning_rate": 1e30}}},
    "explainers": {"methods": ["ixg"]},
    "attacks": {"methods": ["threshold", "loss-lira", "l1-lrt"], "likelihoods": ["pooled"]},
    "evaluation": {"fprs": [0.1]},
    "report": {"figures": {"formats": ["svg"]}},
    "compute": {"shadows_per_job": 3},
}
AUDIT = check_audit(CONFIG, "hot.yaml")
SETTINGS = {setting.mechanism: setting for setting in expand.settings(AUDIT)}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pool whose first record is a member of one model alone."""
    root = tmp_path_factory.mktemp("hot")
    random = np.random.default_rng(0)
    records = random.normal(size=(RECORDS, 5)).astype(np.float32)
    member = halves(random, RECORDS, MODELS)
    member[0] = np.arange(MODELS) == LOST
    pool = write_pool(root / "pools" / "toy", records, np.arange(RECORDS) % 2, member, classes=["a", "b"])
    spec = specs.ArchitectureSpec.from_audit(AUDIT, "net")
    assert run("architecture", pool=pool, spec=spec, out=root / "toy" / "net" / "architecture.json") == 0
    return root


def set_first_record(root: Path, value: float) -> None:
    """Give every feature of the first record a value; an enormous one makes the training of the one model diverge."""
    path = root / "pools" / "toy" / "records.npy"
    data = np.load(path)
    data[0] = value
    np.save(path, data)


def training_spec(setting: expand.Setting) -> specs.TrainingSpec:
    """Return a setting's specification, with the membership of the pool's table."""
    spec = specs.TrainingSpec.from_audit(AUDIT, "toy", "net", setting.mechanism, setting.epsilon)
    return spec.model_copy(update={"draw": None})


def train(root: Path, mechanism: str, block: str, keep_going: bool) -> int:
    setting = SETTINGS[mechanism]
    places = {"pool": root / "pools" / "toy", "architecture": root / "toy" / "net" / "architecture.json"}
    compute = {"compute": {"keep_going": keep_going}}
    out = root / setting.path / "models"
    return run("train", **places, spec=training_spec(setting), shadows=block, run=compute, out=out)


@pytest.fixture(scope="module")
def audited(root: Path) -> Path:
    """Everything from models to the report, going on without the models that diverge."""
    group, blocks = root / "toy" / "net", expand.blocks(AUDIT)
    places = {"pool": root / "pools" / "toy", "architecture": group / "architecture.json"}
    for value, trained in ((1e30, [f"{LOST}-{LOST}"]), (1.0, blocks)):  # the outputs of the other models are finite
        set_first_record(root, value)
        for mechanism in SETTINGS:
            for block in trained:
                assert train(root, mechanism, block, keep_going=True) == 0
    for setting in SETTINGS.values():
        folder = root / setting.path
        files = {name: folder / f"{name}.parquet" for name in ("training", "signals", "scores", "metrics")}
        models, signals = {"models": folder / "models"}, specs.SignalsSpec.from_audit(AUDIT, "toy", "net")
        for block in blocks:
            assert run("signals", **places, **models, spec=signals, shadows=block, out=folder / "signals") == 0
        spec = specs.MergeSpec.from_audit(AUDIT, "net", setting.mechanism)
        joined = models | {"training": files["training"], "membership": places["pool"] / "membership.parquet"}
        assert run("merge", spec=spec, signals=folder / "signals", **joined, out=files["signals"]) == 0
        spec = specs.AttackSpec.from_audit(AUDIT, "toy")
        assert run("attack", signals=files["signals"], spec=spec, out=files["scores"]) == 0
        spec = specs.EvaluationSpec.from_audit(AUDIT)
        assert run("evaluate", scores=files["scores"], spec=spec, out=files["metrics"]) == 0
    names = {"maps": "explanations", "curves": "curves", "out": "explanation_metrics"}
    found = {option: group / f"{name}.parquet" for option, name in names.items()}
    assert (
        run("explanation-metrics", **places, spec=specs.ExplanationMetricsSpec.from_audit(AUDIT, "toy", "net"), **found)
        == 0
    )
    assert run("report", results=root, spec=ReportSpec.from_audit(AUDIT)) == 0
    return root


def test_by_default_divergence_stops_the_block_and_names_the_model_and_the_epoch(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    set_first_record(root, 1e30)
    assert train(root, "none", "0-2", keep_going=False) == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith("mia-audit: shadow 1 of toy/net/none-eps") and "diverged in epoch" in error
    assert "its mean loss is " in error
    assert error.endswith("true to leave such models out")
    assert {path.name for path in (root / SETTINGS["none"].path / "models").iterdir()} == {
        "shadow-0",
        "shadow-0.parquet",
    }


def test_what_follows_goes_without_the_model_and_keeps_the_numbers_of_the_others(audited: Path) -> None:
    folder = audited / SETTINGS["none"].path
    left = [shadow for shadow in range(MODELS) if shadow != LOST]
    for name, kind in (("training", "training"), ("signals", "signals"), ("scores", "scores"), ("metrics", "metrics")):
        table = read_table(folder / f"{name}.parquet", kind)
        column = "target" if kind in ("scores", "metrics") else "shadow"
        assert sorted(set(table[column].to_pylist())) == left
        assert list(diverged_models(folder / f"{name}.parquet", kind)) == [LOST]
    assert not (folder / "models" / f"shadow-{LOST}").exists()


@pytest.mark.slow
def test_scores_are_those_of_an_audit_that_never_had_the_model(audited: Path, tmp_path: Path) -> None:
    folder = audited / SETTINGS["none"].path
    signals = pl.read_parquet(folder / "signals.parquet")
    fewer = signals.with_columns(shadow=(pl.col("shadow").rank("dense") - 1).cast(pl.Int32))
    write_table(tmp_path / "signals.parquet", fewer.to_arrow(), "signals", len(fewer))
    files = {"signals": tmp_path / "signals.parquet", "out": tmp_path / "scores.parquet"}
    assert run("attack", spec=specs.AttackSpec.from_audit(AUDIT, "toy"), **files) == 0
    for mine, theirs in zip(
        read_scores(folder / "scores.parquet"), read_scores(tmp_path / "scores.parquet"), strict=True
    ):
        assert mine.key == theirs.key
        assert np.array_equal(mine.score, theirs.score, equal_nan=True)
    member = read_membership(audited / "pools" / "toy" / "membership.parquet", [0, *range(2, MODELS)])
    assert np.array_equal(mine.member, member) or mine.key[3]


def test_tables_and_report_say_what_is_missing(audited: Path) -> None:
    settings = pl.read_parquet(audited / "tables" / "settings.parquet").rows_by_key("mechanism", named=True)
    kept, lost = settings["none"][0], settings["hot"][0]
    assert kept["models"] == MODELS - 1
    assert kept["left_out"].startswith("1 model (1) diverged in epoch ")
    assert lost["models"] is None
    assert lost["left_out"].startswith("6 models (0, 1, 2, 3, 4 and 5) diverged")
    page = (audited / "report.html").read_text().replace("\u00a0", " ")
    assert f"Left out of toy, net, none at ε = inf: {kept['left_out']}." in page
    assert "is missing from the results below" in page
    assert "Left out of toy, net, hot at" in (audited / "tables" / "settings.tex").read_text()
    assert (audited / "figures" / "roc_toy_net_hot-epsinf.svg").stat().st_size > 0


def test_an_audit_without_any_setting_left_is_an_error(audited: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec = ReportSpec.from_audit(AUDIT)
    hot = tuple(setting for setting in spec.settings if setting.mechanism == "hot")
    spec = spec.model_copy(update={"settings": hot})
    assert run("report", results=audited, spec=spec) == 2
    assert "no setting has enough models left" in capsys.readouterr().err
