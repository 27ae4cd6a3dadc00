"""The wheel, installed where there is no checkout: what it holds, and the tiny audit in a folder of the user's."""

import re
import shutil
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from ..installation import ROOT, Environment, build_wheel

VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("installed")]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel."""
    return build_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """Install the wheel into a fresh environment."""
    return Environment.from_wheel(wheel, tmp_path_factory.mktemp("environment"))


def test_the_wheel_holds_the_whole_workflow_and_no_tests(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        entries = {entry.filename: entry.external_attr >> 16 for entry in archive.infolist()}
    wanted = [path.relative_to(ROOT) for path in (ROOT / "workflow").rglob("*") if path.is_file()]
    assert len(wanted) > 15
    missing = [path for path in wanted if f"mia_audit/{path}" not in entries]
    assert missing == []
    assert entries["mia_audit/workflow/profiles/slurm/bin/sacct"] & 0o100
    assert {"mia_audit/config/schema.json", "mia_audit/report/templates/report.html.j2"} <= set(entries)
    assert any(name.endswith("licenses/LICENSE") for name in entries)
    packages = {name.partition("/")[0].partition("-")[0] for name in entries}
    assert packages == {"mia_audit", "snakemake_logger_plugin_mia_audit"}


def test_the_environment_sees_the_wheel_alone(environment: Environment, tmp_path: Path) -> None:
    found = environment.output(["-c", "import mia_audit; print(mia_audit.__file__, mia_audit.SNAKEFILE)"], tmp_path)
    assert all(Path(path).is_relative_to(environment.folder) for path in found.split())
    assert environment.mia_audit("--version", folder=tmp_path).split()[1] == VERSION


def test_four_commands_lead_from_the_wheel_to_the_report_of_a_table(tmp_path: Path, environment: Environment) -> None:
    """The first of them, pip install, made the environment; an audit stays in the folder of its config."""
    mine = tmp_path / "mine"
    mine.mkdir()
    rows = (f"{20 + row % 60},{row % 7},{'yes' if row % 3 else 'no'}" for row in range(300))
    (mine / "mine.csv").write_text("age,visits,ill\n" + "\n".join(rows) + "\n")
    environment.mia_audit("init", "mine.csv", "--label", "ill", "--no-estimate", folder=mine)
    config = yaml.safe_load((mine / "mine.yaml").read_text())
    # a fraction of the time that init's own take
    config["membership"]["models"], config["training"]["epochs"], config["mechanisms"] = 4, 2, {"none": {}}
    config["attacks"] = {"methods": ["threshold", "loss-lira"], "likelihoods": ["pooled"]}
    (mine / "mine.yaml").write_text(yaml.safe_dump(config))
    environment.mia_audit("check", "mine.yaml", folder=mine)
    planned = environment.mia_audit("plan", "mine/mine.yaml", "--records-per-second", "1000", folder=tmp_path)
    assert " models; " in planned
    assert "Report" in environment.mia_audit("run", "mine/mine.yaml", "--cores", "2", folder=tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
    assert {path.name for path in mine.iterdir()} == {"mine.csv", "mine.yaml", "results", ".snakemake"}
    assert (mine / "results" / "mine" / "report.html").is_file()


@pytest.mark.parametrize("deployed", [False, True])
def test_the_workflow_as_a_module(
    deployed: bool, tmp_path: Path, tiny: dict[str, Any], environment: Environment
) -> None:
    """The Snakefile of config/README.md, with the package's workflow, and as snakedeploy writes it with a copy of the repository's."""
    (snakefile,) = re.findall(
        r"```python\n(import mia_audit\n.*?)```", (ROOT / "config" / "README.md").read_text(), re.DOTALL
    )
    if deployed:
        shutil.copytree(ROOT / "workflow", tmp_path / "tag" / "workflow")
        snakefile = snakefile.replace("import mia_audit\n", "").replace(
            "mia_audit.SNAKEFILE", '"tag/workflow/Snakefile"'
        )
    assert ("mia_audit" in snakefile) != deployed
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(tiny))
    (tmp_path / "Snakefile").write_text(snakefile)
    wanted = "results/tiny/pools/digits/membership.parquet"  # from there on a job is like any other
    environment.output(["-m", "snakemake", "--cores", "2", wanted], tmp_path)
    assert (tmp_path / wanted).is_file()
    assert "report" in environment.output(["-m", "snakemake", "--cores", "2", "--dry-run"], tmp_path)
