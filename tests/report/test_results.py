import json

import numpy as np
import polars as pl
import pytest

from mia_audit.errors import UserError
from mia_audit.report.results import Results, Setting, parse_spec


def test_a_spec_is_read_and_unknown_keys_are_left_alone():
    spec = parse_spec(
        '{"audit": "a", "extra": 1, "settings": [{"dataset": "d", "architecture": "m", "mechanism": "dp-sgd", "epsilon": "8", "x": 2}]}'
    )
    assert spec.settings == (Setting("d", "m", "dp-sgd", "8"),)
    assert spec.settings[0].path == "d/m/dp-sgd-eps8"
    assert spec.confidence == 0.95


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("{", "not JSON"),
        ("{}", "'settings'"),
        ('{"audit": "a", "settings": []}', "'settings' is empty"),
        ('{"settings": [{"dataset": "d", "architecture": "m", "mechanism": "n", "epsilon": "8"}]}', "audit"),
        ('{"audit": "a", "settings": [{"dataset": "d"}]}', "architecture"),
        ("[]", "expected"),
        ('{"audit": "a", "settings": [3]}', "expected"),
    ],
)
def test_a_spec_that_is_wrong_is_one_line(text, named):
    with pytest.raises(UserError) as caught:
        parse_spec(text)
    assert "--spec" in str(caught.value) and named in str(caught.value)
    assert "\n" not in str(caught.value)


def test_scores_are_those_on_the_true_membership(small):
    results = small.results()
    found = results.scored(results.spec.settings[0], "loss-lira", "confidence", "shrunk")
    rows = pl.read_parquet(small.root / "toy" / "net" / "none-epsinf" / "scores.parquet").filter(
        pl.col("attack") == "loss-lira", pl.col("variance") == "shrunk", ~pl.col("null_control")
    )
    assert np.array_equal(found.record, np.arange(300)) and np.array_equal(found.target, np.arange(12))
    assert np.array_equal(found.score, rows["score"].to_numpy().reshape(12, 300).T)
    assert np.array_equal(found.member, rows["member"].to_numpy().reshape(12, 300).T)


def test_an_attack_without_scores_names_the_file(small):
    results = small.results()
    with pytest.raises(UserError, match=r"scores\.parquet: no scores of rmia on confidence"):
        results.scored(results.spec.settings[0], "rmia", "confidence", "none")


def test_a_missing_or_foreign_table_names_the_file(small, tmp_path):
    with pytest.raises(UserError, match=r"metrics\.parquet: no such file"):
        _ = Results(tmp_path, small.results().spec).metrics
    folder = tmp_path / "toy" / "net" / "none-epsinf"
    folder.mkdir(parents=True)
    (folder / "metrics.parquet").write_bytes((small.root / "toy/net/none-epsinf/metrics.parquet").read_bytes()[:-100])
    with pytest.raises(UserError, match=r"metrics\.parquet: truncated"):
        _ = Results(tmp_path, small.results().spec).metrics


def test_training_is_the_last_epoch_of_every_shadow(small):
    shadows = small.results().training[1]
    assert shadows["shadow"].to_list() == list(range(12))
    assert set(shadows["epoch"]) == {2}
    assert shadows["test_accuracy"].null_count() == 0


def test_pool_facts_and_inputs(small, imported):
    facts = small.results().pool_facts("toy")
    assert (facts["records"], facts["public"], facts["duplicates"]) == (300, 0, 4)
    assert facts["membership"]["design"] == "half"
    names = [path.relative_to(small.root).as_posix() for path in small.results().inputs()]
    assert len(names) == 12 and "pools/toy/records.npy" in names and "toy/net/dp-sgd-eps8/training.parquet" in names
    assert imported.results().pool_facts("scores") is None
    assert [path.name for path in imported.results().inputs()] == ["metrics.parquet", "scores.parquet"]
    assert json.dumps(imported.spec)
