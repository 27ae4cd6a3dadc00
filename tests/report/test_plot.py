"""docs/examples/plot.py: a figure from the Parquet files of an audit, with polars alone."""

import subprocess
import sys
from pathlib import Path

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "plot.py"


def test_the_example_plots_every_setting_in_fifteen_lines(small, tmp_path):
    lines = [line for line in EXAMPLE.read_text().splitlines() if line and not line.startswith("#")]
    assert len(lines) <= 15
    assert not any("mia_audit" in line for line in lines)
    done = subprocess.run([sys.executable, EXAMPLE, small.root], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    drawn = (tmp_path / "auc.svg").read_text()
    assert all(f"<!-- {name} -->" in drawn for name in ("none-epsinf", "dp-sgd-eps8", "dp-sgd-eps1", "loss-lira"))
