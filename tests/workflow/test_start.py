"""Starting Snakemake: by its path from an environment that is not activated, and without importing torch."""

import ast
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from mia_audit.runtime.slurm import prepend_environment

ROOT = Path(__file__).parents[2]
PROGRAMS = Path(sys.executable).parent


@pytest.mark.slow
def test_the_workflow_runs_from_an_environment_that_is_not_activated(workflow: Any) -> None:
    """One job of an audit, with a PATH that names the system's programs alone."""
    workflow.environment = {name: value for name, value in os.environ.items() if name in ("HOME", "PYTHONPATH")}
    workflow.environment["PATH"] = "/usr/bin:/bin"
    result = workflow.run("results/tiny/pools/digits/membership.parquet")
    assert result.returncode == 0, result.stdout
    assert (workflow.results / "pools" / "digits" / "membership.parquet").exists()
    assert {path.name.partition("-")[0] for path in (workflow.results / "specs").iterdir()} == {
        "pool",
        "membership",
        "run.json",
    }


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("/usr/bin:/bin", f"{PROGRAMS}:/usr/bin:/bin"),
        (f"/mine:{PROGRAMS}:/bin", f"/mine:{PROGRAMS}:/bin"),
        ("", f"{PROGRAMS}:"),
    ],
    ids=["missing", "behind the user's own", "empty"],
)
def test_a_path_that_names_the_environment_is_left_alone(
    before: str, after: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", before)
    prepend_environment()
    assert os.environ["PATH"] == after
    prepend_environment()
    assert os.environ["PATH"] == after


def test_planning_imports_no_torch() -> None:
    """Every Snakemake process parses the rules, on SLURM one more for each job."""
    source = (ROOT / "workflow" / "rules" / "common.smk").read_text()
    lines = source[: source.index("try:")]
    imports = [ast.unparse(node) for node in ast.parse(lines).body if isinstance(node, ast.Import | ast.ImportFrom)]
    assert any("mia_audit" in line for line in imports)
    heavy = {"torch", "timm", "matplotlib", "polars", "pyarrow", "scipy", "sklearn"}
    code = f"import sys\n{chr(10).join(imports)}\nprint(sorted({heavy} & set(sys.modules)))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout == "[]\n"
