"""An audit of somebody's matrices through the command line, and what hostile ones get."""

import hashlib
import json
import shutil

import numpy as np
import polars as pl
import pytest

from mia_audit.cli import main
from mia_audit.storage import table_metadata

from ..builders import one_line, run

RECORDS, MODELS = 120, 8


@pytest.fixture
def folder(tmp_path):
    rng = np.random.default_rng(0)
    member = rng.random((RECORDS, MODELS)) < 0.5
    base = rng.normal(size=(RECORDS, 1)) + rng.normal(size=(RECORDS, MODELS)) * 0.5 + member
    np.save(tmp_path / "member.npy", member.astype(np.uint8))
    np.save(tmp_path / "loss.npy", np.exp(-base))
    np.savetxt(tmp_path / "l1.csv", np.exp(-base + rng.normal(size=base.shape)), delimiter=",")
    np.savez(tmp_path / "more.npz", gap=base + rng.normal(size=base.shape))
    return tmp_path


def audit(folder, *more, membership="member.npy", loss="loss.npy"):
    given = ("--membership", str(folder / membership), "--signal", f"loss={folder / loss}")
    return main(["audit", *given, "--out", str(folder / "out"), "--threads", "2", *more])


def test_an_audit_is_complete(folder):
    more = ["--signal", f"ixg_l1={folder / 'l1.csv'}", "--signal", f"gap:real:high={folder / 'more.npz'}:gap"]
    assert audit(folder, *more, "--fprs", "0.001", "0.01", "0.1") == 0
    out = folder / "out"
    assert {path.name for path in out.iterdir()} >= {
        "scores.parquet", "metrics.parquet", "metrics.csv", "summary.csv", "exposure.csv", "epsilon.csv", "tables", "figures", "report.html",
        "SHA256SUMS",
    }  # fmt: skip
    assert main(["verify", str(out)]) == 0
    assert out.stat().st_mode & 0o777 == 0o700
    assert str(folder) not in (out / "report.html").read_text() + (out / "provenance.json").read_text()
    assert {path.name for path in (out / "tables").iterdir()} >= {"summary.tex", "settings.csv", "differences.csv"}
    metrics = pl.read_csv(out / "metrics.csv")
    assert {"attack", "signal", "likelihood", "target", "auc", "tpr_at_fpr_0.001", "tpr_at_fpr_0.01"} <= set(
        metrics.columns
    )
    real = metrics.filter(~pl.col("null_control"))
    assert set(real.select(pl.concat_str("attack", "signal", "likelihood", separator=" ")).to_series()) == {
        "threshold loss none", "threshold ixg_l1 none", "threshold gap none",
        "l1-lrt ixg_l1 blend", "lrt gap blend", "loss-lira confidence blend",
    }  # fmt: skip
    assert len(real) == 6 * MODELS and real["auc"].mean() > 0.6
    summary = pl.read_csv(out / "summary.csv")
    assert len(summary) == 9 and {"auc_mean", "auc_sd", "auc_low", "auc_high"} <= set(summary.columns)
    exposure = pl.read_csv(out / "exposure.csv")
    assert exposure["rank"].to_list() == list(range(1, RECORDS + 1)) and set(exposure["models"]) == {MODELS}
    assert exposure["advantage"].is_sorted(descending=True)
    assert (
        (exposure["advantage_low"] <= exposure["advantage"]) & (exposure["advantage"] <= exposure["advantage_high"])
    ).all()
    shown = pl.read_csv(out / "epsilon.csv")
    assert len(shown) == 9 and set(shown["method"]) == {"clopper-pearson"}
    assert (shown.filter(pl.col("null_control"))["epsilon"] == 0).all()
    assert "<html" in (out / "report.html").read_text()[:500]


