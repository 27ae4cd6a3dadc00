"""The per-model layout of published scores, through the command line."""

import numpy as np
import polars as pl
import pytest

from mia_audit.cli import main
from mia_audit.signals.families import confidence_from_loss

RECORDS, MODELS = 20, 5
SETTING = "model=vit_small_patch16_224_mode=nonDP_epochs=30"


def write(root, kind, parameters, matrix):
    folder = root / f"{kind}_CIFAR10" / parameters
    folder.mkdir(parents=True)
    for model in range(MODELS):
        (folder / f"{model}.csv").write_text(f"{model}\n" + "\n".join(str(value) for value in matrix[:, model]) + "\n")


@pytest.fixture
def published(tmp_path):
    rng = np.random.default_rng(0)
    member = (rng.random((RECORDS, MODELS)) < 0.5).astype(float)
    loss, norm = rng.random((RECORDS, MODELS)), rng.random((RECORDS, MODELS)) * 100
    write(tmp_path / "p", "indices", SETTING, member)
    write(tmp_path / "p", "losses", SETTING, loss)
    write(tmp_path / "p", "norms_l1", "model=vit_small_patch16_224_mode=nonDP_type=ixg_nsamples=20_epochs=30", norm)
    return tmp_path, member, loss, norm


def read(path):
    return pl.read_parquet(path).sort("shadow", "record")


def test_signals_carry_the_explainer_s_name(published):
    tmp_path, member, loss, norm = published
    out = tmp_path / "signals.parquet"
    assert main(["import", "--layout", "per-model-csv", str(tmp_path / "p"), "--out", str(out)]) == 0
    table = read(out)
    assert table.columns == ["shadow", "record", "member", "loss", "confidence", "ixg_l1"]
    for name, matrix in {
        "member": member,
        "loss": loss,
        "confidence": confidence_from_loss(loss),
        "ixg_l1": norm,
    }.items():
        np.testing.assert_allclose(table[name].to_numpy().reshape(MODELS, RECORDS).T, matrix, rtol=1e-6)
    spec = tmp_path / "spec.json"
    spec.write_text('{"seed": 0, "dataset": "d", "attacks": {"likelihoods": ["pooled"]}}')
    assert main(["attack", "--signals", str(out), "--spec", str(spec), "--out", str(tmp_path / "scores.parquet")]) == 0


def test_several_settings_need_a_choice(published, capsys):
    tmp_path, member, loss, _ = published
    for kind, matrix in (("indices", 1 - member), ("losses", loss)):
        write(tmp_path / "p", kind, SETTING.replace("nonDP", "eps8"), matrix)
    command = ["import", "--layout", "per-model-csv", str(tmp_path / "p"), "--out", str(tmp_path / "s.parquet")]
    assert main(command) == 2
    assert "several settings" in capsys.readouterr().err and not (tmp_path / "s.parquet").exists()
    assert main([*command, "--where", "mode=eps8"]) == 0
    assert (member != read(tmp_path / "s.parquet")["member"].to_numpy().reshape(MODELS, RECORDS).T).all()


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("losses_CIFAR10/{}/2.csv", "2\n" + "0.5\n" * 19, "19 records, but 20 were expected"),
        ("losses_CIFAR10/{}/2.csv", "2\n" + "0.5\n" * 19 + "x\n", "not a column of numbers"),
        ("losses_CIFAR10/{}/2.csv", "2\n" + "0.5\n" * 19 + "nan\n", "nan at model 2, record 19"),
        ("losses_CIFAR10/{}/2.csv", "", "0 records, but 20 were expected"),
        ("losses_CIFAR10/{}/2.csv", "2\n" + "0.5 1\n" * 20, "2 columns; expected one number per record"),
        ("losses_CIFAR10/{}/2.csv", "2\n" + "0.5\n" * 19 + "-1\n", "-1 at model 2, record 19, but 'loss' is positive"),
        ("losses_CIFAR10/{}/2.csv", "2\n" + "0.5\n" * 19 + "1e40\n", "1e+40 at model 2, record 19"),
        ("losses_CIFAR10/{}/2.csv", "2\n" + "0.5\n" * 19 + "1e-40\n", "1e-40 at model 2, record 19"),
        ("indices_CIFAR10/{}/2.csv", "2\n" + "0\n" * 20, "model 2 has no member"),
        ("indices_CIFAR10/{}/2.csv", "2\n" + "3\n" * 20, "values other than 0 and 1"),
    ],
)
def test_a_damaged_file_is_named_and_nothing_is_written(published, capsys, name, content, message):
    tmp_path = published[0]
    (tmp_path / "p" / name.format(SETTING)).write_text(content)
    out = tmp_path / "signals.parquet"
    assert main(["import", "--layout", "per-model-csv", str(tmp_path / "p"), "--out", str(out)]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1 and not out.exists()


def test_a_folder_without_scores_is_named(tmp_path, capsys):
    assert main(["import", "--layout", "per-model-csv", str(tmp_path), "--out", str(tmp_path / "s.parquet")]) == 2
    assert "expected the per-model-csv layout" in capsys.readouterr().err
