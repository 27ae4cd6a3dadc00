"""`mia-audit run` and what starts the workflow for others."""

import subprocess
from pathlib import Path

import pytest

from mia_audit.commands.before import start

ROOT = Path(__file__).parents[2]


def test_targets_and_options_are_read_as_such_by_snakemake(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its option `--logger` takes all words up to the next option."""
    from snakemake.cli import parse_args

    asked: list[list[str]] = []

    def started(words: list[str], check: bool) -> subprocess.CompletedProcess[bytes]:
        asked.append(words)
        return subprocess.CompletedProcess(words, 0)

    monkeypatch.setattr(subprocess, "run", started)
    targets = ["results/digits/a.parquet", "results/digits/b.parquet"]
    start(ROOT / "config" / "digits.yaml", 2, [*targets, "--keep-going", "--config", "seed=1"], ROOT)
    _, read = parse_args(asked[0][3:])
    assert set(read.targets) == set(targets)
    assert (read.logger, read.cores, read.keep_going, read.config) == (["mia-audit"], 2, True, ["seed=1"])
