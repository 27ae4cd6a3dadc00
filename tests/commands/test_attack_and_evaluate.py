"""From a signals.parquet to metrics.parquet through the command line."""

import hashlib

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mia_audit.attacks.engine.likelihood import likelihood_ratio
from mia_audit.evaluation.files import metrics_table, read_scores
from mia_audit.evaluation.metrics import target_metrics
from mia_audit.evaluation.run import FIRST_MODELS
from mia_audit.storage import read_table, table_metadata, tables, write_table

from ..builders import one_line, run, write_signals

RECORDS, MODELS = 60, 6
SPEC = {
    "seed": 3,
    "dataset": "d",
    "attacks": {"methods": ["threshold", "l1-lrt", "loss-lira"], "likelihoods": ["shrunk", "pooled"]},
}


@pytest.fixture
def values():
    rng = np.random.default_rng(0)
    member = rng.random((RECORDS, MODELS)) < 0.5
    base = rng.normal(size=(RECORDS, 1)) + rng.normal(size=(RECORDS, MODELS)) + member
    return {"member": member, "loss": np.exp(-base), "confidence": base, "ixg_l1": np.exp(-base * 0.9)}


def attack(tmp_path, values):
    signals = write_signals(tmp_path / "signals.parquet", **values)
    return run("attack", signals=signals, spec=SPEC, out=tmp_path / "scores.parquet")


def test_how_well_an_explanation_was_computed_is_not_attacked(tmp_path, values):
    assert attack(tmp_path, values | {"ig_completeness": np.abs(values["confidence"])}) == 0
    assert "ig_completeness" not in pl.read_parquet(tmp_path / "scores.parquet")["signal"].unique()