@pytest.mark.usefixtures("without_figures")
def test_the_report_shows_epsilon_at_the_delta_that_was_asked_for_and_digests_of_what_was_given(folder):
    assert audit(folder, "--delta", "0.01") == 0
    shown = pl.read_csv(folder / "out" / "tables" / "settings.csv")
    assert shown["epsilon_lower_bound_delta"].to_list() == [0.01]
    assert set(pl.read_csv(folder / "out" / "epsilon.csv")["delta"]) == {0.01}
    page = (folder / "out" / "report.html").read_text(encoding="utf-8").replace("\u00a0", " ")
    assert "δ = 10⁻²" in page and "attacks leave out" not in page
    given = json.loads((folder / "out" / "provenance.json").read_text())["given_sha256"]
    expected = {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in ("member.npy", "loss.npy")}
    assert given == {".": expected}


def test_threads_change_no_byte(folder):
    made = []
    for threads in ("1", "3"):
        assert audit(folder, "--signal", f"ixg_l1={folder / 'l1.csv'}", "--no-report", "--threads", threads) == 0
        made.append({path.name: path.read_bytes() for path in (folder / "out").iterdir()})
        shutil.rmtree(folder / "out")
    assert made[0] == made[1]


def spoil(array, position, value):
    array = array.astype(float)
    array[position] = value
    return array


@pytest.mark.parametrize(
    ("name", "make", "message"),
    [
        ("loss.npy", lambda a: a[:, :-1], "120 × 7 where"),
        ("loss.npy", lambda a: a[:-1], "119 × 8 where"),
        ("loss.npy", lambda a: spoil(a, (3, 2), np.nan), "nan at model 2, record 3"),
        ("loss.npy", lambda a: spoil(a, (3, 2), np.inf), "inf at model 2, record 3"),
        ("loss.npy", lambda a: spoil(a, (4, 1), -0.5), "-0.5 at model 1, record 4, but 'loss' is positive"),
        ("loss.npy", lambda a: spoil(a, (4, 1), 1e120), "1e+120 at model 1, record 4 is the largest value"),
        ("loss.npy", lambda a: a * 1e-90, "expected an absolute value between 1e-60 and 1e+100"),
        ("loss.npy", lambda a: a.astype(str), "not numbers"),
        ("loss.npy", lambda a: np.array([[{}]], dtype=object), "damaged, empty or not a matrix of numbers"),
        ("loss.npy", lambda a: a[0], "expected records × models"),
        ("member.npy", lambda a: spoil(a, (5, 0), 2), "2.0 at model 0, record 5; membership is 0 or 1"),
        ("member.npy", lambda a: spoil(a, (slice(None), 3), 0), "model 3 has no member"),
        ("member.npy", lambda a: spoil(a, (slice(None), 3), a[:, 1]), "models 1 and 3 have the same training set"),
        ("member.npy", lambda a: a[:, :3], "3 models; attacks need at least 4"),
        ("member.npy", lambda a: np.zeros((3, 10**6), np.uint8), "more than 10000 models"),
    ],
)
def test_a_hostile_matrix_is_one_line_and_nothing_is_written(folder, capsys, name, make, message):
    np.save(folder / name, make(np.load(folder / name)))
    assert audit(folder) == 2
    error = capsys.readouterr().err
    assert message in error and name in error and error.count("\n") == 1
    assert not (folder / "out").exists()


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("empty.csv", b"", "empty"),
        ("empty.npy", b"", "damaged, empty"),
        ("empty.parquet", b"", "damaged, empty"),
        ("empty.npz", b"", "damaged, empty"),
        ("header.csv", b"a,b,c\n", "no record below the header"),
        ("zeros.csv", bytes(4096), "no record below the header"),
        ("zeros.npy", bytes(4096), "does not begin like a NumPy file"),
        ("text.csv", b"1,2\n3,four\n", "not a matrix of numbers"),
        ("ragged.csv", b"0.5,2\n3\n", "not a matrix of numbers"),
        ("wide.csv", b",".join([b"0"] * 10**6) + b"\n", "more than 10000 columns"),
        ("binary.csv", bytes(range(256)), "expected records"),
        ("matrix.pickle", b"cos\nsystem\n", "unknown kind of file"),
        ("header.npy", b"\x93NUMPY\x01\x00\x02\x00({", "damaged, empty"),
    ],
    ids=lambda value: value if isinstance(value, str) else "bytes",
)
def test_a_hostile_file_is_one_line_and_nothing_is_written(folder, capsys, name, content, message):
    (folder / name).write_bytes(content)
    assert audit(folder, loss=name) == 2
    error = capsys.readouterr().err
    assert name in error and error.count("\n") == 1, error
    assert message in error or name == "binary.csv"
    assert not (folder / "out").exists()


