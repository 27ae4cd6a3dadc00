"""Try the user's own code on a few records before an audit: the workflow's own stages run on a small pool, in a process of their own."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from mia_audit.config import specs
from mia_audit.errors import UserError
from mia_audit.learners.naming import BUILT_IN

if TYPE_CHECKING:
    from mia_audit.config.schema import Audit
    from mia_audit.planning.sizes import Size

RECORDS = 200
"""Number of records (or persons) in the pool on which code is tried, half of them in the training set."""
SECONDS = 120.0
"""Time limit of a trial."""
REPORTED = " (the traceback is above)"
"""The end of an error of the user's code whose traceback was printed; where it is caught, it is not."""
MARK = "mia-audit: "
STAGES = """
import json, sys
from mia_audit.cli import main

sys.exit(next(filter(None, map(main, json.loads(sys.argv[1]))), 0))
"""
"""A process that runs stages until one fails."""


class OutOfTime(Exception):
    """The code did not end within the time limit."""


def tried(audit: Audit, dataset: str, architecture: str, size: Size | None, seconds: float = SECONDS) -> None:
    """Train one model on a few records and query it.

    Raises UserError with the exception of the code and its line, and OutOfTime after the time limit. If the `size` of
    the pool is unknown, all of its records are used.
    """
    section = audit.datasets[dataset]
    units = 0 if size is None else size.persons or size.records
    changes = {"records": RECORDS} if units > RECORDS else {}
    small = audit.model_copy(update={"datasets": {dataset: section.model_copy(update=changes)}})
    where = f"architectures.{architecture}"
    with tempfile.TemporaryDirectory() as name:
        stages = json.dumps(list(_stages(small, dataset, architecture, Path(name))))
        try:
            done = subprocess.run(
                [sys.executable, "-P", "-c", STAGES, stages],
                capture_output=True,
                text=True,
                errors="replace",
                stdin=subprocess.DEVNULL,
                timeout=seconds,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise OutOfTime(f"{where}: its trial on a few records did not end in {seconds:g} s") from None
        if done.returncode:
            said = [line.removeprefix(MARK) for line in done.stderr.splitlines() if line.startswith(MARK)]
            why = said[-1] if said else f"{where}: ended with exit code {done.returncode}"
            raise UserError(f"{why.replace(f'{name}/', '').removesuffix(REPORTED)} (tried on a few records)")


def _stages(audit: Audit, dataset: str, architecture: str, folder: Path) -> Iterator[list[str]]:
    """Yield the commands of the stages; a model of the built-in loop is built, but not trained."""

    def spec(one: specs.Spec) -> list[str]:
        return ["--spec", str(one.write(folder))]

    pool, described = folder / "pool", folder / "architecture.json"
    mechanism, budgets = next(iter(audit.budgets(architecture).items()))
    training = specs.TrainingSpec.from_audit(audit, dataset, architecture, mechanism, budgets[0])
    signals = specs.SignalsSpec.from_audit(audit, dataset, architecture)
    read = ["--pool", str(pool), "--architecture", str(described), "--shadows", "0-0"]
    member = str(pool / "membership.parquet")
    yield ["pool", *spec(specs.PoolSpec.from_audit(audit, dataset)), "--out", str(pool)]
    records = str(pool / "records.parquet")
    yield ["membership", "--records", records, *spec(specs.MembershipSpec.from_audit(audit, dataset)), "--out", member]
    of_model = spec(specs.ArchitectureSpec.from_audit(audit, architecture))
    yield ["architecture", "--pool", str(pool), *of_model, "--out", str(described)]
    if audit.architectures[architecture].learner != BUILT_IN:
        models = str(folder / "models")
        yield ["train", *read, *spec(training), "--out", models]
        out = str(folder / "signals")
        yield ["signals", *read, "--models", models, "--membership", member, *spec(signals), "--out", out]