def test_scores_of_more_rows_than_a_row_group_holds_are_read_whole(tmp_path, values, monkeypatch):
    assert attack(tmp_path, values) == 0
    whole = list(read_scores(tmp_path / "scores.parquet"))
    monkeypatch.setattr(tables, "MOST_ROWS", MODELS * RECORDS // 3)
    assert attack(tmp_path, values) == 0
    assert pq.ParquetFile(tmp_path / "scores.parquet").num_row_groups > 2 * len(whole)
    cut = list(read_scores(tmp_path / "scores.parquet"))
    assert [one.key for one in cut] == [one.key for one in whole]
    for one, other in zip(cut, whole, strict=True):
        assert one.target.tolist() == other.target.tolist() and one.record.tolist() == other.record.tolist()
        assert np.array_equal(one.score, other.score, equal_nan=True) and np.array_equal(one.member, other.member)


def test_scores_and_metrics_follow_the_contract(tmp_path, values):
    assert attack(tmp_path, values) == 0
    scores = pl.read_parquet(tmp_path / "scores.parquet")
    assert scores.columns == [
        "attack", "signal", "likelihood", "unit", "aggregate", "null_control", "target", "record", "member", "score"
    ]  # fmt: skip
    assert scores["score"].dtype == pl.Float32
    metadata = table_metadata(tmp_path / "scores.parquet", "scores")
    groups = metadata.pop("row_groups")
    assert metadata == {"seed": 3, "dataset": "d"}
    file = pq.ParquetFile(tmp_path / "scores.parquet")
    assert file.num_row_groups == 2 + 4 + 4
    keys = ["attack", "signal", "likelihood", "null_control", "unit", "aggregate"]
    found = [file.read_row_group(i, keys) for i in range(len(groups))]
    assert [[table[key].unique().to_pylist() for key in keys] for table in found] == [[[v] for v in g] for g in groups]
    rows = scores.filter(pl.col("attack") == "l1-lrt", pl.col("likelihood") == "pooled", ~pl.col("null_control"))
    stored = rows["score"].to_numpy().reshape(MODELS, RECORDS).T
    l1 = values["ixg_l1"].astype(np.float32).astype(np.float64)
    np.testing.assert_array_equal(stored, likelihood_ratio(np.log(l1), values["member"], "pooled").astype(np.float32))
    np.testing.assert_array_equal(rows["target"], np.repeat(np.arange(MODELS), RECORDS))

    evaluation = {"evaluation": {"fprs": [0.001, 0.1]}}
    files = {"scores": tmp_path / "scores.parquet", "out": tmp_path / "metrics.parquet"}
    assert run("evaluate", spec=evaluation, **files) == 0
    metrics = pl.from_arrow(read_table(tmp_path / "metrics.parquet", "metrics"))
    assert len(metrics) == 10 * MODELS
    row = metrics.filter(
        pl.col("attack") == "l1-lrt", pl.col("likelihood") == "pooled", ~pl.col("null_control"), pl.col("target") == 2
    )
    expected = target_metrics(stored[:, 2], values["member"][:, 2], [0.001, 0.1])
    assert {name: row[name][0] for name in expected} == expected
    assert metrics["tpr_at_fpr_0.001"].dtype == pl.Float64 and metrics["tpr_at_fpr_0.001"].null_count() == len(metrics)


def test_further_queries_are_columns_with_a_number(tmp_path, values):
    values["ixg_l1@2"] = values["ixg_l1"] * 1.5
    assert attack(tmp_path, values) == 0
    scores = pl.read_parquet(tmp_path / "scores.parquet")
    rows = scores.filter(pl.col("attack") == "l1-lrt", pl.col("likelihood") == "pooled", ~pl.col("null_control"))
    mean = np.log([values[name].astype(np.float32).astype(np.float64) for name in ("ixg_l1", "ixg_l1@2")]).mean(axis=0)
    expected = likelihood_ratio(mean, values["member"], "pooled")
    np.testing.assert_allclose(rows["score"].to_numpy().reshape(MODELS, RECORDS).T, expected, rtol=1e-5, atol=1e-5)


def test_a_foreign_signal_says_what_it_is_in_the_file_s_metadata(tmp_path, values):
    metadata = {"signals": {"gap": {"scale": "real", "members": "high"}}}
    signals = write_signals(tmp_path / "signals.parquet", values["member"], metadata, gap=values["confidence"])
    spec = {"seed": 0, "dataset": "d", "attacks": {"methods": ["threshold", "lrt"], "likelihoods": ["pooled"]}}
    assert run("attack", signals=signals, spec=spec, out=tmp_path / "scores.parquet") == 0
    rows = pl.read_parquet(tmp_path / "scores.parquet").filter(pl.col("attack") == "threshold")
    np.testing.assert_array_equal(
        rows["score"].to_numpy().reshape(MODELS, RECORDS).T, values["confidence"].astype(np.float32)
    )


def test_the_same_inputs_give_the_same_bytes(tmp_path, values):
    attack(tmp_path, values)
    first = (tmp_path / "scores.parquet").read_bytes()
    attack(tmp_path, values)
    assert (tmp_path / "scores.parquet").read_bytes() == first


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda v: v["ixg_l1"].__setitem__((3, 2), np.nan), "column 'ixg_l1': nan at model 2, record 3"),
        (lambda v: v["loss"].__setitem__((0, 1), np.inf), "column 'loss': inf at model 1, record 0"),
        (lambda v: v["ixg_l1"].__setitem__((5, 4), -1), "'ixg_l1' is -1 at model 4, record 5"),
        (lambda v: v["member"].__setitem__((slice(None), 3), False), "model 3 has no member"),
        (lambda v: v["member"].__setitem__((slice(None), 3), True), "model 3 has no non-member"),
        (lambda v: [v.pop(name) for name in ("loss", "confidence", "ixg_l1")], "no attack in attacks.methods reads"),
    ],
)
def test_a_mistake_is_one_line_and_nothing_is_written(tmp_path, values, capsys, spoil, message):
    spoil(values)
    assert attack(tmp_path, values) == 2
    assert message in one_line(capsys)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["signals.parquet"]


def test_truncated_files_are_named(tmp_path, values, capsys):
    attack(tmp_path, values)
    scores = tmp_path / "scores.parquet"
    scores.write_bytes(scores.read_bytes()[:-100])
    assert run("evaluate", scores=scores, spec={"evaluation": {}}, out=tmp_path / "metrics.parquet") == 2
    assert "scores.parquet: truncated" in capsys.readouterr().err
    assert not (tmp_path / "metrics.parquet").exists()