@pytest.mark.parametrize("kind", ["npy", "npz", "csv", "parquet"])
def test_truncated_files_are_named(folder, capsys, kind):
    loss, path = np.load(folder / "loss.npy"), folder / f"half.{kind}"
    if kind == "npy":
        np.save(path, loss)
    elif kind == "npz":
        np.savez(path, loss)
    elif kind == "csv":
        np.savetxt(path, loss, delimiter=",")
    else:
        pl.DataFrame(loss).write_parquet(path)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    assert audit(folder, loss=path.name) == 2
    assert f"half.{kind}" in one_line(capsys)
    assert not (folder / "out").exists()


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--attacks", "l1-lr"], "did you mean 'l1-lrt'"),
        (["--attacks", "l1-lrt"], "reads any of the signals"),
        (["--likelihoods", "poled"], "likelihoods"),
        (["--delta", "2"], "between 0 and 1"),
        (["--fprs", "5"], "FPRs are fractions"),
        (["--signal", "loss=again.npy"], "given twice"),
        (["--signal", "what=x.npy"], "give its scale"),
        (["--signal", "ixg_l1=none.npy"], "no such file"),
        (["--attacks", "lrt:loss+confidence"], "lrt reads one signal at a time; joint-lrt and shadow-classifier"),
        (["--attacks", "joint-lrt:loss+loss"], "'loss' is given twice"),
        (["--attacks", "rmia:confidence"], "read only losses"),
        (["--table", "signals.parquet"], "--table alone, or several --setting"),
        (["--name", "../elsewhere"], "expected letters, digits, '.', '_' and '-'"),
        (["--exposed", "-1"], "exposed"),
    ],
)
def test_a_wrong_option_is_one_line_and_nothing_is_written(folder, capsys, more, message):
    assert audit(folder, *more) == 2
    assert message in one_line(capsys)
    assert not (folder / "out").exists()


def test_a_matrix_in_the_audit_s_own_folder_is_not_overwritten(folder, capsys):
    (folder / "out").mkdir()
    path = folder / "out" / "scores.parquet"
    pl.DataFrame(np.load(folder / "loss.npy")).write_parquet(path)
    before = path.read_bytes()
    assert audit(folder, loss="out/scores.parquet") == 2
    assert f"{path}: would overwrite a file that is read" in one_line(capsys)
    assert path.read_bytes() == before


@pytest.mark.parametrize("damage", ["bytes", "version"])
def test_an_archive_whose_bytes_changed_is_named(folder, capsys, damage):
    np.savez_compressed(folder / "loss.npz", np.load(folder / "loss.npy"))
    content = bytearray((folder / "loss.npz").read_bytes())
    if damage == "bytes":
        content[200:260] = bytes(60)
    else:
        content[content.rindex(b"PK\x01\x02") + 6] = 217  # the version that is needed to read it
    (folder / "loss.npz").write_bytes(content)
    assert audit(folder, loss="loss.npz") == 2
    assert "loss.npz: damaged" in one_line(capsys)


