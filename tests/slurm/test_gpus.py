"""Jobs that request a GPU as the workflow's rules do."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any


def test_two_jobs_never_share_a_gpu(cluster: Any, profile: Path, tmp_path: Path) -> None:
    """Each job creates a folder for its GPU, which fails while another job has it; two GPUs are in use at the same time."""
    snakefile = str(Path(__file__).with_name("gpus.smk"))
    done = subprocess.run(
        [
            sys.executable,
            *cluster.snakemake,
            "--snakefile",
            snakefile,
            "--workflow-profile",
            str(profile),
            "--retries",
            "0",
            *cluster.quick,
        ],
        cwd=tmp_path,
        env=os.environ | cluster.environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    gpus = [(tmp_path / f"job{number}").read_text().strip() for number in range(3)]
    assert sorted(set(gpus)) == ["0", "1"]
    assert not list(tmp_path.glob("held-*"))
