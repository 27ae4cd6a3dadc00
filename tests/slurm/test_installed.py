"""The wheel on a real SLURM: jobs find the workflow in the environment, and data and config in the user's folder."""

from pathlib import Path
from typing import Any

import yaml

from ..installation import ROOT, Environment, build_wheel


def test_models_are_trained_in_a_folder_of_its_own(
    tmp_path: Path, tiny: dict[str, Any], cluster: Any, profile: Path, tmp_path_factory: Any
) -> None:
    wheel = build_wheel(tmp_path_factory.mktemp("wheel"))
    environment = Environment.from_wheel(wheel, tmp_path_factory.mktemp("environment"))
    tiny |= {"mechanisms": {"none": {}}}
    tiny["architectures"]["vit"] = {name: tiny["architectures"]["vit"][name] for name in ("model", "parameters")}
    tiny["compute"]["shadows_per_job"] = 5
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(tiny))
    options = ["--workflow-profile", str(profile), "--slurm-keep-successful-logs", *cluster.quick]
    wanted = "results/tiny/digits/vit/none-epsinf/models/.jobs/000-004"  # from there on a job is like any other
    environment.mia_audit("run", "tiny.yaml", "--", *options, wanted, folder=tmp_path, more=cluster.environment)
    assert (tmp_path / wanted).is_file()
    # what a job was given and said: nothing in it leads to the checkout
    logs = [path for path in (tmp_path / "results").rglob("*.log") if "slurm" in str(path)]
    assert len(logs) >= 3
    read = "".join(path.read_text() for path in logs) + cluster.output(
        "sacct", "-X", "-n", "-P", "-o", "SubmitLine,WorkDir"
    )
    assert str(environment.folder) in read
    assert not any(f"{ROOT / name}/" in read for name in ("src", "workflow", "config"))