@pytest.mark.parametrize("taken", ["out", "out/scores.parquet"])
def test_a_place_that_is_taken_is_one_line(folder, capsys, taken):
    if taken == "out":
        (folder / taken).write_text("mine")
    else:
        (folder / taken).mkdir(parents=True)
    assert audit(folder) == 2
    assert "out/scores.parquet: cannot be written" in one_line(capsys)


def test_no_folder_is_left_of_an_audit_that_failed(folder):
    (folder / "kept").mkdir()
    for out in ("new/and/deep", "kept/new"):
        arguments = ["--membership", f"{folder}/member.npy", "--signal", "loss=none.npy", "--out", f"{folder}/{out}"]
        assert main(["audit", *arguments]) == 2
    assert not (folder / "new").exists() and list((folder / "kept").iterdir()) == []


def test_what_is_asked_for_twice_counts_once(folder):
    more = ["--attacks", "lrt:loss", "lrt:loss", "threshold", "threshold:loss", "--likelihoods", "pooled", "pooled"]
    assert audit(folder, *more, "--no-report") == 0
    summary = pl.read_csv(folder / "out" / "summary.csv")
    assert len(summary) == 3 and set(summary["targets"]) == {MODELS}


def test_too_few_models_for_a_variance(folder, capsys):
    np.save(folder / "member.npy", np.arange(RECORDS)[:, None] % 4 == np.arange(4))
    np.save(folder / "loss.npy", np.load(folder / "loss.npy")[:, :4])
    assert audit(folder, "--likelihoods", "per-record") == 2
    assert "the likelihood 'per-record' (4 models)" in capsys.readouterr().err
    assert not (folder / "out").exists()


@pytest.mark.parametrize("likelihood", ["pooled", "shrunk"])
def test_a_target_whose_members_have_no_score(folder, capsys, likelihood):
    member = np.random.default_rng(0).random((RECORDS, 4)) < 0.5
    member[member[:, 0], 1:] = False  # a member of the first model is one of no other
    np.save(folder / "member.npy", member)
    np.save(folder / "loss.npy", np.load(folder / "loss.npy")[:, :4])
    assert audit(folder, "--likelihoods", likelihood) == 2
    said = capsys.readouterr().err
    assert "no member of target 0 has enough" in said and f"for the likelihood '{likelihood}'" in said
    assert not (folder / "out").exists()


def test_bounds_and_comparisons_of_an_audit(folder, capsys):
    assert audit(folder, "--no-report") == 0
    out = folder / "out"
    files = {"scores": out / "scores.parquet", "out": out / "bounds.csv"}
    assert run("epsilon-bound", "--gaussian", **files, design="bernoulli") == 0
    table = pl.read_csv(out / "bounds.csv")
    capsys.readouterr()
    methods = {"clopper-pearson", "gaussian", "one-run", "one-run-f-dp", "one-run-gaussian"}
    assert set(table["method"]) == methods and len(table) == 3 * 5


def test_bounds_of_a_list_of_scores(tmp_path):
    random = np.random.default_rng(0)
    member = random.random(1000) < 0.5
    frame = pl.DataFrame({"member": member.astype(int), "score": 2 * random.normal(size=1000) + 6 * member})
    frame.write_csv(tmp_path / "canaries.csv")
    arguments = ["--scores", str(tmp_path / "canaries.csv"), "--design", "bernoulli", "--out", str(tmp_path / "b.csv")]
    assert main(["epsilon-bound", *arguments]) == 0
    table = pl.read_csv(tmp_path / "b.csv")
    assert len(table) == 3 and (table["epsilon"] > 1).all() and set(table["attack"]) == {"given"}
    pl.DataFrame({"in": frame["score"][:200], "out": frame["score"][200:400]}).write_csv(tmp_path / "canaries.csv")
    assert main(["epsilon-bound", *arguments]) == 0  # fair coins of one model may come out exactly even
    assert set(pl.read_csv(tmp_path / "b.csv")["method"]) == set(table["method"])


