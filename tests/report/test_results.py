import json

import numpy as np
import polars as pl
import pytest

from mia_audit.config.specs import ReportSpec
from mia_audit.errors import UserError
from mia_audit.report.formatting import protection
from mia_audit.report.opened import audited
from mia_audit.report.results import Results
from mia_audit.report.spec import AuditedSetting, Gap


def parsed(**values):
    return ReportSpec(audit="a", likelihood="pooled", **values)


def test_a_specification_becomes_settings_with_folders():
    spec = parsed(settings=[{"dataset": "d", "architecture": "m", "mechanism": "dp-sgd", "epsilon": "8"}])
    assert spec.settings == (AuditedSetting("d", "m", "dp-sgd", "8"),)
    assert spec.settings[0].path == "d/m/dp-sgd-eps8"
    assert spec.confidence == 0.95


def test_a_changed_copy_is_planned_anew():
    spec = parsed(settings=[{"dataset": "d", "architecture": "m", "mechanism": "none", "epsilon": "inf"}])
    assert spec.planned.settings == spec.settings
    lost = Gap(spec.settings[0], {0: "diverged"}, attacked=False)
    copy = spec.model_copy(update={"settings": (), "gaps": (lost,)})
    assert copy.planned.settings == spec.settings and not copy.planned.gaps
    assert spec.model_copy(update={"title": "new"}).planned.title == "new"


def test_scores_are_those_on_the_true_membership(small):
    results = small.results()
    found = results.scored(results.spec.settings[0], "loss-lira", "confidence", "shrunk")
    rows = pl.read_parquet(small.root / "toy" / "net" / "none-epsinf" / "scores.parquet").filter(
        pl.col("attack") == "loss-lira", pl.col("likelihood") == "shrunk", ~pl.col("null_control")
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
    metadata = small.results().pool_metadata("toy")
    assert (metadata["records"], metadata["public"], metadata["duplicates"]) == (300, 0, 4)
    assert metadata["membership"]["design"] == "half"
    names = [path.relative_to(small.root).as_posix() for path in small.results().inputs()]
    assert len(names) == 12 and "pools/toy/records.npy" in names and "toy/net/dp-sgd-eps8/training.parquet" in names
    assert imported.results().pool_metadata("scores") is None
    assert [path.name for path in imported.results().inputs()] == ["metrics.parquet", "scores.parquet"]
    assert json.dumps(imported.spec)


def test_the_epsilon_of_a_stated_noise_multiplier_is_what_its_models_spent_at_most(written):
    small = written({("none", "inf"): 1.0, ("dp-sgd", "z1.3"): 0.0})
    results = small.results()
    setting = audited(small.root, results.spec).spec.settings[1]
    spent = float(results.training[1]["epsilon"].max())
    assert 0 <= float(setting.epsilon) - spent <= 0.01 * spent and len(setting.epsilon) <= 4
    assert (setting.named, setting.path) == ("z1.3", results.spec.settings[1].path)
    assert protection(setting) == f"dp-sgd, ε = {setting.epsilon}"
