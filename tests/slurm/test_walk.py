"""A first hour on a cluster: a wrong partition, a wrong account, and a mistake in one's own code."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

CONFIG = """
audit: mine
datasets: {breast_cancer: {records: 200}}
membership: {models: 4}
architectures: {mine: {model: train.py}}
mechanisms: {none: {}}
explainers: {methods: []}
"""
MISTAKEN = """
from sklearn.linear_model import LogisticRegression


def train(task):
    return LogisticRegression().fit(task.record[task.members], task.labels[task.members])
"""


@pytest.mark.slow
def test_a_first_hour_on_a_cluster(tmp_path: Path, cluster: Any, profile: Path) -> None:
    filled = (profile / "config.yaml").read_text()
    (tmp_path / "slurm").mkdir()
    (tmp_path / "mine.yaml").write_text(CONFIG)
    (tmp_path / "train.py").write_text(MISTAKEN)

    def run(settings: str) -> "subprocess.CompletedProcess[str]":
        (tmp_path / "slurm" / "config.yaml").write_text(settings)
        words = ["run", "mine.yaml", "--", "--workflow-profile", "slurm", *cluster.quick]
        words += ["--slurm-init-seconds-before-status-checks", "1"]
        command = [sys.executable, "-m", "mia_audit.cli", *words]
        environment = os.environ | cluster.environment
        return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)

    wrong = run(filled.replace("slurm_partition: cpu", "slurm_partition: cpus"))
    assert wrong.returncode == 2
    assert "slurm/config.yaml: slurm_partition: no" in wrong.stderr and "'cpus': did you mean 'cpu'?" in wrong.stderr
    refused = run(filled.replace("slurm_account: lab", "slurm_account: labs"))
    assert refused.returncode == 2
    assert "slurm/config.yaml: slurm_account: no" in refused.stderr and "did you mean 'lab'?" in refused.stderr

    before = set(cluster.output("sacct", "-S", "now-1day", "-X", "-n", "-P", "-o", "JobID").split())
    mistaken = run(filled)
    said = mistaken.stdout + mistaken.stderr
    assert mistaken.returncode and "train.py, line 6: AttributeError" in said, said
    assert "Trying to restart" not in said
    lines = cluster.output("sacct", "-S", "now-1day", "-X", "-n", "-P", "-o", "JobID,Comment").splitlines()
    mine = [line.partition("|")[2] for line in lines if line.partition("|")[0] not in before]
    assert sum("rule_train" in comment for comment in mine) == 1, mine