def test_rows_out_of_order_are_refused(tmp_path, capsys):
    order = np.arange(RECORDS * MODELS)[::-1].astype(np.int32)
    table = pa.table(
        {"shadow": pa.array(order // RECORDS), "record": pa.array(order % RECORDS), "member": pa.array(order % 2 == 0)}
    )
    write_table(tmp_path / "signals.parquet", table, "signals", len(order))
    files = {"signals": tmp_path / "signals.parquet", "out": tmp_path / "scores.parquet"}
    assert run("attack", spec=SPEC, **files) == 2
    assert "signals.parquet: " in capsys.readouterr().err


def test_foreign_signals_go_from_attack_to_metrics_and_their_digest_is_noted(tmp_path, values):
    frame = pl.DataFrame(
        {"shadow": np.repeat(np.arange(MODELS), RECORDS), "record": np.tile(np.arange(RECORDS), MODELS)}
        | {name: values[name].T.ravel() for name in ("member", "loss", "confidence")}
    )
    frame.write_parquet(tmp_path / "signals.parquet")
    spec = SPEC | {"attacks": {"methods": ["loss-lira"], "likelihoods": ["pooled"]}}
    files = {name: tmp_path / f"{name}.parquet" for name in ("signals", "scores")}
    assert run("attack", signals=files["signals"], spec=spec, out=files["scores"]) == 0
    spec = {"evaluation": {"fprs": [0.1]}}
    assert run("evaluate", spec=spec, **files, out=tmp_path / "metrics.parquet") == 0
    digest = hashlib.sha256((tmp_path / "signals.parquet").read_bytes()).hexdigest()
    for kind in ("scores", "metrics"):
        assert table_metadata(tmp_path / f"{kind}.parquet", kind)["given_sha256"] == {"signals.parquet": digest}
    real = pl.read_parquet(tmp_path / "metrics.parquet").filter(~pl.col("null_control"))
    left_out = min(MODELS, 8)
    assert [one is not None for one in real["auc_without"].to_list()] == [k < left_out for k in range(MODELS)]
    scores = pl.read_parquet(tmp_path / "scores.parquet")
    scores.write_parquet(tmp_path / "scores.parquet")
    assert run("evaluate", spec=spec, **files, out=tmp_path / "again.parquet") == 0
    assert pl.read_parquet(tmp_path / "again.parquet").equals(pl.read_parquet(tmp_path / "metrics.parquet"))
    assert set(table_metadata(tmp_path / "again.parquet", "metrics")["given_sha256"]) == {"scores.parquet"}


@pytest.mark.parametrize(
    "command",
    [
        ("attack", "--spec", "spec", "--signals", "table"),
        ("evaluate", "--spec", "spec", "--scores", "table"),
        ("evaluate", "--spec", "spec", "--scores", "other", "--signals", "table"),
        ("epsilon-bound", "--scores", "table"),
    ],
)
@pytest.mark.parametrize("linked", [False, True])
def test_an_input_is_not_overwritten(tmp_path, capsys, command, linked):
    for name in ("table", "spec", "other"):
        (tmp_path / name).write_text("score,member\n")
    (tmp_path / "link").symlink_to(tmp_path / "table")
    words = [str(tmp_path / word) if word in ("table", "spec", "other") else word for word in command]
    out = tmp_path / ("link" if linked else "table")
    assert run(*words, out=out) == 2
    message = "a link, which would be replaced" if linked else "would overwrite a file that is read"
    assert f"{out}: {message}" in one_line(capsys)
    assert (tmp_path / "table").read_text() == "score,member\n"


def test_the_first_models_are_evaluated_as_if_there_were_no_others(tmp_path, values):
    """Comparisons with settings of five models read these rows, so more shadow models cannot make the attack stronger."""
    found = {}
    for name, models in (("all", MODELS), ("first", MODELS - 1)):
        folder = tmp_path / name
        folder.mkdir()
        assert attack(folder, {signal: matrix[:, :models] for signal, matrix in values.items()}) == 0
        spec = {"evaluation": {"fprs": [0.1]}} | ({"models": MODELS - 1} if name == "all" else {})
        places = {part: f"{folder / part}.parquet" for part in ("scores", "signals")}
        assert run("evaluate", **places, spec=spec, out=folder / "metrics.parquet") == 0
        found[name] = folder / "metrics.parquet"
    rows = metrics_table(table_metadata(found["all"], "metrics")[FIRST_MODELS])
    keys = ["attack", "signal", "likelihood"]
    alone = pl.read_parquet(found["first"]).filter(~pl.col("null_control")).join(rows, on=keys, how="semi")
    order = [*keys, "target"]
    assert rows.sort(order).equals(alone.select(rows.columns).cast(dict(rows.schema)).sort(order))
    assert set(rows["attack"]) == {"threshold", "l1-lrt", "loss-lira"} and len(rows) == 6 * (MODELS - 1)
    assert FIRST_MODELS not in table_metadata(found["first"], "metrics")
