"""The stages of the workflow for a plain audit, in one process: libraries are imported once."""

from pathlib import Path

from mia_audit.cli import main
from mia_audit.config import expand, specs
from mia_audit.config.schema import Audit
from mia_audit.config.specs import ReportSpec


def stage(command: str, spec: Path, **places: object) -> None:
    """Run one of the workflow's stages in this process: libraries are imported once."""
    words = (word for name, value in places.items() for word in (f"--{name.replace('_', '-')}", str(value)))
    assert main([command, "--spec", str(spec), *words]) == 0, (command, places)


def run_stages(audit: Audit, results: Path) -> None:
    """Run what the workflow runs for an audit of one data set, from the pool to the report, without its figures."""
    (dataset,) = audit.datasets
    written = results / "specs"
    pool, design = results / "pools" / dataset, results / "pools" / dataset / "membership.parquet"
    stage("pool", specs.PoolSpec.from_audit(audit, dataset).write(written), out=pool)
    records = pool / "records.parquet"
    stage("membership", specs.MembershipSpec.from_audit(audit, dataset).write(written), records=records, out=design)
    for name in audit.architectures:
        spec = specs.ArchitectureSpec.from_audit(audit, name).write(written)
        stage("architecture", spec, pool=pool, out=results / dataset / name / "architecture.json")
    for setting in expand.settings(audit):
        known = {"pool": pool, "architecture": results / dataset / setting.architecture / "architecture.json"}
        folder = results / setting.path
        spec = specs.TrainingSpec.from_audit(audit, dataset, setting.architecture, setting.mechanism, setting.epsilon)
        shadows = f"0-{audit.membership.models - 1}"
        stage(
            "train",
            spec.write(written),
            **known,
            shadows=shadows,
            out=folder / "models",
        )
        explained = {"models": folder / "models", "shadows": shadows}
        spec = specs.SignalsSpec.from_audit(audit, dataset, setting.architecture)
        stage("signals", spec.write(written), **known, **explained, out=folder / "signals")
        spec = specs.MergeSpec.from_audit(audit, setting.architecture, setting.mechanism)
        trained = {"models": folder / "models", "training": folder / "training.parquet"}
        merged = {"signals": folder / "signals", "membership": design, **trained}
        stage("merge", spec.write(written), **merged, out=folder / "signals.parquet")
        found = {"signals": folder / "signals.parquet", "out": folder / "scores.parquet"}
        stage("attack", specs.AttackSpec.from_audit(audit, dataset).write(written), **found)
        found = {"scores": folder / "scores.parquet", "out": folder / "metrics.parquet"}
        stage("evaluate", specs.EvaluationSpec.from_audit(audit).write(written), **found)
    stage("report", ReportSpec.from_audit(audit).write(written), results=results)