@pytest.mark.usefixtures("without_figures")
def test_a_design_that_gives_members_away_is_corrected_and_said(folder):
    rng = np.random.default_rng(1)
    first = np.stack([rng.permutation(RECORDS) < RECORDS // 2 for _ in range(MODELS // 2)], axis=1)
    np.save(folder / "member.npy", np.stack([first, ~first], axis=2).reshape(RECORDS, MODELS))
    assert audit(folder) == 0
    for kind in ("scores", "metrics"):
        assert table_metadata(folder / "out" / f"{kind}.parquet", kind)["design_correction"] == "pairs"
    assert "on a target leave out its partner" in (folder / "out" / "report.html").read_text()


def test_probabilities_given_as_losses_and_transposed_matrices_are_named(folder, capsys):
    loss, member = np.load(folder / "loss.npy"), np.load(folder / "member.npy")
    np.save(folder / "p.npy", np.exp(-loss))
    assert audit(folder, loss="p.npy") == 2
    assert "softmax probability" in capsys.readouterr().err
    halves = np.stack([np.random.default_rng(k).permutation(RECORDS) < RECORDS // 2 for k in range(MODELS)])
    np.save(folder / "member.npy", halves)
    np.save(folder / "loss.npy", loss.T)
    assert audit(folder) == 2
    assert "transpose it" in capsys.readouterr().err
    np.save(folder / "member.npy", halves.T)
    np.save(folder / "loss.npy", loss)
    assert audit(folder, "--design", "bernoulli") == 2
    assert "not drawn by fair coins" in capsys.readouterr().err and member.shape == (RECORDS, MODELS)


def several(folder, *settings, more=()):
    words = [word for setting in settings for word in ("--setting", setting)]
    return main(["audit", "--membership", str(folder / "member.npy"), *words, "--out", str(folder / "out"), *more])


@pytest.mark.usefixtures("without_figures")
def test_several_settings_are_answered_as_the_workflow_answers(folder, capsys):
    random = np.random.default_rng(1)
    np.save(folder / "dp.npy", np.exp(-random.normal(size=(RECORDS, MODELS))))
    np.save(folder / "accuracy.npy", 0.9 + 0.01 * random.normal(size=MODELS))
    np.save(folder / "dp_accuracy.npy", 0.8 + 0.01 * random.normal(size=MODELS))
    settings = (
        f"none: loss={folder / 'loss.npy'} accuracy={folder / 'accuracy.npy'}",
        f"dp8: loss={folder / 'dp.npy'} epsilon=8 delta=1e-5 mechanism=dp-sgd accuracy={folder / 'dp_accuracy.npy'}",
    )
    assert several(folder, *settings) == 0
    said = " ".join(capsys.readouterr().out.replace("\u00a0", " ").split())
    assert "at a claimed ε = 8, no attack that was" in said and ", at a cost of " in said
    assert "points of accuracy" in said and f"Report: {folder / 'out' / 'report.html'}" in said
    out = folder / "out"
    for name in ("none", "dp8"):
        files = {"scores.parquet", "summary.csv", "exposure.csv", "epsilon.csv"}
        assert {path.name for path in (out / name).iterdir()} >= files
    shown = pl.read_csv(out / "tables" / "settings.csv")
    assert shown["mechanism"].to_list() == ["none", "dp-sgd"] and shown["delta"].to_list() == [None, 1e-5]
    assert shown["test_accuracy_mean"].to_list() == pytest.approx([0.9, 0.8], abs=0.02)
    given = json.loads((out / "provenance.json").read_text())["given_sha256"]
    assert given["none"].keys() == {"member.npy", "loss.npy"} and given["dp8"].keys() == {"member.npy", "dp.npy"}
    assert main(["verify", str(out)]) == 0


@pytest.mark.slow
@pytest.mark.usefixtures("without_figures")
def test_settings_in_a_file_are_read_beside_it(folder, capsys, monkeypatch):
    (folder / "given").mkdir()
    for name in ("member.npy", "loss.npy"):
        (folder / name).rename(folder / "given" / name)
    text = (
        "membership: member.npy\nsettings:\n  none: {signals: {loss: loss.npy}, accuracy: 0.9}\n"
        "  dp: {signals: {loss: loss.npy}, epsilon: 8, delta: 1.0e-5, accuracy: 0.88}\n"
    )
    (folder / "given" / "settings.yaml").write_text(text)
    monkeypatch.chdir(folder)
    assert main(["audit", "--settings", "given/settings.yaml", "--out", "out"]) == 0
    said = " ".join(capsys.readouterr().out.replace("\u00a0", " ").split())
    assert "with 2.0 points less accuracy (one" in said


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["none"], "--setting 'none': expected NAME: KEY=VALUE …"),
        (["none: loss"], "--setting 'none: loss': 'loss': expected KEY=VALUE"),
        (["none: loss={0}/loss.npy", "none: loss={0}/loss.npy"], "--setting none: given twice"),
        (["a b: loss={0}/loss.npy"], "'a b' becomes the name of a folder"),
        (["dp: loss={0}/loss.npy epsilon=8"], "a guarantee has an ε and a δ: give both epsilon and delta"),
        (["dp: epsilon=8 delta=1e-5"], "a setting needs either signals or a table"),
        (["none: loss={0}/loss.npy accuracy=90"], "accuracy: 90 is not between 0 and 1"),
        (["none: loss={0}/loss.npy accuracy={0}/member.npy"], "expected one number for each model"),
        (["none: loss={0}/gone.npy"], "gone.npy: no such file"),
        (["none: loss={0}/loss.npy loss={0}/more.npz"], "loss is given twice"),
    ],
)
def test_a_mistake_in_a_setting_is_one_line(folder, capsys, settings, message):
    assert several(folder, *(one.format(folder) for one in settings)) == 2
    assert message in one_line(capsys) and not (folder / "out").exists()


def test_without_a_report_the_strongest_attack_is_said(folder, capsys):
    assert audit(folder, "--no-report") == 0
    said = capsys.readouterr().out
    assert said.startswith("Strongest attack: loss-lira on conf") and "(blend), AUC 0." in said
    assert f"Written to {folder / 'out'}: scores.parquet, metrics.parquet" in said


@pytest.mark.usefixtures("without_figures")
def test_scores_are_not_written_beside_the_report_of_another_audit(folder, capsys):
    assert audit(folder) == 0
    before = {path: path.read_bytes() for path in sorted((folder / "out").rglob("*")) if path.is_file()}
    np.save(folder / "other.npy", np.load(folder / "loss.npy") + 1)
    assert audit(folder, "--no-report", loss="other.npy") == 2
    assert "tables: of an earlier audit" in capsys.readouterr().err
    assert before == {path: path.read_bytes() for path in sorted((folder / "out").rglob("*")) if path.is_file()}


def test_a_table_has_its_own_membership(folder, capsys):
    words = ["--table", "signals.parquet", "--membership", str(folder / "member.npy"), "--out", str(folder / "new")]
    assert main(["audit", *words]) == 2
    assert "--table alone" in capsys.readouterr().err


@pytest.mark.usefixtures("without_figures")
def test_an_attack_asked_for_in_vain_is_a_warning_and_a_line_of_the_page(folder, capsys):
    assert audit(folder, "--attacks", "threshold", "l1-lrt") == 0
    captured = capsys.readouterr()
    assert "warning: l1-lrt: no signal to read" in captured.err and "(available: loss, confidence)" in captured.err
    assert "Caution: l1-lrt was asked for" in captured.out
    page = (folder / "out" / "report.html").read_text()
    assert "confidence is derived from the loss" in page
    assert "loss.npy (given)" in page and "member.npy (given)" in page
