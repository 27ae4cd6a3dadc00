"""A learner that the stages have never seen, and that knows no torch, goes from training to membership scores."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from mia_audit.cli import main
from mia_audit.explain.catalogue import Explainer, explainers
from mia_audit.signals.compute import SignalsTask, model_signals
from mia_audit.storage import read_table, write_json
from mia_audit.training.task import Records

from ..builders import contents, halves, one_line, words, write_pool

COUNT, FEATURES, MODELS, BLOCKS = 30, 20, 6, ("0-2", "3-5")
EXPLAINED = {"explain": ["logit"], "explained_class": "predicted"}
TRAINING = {"epochs": 60, "batch": 5, "learning_rate": 0.5}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A table with random labels, which only memory can predict, and the architecture of a learner in extra/."""
    random = np.random.default_rng(0)
    records = random.normal(size=(COUNT, FEATURES)).astype(np.float32)
    labels = random.integers(0, 3, COUNT)
    write_pool(tmp_path / "pool", records, labels, halves(random, COUNT, MODELS))
    write_json(tmp_path / "architecture.json", {"name": "net", "learner": "logistic", "classes": 3})
    return tmp_path


def train(root: Path, block: str, out: Path) -> list[str]:
    setting = {"dataset": "toy", "architecture": "net", "mechanism_name": "none", "epsilon": "inf"}
    spec = {"seed": 0, "training": TRAINING, "mechanism": {"mechanism": "none"}, **setting}
    places = {"pool": root / "pool", "architecture": root / "architecture.json"}
    return words("train", root, spec=spec, **places, shadows=block, out=out)


def signals(root: Path, family: str, explained: list[str]) -> list[str]:
    spec = {"seed": 0, "dataset": "toy", "families": {family: {"explainers": explained, **EXPLAINED}}}
    places = {"pool": root / "pool", "architecture": root / "architecture.json", "models": root / "models"}
    compute = {"compute": {"micro_batch": 7}}
    return words("signals", root, spec=spec, **places, run=compute, shadows=f"0-{MODELS - 1}", out=root)


def run(root: Path, *lines: list[str]) -> "subprocess.CompletedProcess[str]":
    """Run command lines in a process of their own, without torch."""
    (root / "lines.json").write_text(json.dumps(lines))
    script = Path(__file__).with_name("without_torch.py")
    return subprocess.run(
        [sys.executable, str(script), str(root / "lines.json")], check=False, capture_output=True, text=True
    )


def test_it_is_trained_asked_and_attacked_without_torch(root: Path) -> None:
    attacks = {
        "seed": 0,
        "dataset": "toy",
        "attacks": {"methods": ["threshold", "loss-lira"], "likelihoods": ["pooled"]},
    }
    files = {name: root / f"{name}.parquet" for name in ("signals", "scores")}
    merged = {"spec": {"families": ["gradient"], "models": MODELS}, "membership": root / "pool" / "membership.parquet"}
    done = run(
        root,
        *(train(root, block, root / "models") for block in BLOCKS),
        train(root, BLOCKS[1], root / "again"),
        signals(root, "gradient", ["ixg", "saliency"]),
        words("merge", root, signals=root, **merged, out=files["signals"]),
        words("attack", root, spec=attacks, signals=files["signals"], out=files["scores"]),
    )
    assert done.returncode == 0, done.stderr
    again, models = contents(root / "again"), contents(root / "models")
    names = [[f"shadow-{shadow}/coefficients.npy", f"shadow-{shadow}.parquet"] for shadow in range(3, 6)]
    assert set(again) == {name for pair in names for name in pair}
    assert again.items() <= models.items()
    training = [read_table(root / "again" / table, "training").to_pylist()[0] for _, table in names]
    assert [row["shadow"] for row in training] == [3, 4, 5]
    assert all(row["records"] == COUNT // 2 and row["epsilon"] == float("inf") for row in training)
    assert all(row["train_accuracy"] == 1 > row["test_accuracy"] and row["train_loss"] < 0.5 for row in training)
    columns = ["shadow", "record", "label", "predicted", "loss", "confidence"]
    assert pl.read_parquet_schema(root / "gradient" / "shadow-0.parquet").names() == columns, "it has no attributions"
    scores = pl.read_parquet(root / "scores.parquet").filter(attack="loss-lira").drop_nans("score")
    inside, outside = (scores.filter(member=member)["score"].mean() for member in (True, False))
    assert isinstance(inside, float) and isinstance(outside, float) and inside > outside + 1


def test_what_it_cannot_do_and_lost_files_are_one_line(root: Path) -> None:
    lines = [train(root, block, root / "models") for block in BLOCKS]
    done = run(root, *lines, signals(root, "ig", ["ig"]))
    assert done.returncode == 2
    assert "'ig' explains only torch modules" in done.stderr.splitlines()[-1]
    (root / "models" / "shadow-4" / "coefficients.npy").unlink()
    done = run(root, signals(root, "gradient", ["ixg"]))
    assert done.returncode == 2 and not (root / "gradient" / "shadow-4.parquet").exists()
    assert "shadow-4/coefficients.npy: no such file" in done.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    ("architecture", "message"),
    [
        ({"learner": "logistik"}, "unknown learner 'logistik'"),
        ({"model": "mlp"}, "the key 'learner' is missing"),
        ({"learner": "torch-module", "model": "mlp"}, "the key 'arguments' is missing"),
        ([], "damaged (not an object with keys)"),
    ],
)
def test_an_architecture_that_names_no_learner_is_one_line(
    root: Path, architecture: object, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    write_json(root / "architecture.json", architecture)
    assert main(train(root, "0-0", root / "models")) == 2
    assert one_line(capsys).startswith(f"mia-audit: {root / 'architecture.json'}: {message}")


def test_a_model_with_attributions_of_its_own_has_signals_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).with_name("extra")))
    from logistic import ExplainedLogistic  # type: ignore[import-not-found, import-untyped, unused-ignore]

    own = Explainer(lambda batch, options: {}, needs_torch_module=False)
    monkeypatch.setitem(explainers._members, "products", own)
    random = np.random.default_rng(1)
    values = random.normal(size=(11, 4)).astype(np.float32)
    records = Records(values, random.integers(0, 3, 11), {"classes": list("abc")}, np.arange(11))
    model = ExplainedLogistic(random.normal(size=(5, 3)))
    options = {"explainers": ["ixg", "products"], **EXPLAINED}
    found = model_signals(model, records, SignalsTask("gradient", options, 0, batch=3))
    summaries = [f"products_{name}" for name in ("variance", "l1", "l2", "linf")]
    assert list(found) == ["label", "predicted", "loss", "confidence", *summaries], "ixg needs a torch module"
    products = values * model.coefficients[:-1, model.logits(records).argmax(axis=1)].T
    np.testing.assert_allclose(found["products_l1"], np.abs(products).sum(axis=1), rtol=1e-6)
    np.testing.assert_allclose(found["products_variance"], products.var(axis=1), rtol=1e-6)
    assert all(column.dtype == np.float32 for name, column in found.items() if name not in ("label", "predicted"))
