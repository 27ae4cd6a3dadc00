"""`mia-audit doctor`: check a machine before an audit runs on it."""

import argparse
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from mia_audit.config.load import load_audit
from mia_audit.errors import UserError
from mia_audit.host_memory import available_memory

if TYPE_CHECKING:
    from mia_audit.config.schema import Audit
    from mia_audit.planning.doctor import Finding
    from mia_audit.planning.estimate import Plan


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "config", nargs="?", type=Path, help="the audit's YAML file; its plan is compared with disk and memory"
    )
    parser.add_argument("--checkout", type=Path, default=Path(), help="folder of the workflow and of its results (.)")


def run(options: argparse.Namespace) -> None:
    """Print a line per check; UserError if one of them would stop an audit."""
    audit = load_audit(options.config) if options.config else None
    failed = 0
    for finding in _findings(audit, options.checkout):
        print(f"{finding.verdict:5} {finding.what:16} {finding.says}", flush=True)
        failed += finding.verdict == "fail"
    if failed:
        raise UserError(f"{failed} of the checks failed, which would stop an audit; their lines above say what to do")


def _findings(audit: "Audit | None", checkout: Path) -> "Iterator[Finding]":
    from mia_audit.planning import doctor

    results = checkout / "results"
    yield from doctor.versions(checkout / "envs" / "requirements.lock")
    yield from doctor.file_system(results)
    yield from doctor.slurm(doctor.ask, shutil.which, checkout / "workflow" / "profiles" / "slurm" / "bin" / "sacct")
    import torch

    wanted = audit.compute.device if audit else "auto"
    yield from doctor.gpus(doctor.ask, torch.version.cuda, doctor.cannot_use_cuda, wanted)
    plan = _plan(audit, results / audit.audit) if audit else None
    yield doctor.disk(results, sum(plan.disk.values()) if plan else None)
    stated = audit.compute.memory_mb if audit else None
    available = stated * 10**6 if stated else available_memory()
    yield doctor.memory(max(plan.memory.values(), default=0) if plan else None, available)


def _plan(audit: "Audit", results: Path) -> "Plan":
    """Estimate disk and memory, without timing anything."""
    from mia_audit.planning.estimate import estimate, models_of
    from mia_audit.planning.sizes import size_of

    sizes = {name: size_of(audit, name, results, {}) for name in audit.datasets}
    return estimate(audit, sizes, models_of(audit, sizes), None, {})
