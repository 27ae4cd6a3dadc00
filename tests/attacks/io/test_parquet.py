"""scores.parquet holds the same rows however many targets are handed to the writer at a time."""

import numpy as np
import pytest

from mia_audit.attacks.io import parquet as files
from mia_audit.attacks.run import Run
from mia_audit.evaluation.files import read_scores
from mia_audit.signals.name import read_signal

RECORD, TARGET = np.array([3, 5, 8, 9]), np.array([0, 2, 3, 4, 7])


@pytest.mark.parametrize("rows", [1, 8, 12, 1 << 16])  # one target at a time, two, three, all
def test_every_run_is_a_row_group_of_all_targets(tmp_path, monkeypatch, rows):
    monkeypatch.setattr(files, "CHUNK_ROWS", rows)
    rng = np.random.default_rng(0)
    members = {null: rng.random((4, 5)) < 0.5 for null in (False, True)}
    runs = [Run(attack, (read_signal("loss"),), "none", null) for attack in ("threshold", "lrt") for null in members]
    scored = [(run, members[run.null_control], np.asfortranarray(rng.normal(size=(4, 5)))) for run in runs]
    files.write_scores(tmp_path / "scores.parquet", scored, runs, RECORD, TARGET, {})
    for found, (run, member, scores) in zip(read_scores(tmp_path / "scores.parquet"), scored, strict=True):
        assert found.key == (run.attack, "loss", "none", run.null_control)
        assert found.record.tolist() == RECORD.tolist() and found.target.tolist() == TARGET.tolist()
        np.testing.assert_array_equal(found.member, member)
        np.testing.assert_array_equal(found.score, scores.astype(np.float32))
