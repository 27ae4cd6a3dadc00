"""The Python interface: its names stay, it is light to import, and it gives what the command line gives."""

import inspect
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import mia_audit as mia
from mia_audit.errors import UserError

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "reference" / "commands.md").read_text(encoding="utf-8")

NAMES = {
    "SNAKEFILE": "",
    "Audit": "epsilon exposure figure metrics report scores summary",
    "UserError": "",
    "audit": "membership signals person attacks likelihoods leave_out fprs confidence delta design seed name exposed threads",
    "observe_canaries": "folder model loss inputs every_step",
    "run": "config cores options",
    "signals": "model records labels explainers seed batch options",
}
"""The interface, as docs/reference/commands.md and CHANGELOG.md list it too."""


def names_of(name: str) -> str:
    from mia_audit import api

    if name in ("SNAKEFILE", "UserError"):
        return ""
    value = getattr(api, name)
    if inspect.isclass(value):
        return " ".join(sorted(key for key in vars(value) if not key.startswith("_")))
    return " ".join(inspect.signature(value).parameters)


def test_the_names_stay_and_a_page_lists_them() -> None:
    assert {name: names_of(name) for name in mia.__all__} == NAMES, (
        "tell it in CHANGELOG.md, and in docs/reference/commands.md"
    )
    for name in mia.__all__:
        assert f"`mia.{name}" in PAGE, name
    for member in NAMES["Audit"].split():
        assert f"`audit.{member}" in PAGE, member
    for name in ("audit", "signals", "observe_canaries", "run"):
        listed = re.search(rf"`mia\.{name}\((.*?)\)`", PAGE)
        words = [word.strip(" *") for word in listed[1].split(",")] if listed else []
        assert [word for word in words if word] == NAMES[name].split(), name
    with pytest.raises(AttributeError):
        _ = mia.audits


def test_a_name_that_changes_is_told_in_the_changelog() -> None:
    told = " ".join((ROOT / "CHANGELOG.md").read_text(encoding="utf-8").split())
    for name, parts in NAMES.items():
        words = f"({', '.join(parts.split())})" if parts else ""
        assert f"`mia.{name}{words}`" in told, f"CHANGELOG.md lacks `mia.{name}{words}`: tell it what changes"


def test_importing_it_imports_nothing_heavy() -> None:
    text = "import sys, mia_audit; print([m for m in ('numpy', 'torch', 'polars', 'pydantic', 'snakemake') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.fixture(scope="module")
def matrices() -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(0)
    member = random.random((120, 6)) < 0.5
    return member, random.normal(size=(120, 1)) + random.normal(size=(120, 6)) + member


def test_an_audit_of_matrices(matrices: tuple[np.ndarray, np.ndarray], tmp_path: Path) -> None:
    member, confidence = matrices
    audit = mia.audit(member, {"confidence": confidence, "mine:real:high": confidence**3}, attacks=["threshold", "lrt"])
    best = audit.summary.filter(~pl.col("null_control")).sort("auc_mean").row(-1, named=True)
    assert best["auc_mean"] > 0.6 and len(audit.metrics) % 6 == 0 and "auc" in audit.metrics.columns
    assert set(audit.scores["target"].unique()) == set(range(6)) and audit.exposure["rank"][0] == 1
    assert audit.epsilon["epsilon"].min() >= 0 and "Audit audit: " in repr(audit)
    assert audit.figure("roc").axes
    with pytest.raises(UserError, match="figure 'rocs': did you mean 'roc'"):
        audit.figure("rocs")
    page = audit.report(tmp_path / "out.html")
    assert page.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"signals": {}}, "audit: no signals"),
        ({"signals": {"loss": np.ones((3, 3))}}, "expected the same records × models"),
        ({"signals": {"other": np.ones((120, 6))}}, "give its scale, and whether members have low or high values"),
        ({"design": "full"}, "expected half or bernoulli"),
        ({"attacks": ["lra"]}, "unknown attack 'lra'"),
    ],
)
def test_a_mistake_is_one_line(
    matrices: tuple[np.ndarray, np.ndarray], change: dict[str, object], message: str
) -> None:
    given = {"signals": {"confidence": matrices[1]}} | change
    with pytest.raises(mia.UserError, match=re.escape(message)):
        mia.audit(matrices[0], **given)  # type: ignore[arg-type]


def test_signals_of_a_torch_module_and_of_an_estimator() -> None:
    import torch
    from sklearn.linear_model import LogisticRegression
    from torch import nn

    random = np.random.default_rng(0)
    rows, labels = random.normal(size=(40, 3)).astype(np.float32), random.integers(0, 2, 40)
    module = nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5), nn.Linear(4, 2)).train()
    found = mia.signals(module, rows, labels, explainers=["ixg", "ig"], ig_nodes=4)
    assert module.training and next(module.parameters()).requires_grad, "the module is left as it was"
    assert {"label", "predicted", "loss", "confidence", "ixg_l1", "ig_l1"} <= set(found.columns) and len(found) == 40
    assert not any(name.startswith("saliency") for name in found.columns)
    logits = module.eval()(torch.from_numpy(rows)).detach().numpy()
    np.testing.assert_array_equal(found["predicted"].to_numpy(), logits.argmax(axis=1))
    again = mia.signals(module, torch.from_numpy(rows), torch.from_numpy(labels), explainers=["ixg", "ig"], ig_nodes=4)
    assert again.equals(found)
    model = LogisticRegression().fit(rows, labels)
    assert mia.signals(model, rows, labels, explainers=[]).columns == ["label", "predicted", "loss", "confidence"]
    for wrong, message in (
        ({"explainers": ["ixxg"]}, "unknown explainer 'ixxg'"),
        ({"explainers": ["local_linear"], "explain": ["probability"]}, "is fitted to training records"),
        ({"nodes": 3}, "nodes"),
    ):
        with pytest.raises(UserError, match=message):
            mia.signals(module, rows, labels, **wrong)  # type: ignore[arg-type]
    with pytest.raises(UserError, match="a str; expected a torch module or a fitted estimator"):
        mia.signals("model", rows, labels)


def test_the_workflow_is_run_in_the_folder_of_the_audit(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []

    def started(words: list[str], check: bool, env: dict[str, str]) -> subprocess.CompletedProcess[bytes]:
        asked.append(words)
        return subprocess.CompletedProcess(words, len(asked) - 1)

    monkeypatch.setattr(subprocess, "run", started)
    assert mia.run(ROOT / "config" / "digits.yaml", 8, "--keep-going") == ROOT / "results" / "digits"
    assert asked[0][-3:] == ["--cores", "8", "--keep-going"]
    with pytest.raises(UserError, match="the workflow failed"):
        mia.run(ROOT / "config" / "digits.yaml")


@pytest.mark.slow
def test_the_notebook_audits_a_model_of_its_own(tmp_path: Path) -> None:
    path = ROOT / "docs" / "examples" / "notebook.py"
    done = subprocess.run(
        [sys.executable, path], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=250
    )
    assert done.returncode == 0, done.stderr[-2000:]
    page = (tmp_path / "notebook.html").read_text(encoding="utf-8")
    assert "reveal who was in the training set" in page
