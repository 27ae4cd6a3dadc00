"""Attacks and metrics take memory for a signal and its scores in float32, not for copies of them: so many bytes per cell."""

import argparse
import json
import tracemalloc

import numpy as np
import pyarrow as pa
import pytest

from mia_audit.attacks.io import parquet
from mia_audit.commands import scores
from mia_audit.storage import write_table

RECORDS, MODELS = 5_000, 257


@pytest.fixture
def peak(tmp_path):
    """Return what runs a command and returns the most bytes per cell that NumPy and Python held meanwhile."""

    def run(command, spec, **files):
        (tmp_path / "spec.json").write_text(json.dumps(spec))
        paths = {name: tmp_path / f"{file}.parquet" for name, file in files.items()}
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        try:
            command(argparse.Namespace(spec=tmp_path / "spec.json", **paths))
            return (tracemalloc.get_traced_memory()[1] - before) / (RECORDS * MODELS)
        finally:
            tracemalloc.stop()

    return run


def written(path, name, records):
    random = np.random.default_rng(0)
    for model in range(MODELS):
        member = random.random(records) < 0.5
        values = random.normal(size=records) + 0.5 * member
        columns = {
            "shadow": np.full(records, model, dtype=np.int32),
            "record": np.arange(records, dtype=np.int32),
            "member": member,
            name: (values if name == "confidence" else np.exp(-values)).astype(np.float32),
        }
        yield pa.table(columns)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "likelihood", "attacking", "evaluating"),
    [
        ("confidence", "hierarchical", 28, None),
        ("ixg_l1", "hierarchical", 32, 34),
        ("ixg_l1", "blend", 36, None),
        ("confidence", "pooled", 28, 34),
    ],
)
def test_no_stage_holds_copies_of_a_signal_or_of_its_scores(
    tmp_path, monkeypatch, peak, name, likelihood, attacking, evaluating
):
    monkeypatch.setattr(parquet, "CHUNK_ROWS", 1 << 10)  # as a pool of a million records is cut
    attacks = {"methods": ["threshold", "loss-lira", "l1-lrt"], "likelihoods": [likelihood]}
    attacking_spec = {"seed": 0, "dataset": "random", "attacks": attacks}
    evaluating_spec = {"evaluation": {"fprs": [0.01], "confidence": 0.95}}
    most, after = 0.0, 0.0
    for records, file in ((100, "few"), (RECORDS, "many")):  # the first run imports what is needed
        write_table(tmp_path / f"{file}.parquet", written(tmp_path, name, records), "signals", records * MODELS)
        most = peak(scores.run_attack, attacking_spec, signals=file, out="scores")
        if evaluating:
            after = peak(scores.run_evaluate, evaluating_spec, signals=file, scores="scores", out="metrics")
    print(f"{name}, {likelihood}: {most:.1f} and {after:.1f} bytes per cell")
    assert most < attacking and (not evaluating or after < evaluating)
