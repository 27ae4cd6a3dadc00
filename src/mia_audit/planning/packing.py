"""The number of shadow models per job if `compute.shadows_per_job` is `auto`: as many as fit into ten minutes.

Models of a job are trained one after the other, so their number does not affect memory. The number is decided once per
audit and stored in its results, so that a rerun plans the same jobs. No model depends on this number.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mia_audit.config.expand import settings
from mia_audit.config.load import check_audit
from mia_audit.config.schema import Audit
from mia_audit.errors import UserError
from mia_audit.learners.naming import BUILT_IN
from mia_audit.training.task import identity

if TYPE_CHECKING:
    from mia_audit.planning.costs import Costs
    from mia_audit.planning.plan import Models
    from mia_audit.planning.sizes import Size

AUTO = "auto"

FILE = "shadows_per_job.json"
"""The file with the decided number, in the folder `specs` of the results."""

SECONDS = 600.0
"""Largest number of seconds of a job, excluding its start-up. The start-up takes 1.5 % of this time."""

GRID = (1, *sorted(digit * 2**power for digit in (2, 3) for power in range(17)))
"""The possible numbers of models. They are so far apart that two timings rarely give different numbers."""


def packed(audit: Audit, config: Mapping[str, Any], results: Path, keep: bool) -> Audit:
    """Return the audit with a decided number of models per job. With `keep`, a timed number is stored in the results.

    Times are measured in a separate process, because the workflow does not import PyTorch. Raises UserError if they
    cannot be measured.
    """
    known = kept(audit, results)
    if known is None:
        words = [sys.executable, "-P", "-m", "mia_audit.planning.packing", str(results)]
        given = json.dumps(dict(config), default=str)
        done = subprocess.run(words, input=given, capture_output=True, text=True, check=False)
        if done.returncode:
            raise UserError(f"compute.shadows_per_job: auto: {done.stderr.strip().splitlines()[-1]}")
        known = int(done.stdout)
        if keep:
            from mia_audit.storage.atomic import write_text  # planning imports no pyarrow

            path = results / "specs" / FILE
            path.parent.mkdir(parents=True, exist_ok=True)
            write_text(path, json.dumps({"key": _key(audit), "models": known}) + "\n")
    return with_number(audit, known)


def kept(audit: Audit, results: Path) -> int | None:
    """Return the number that was decided earlier for the same training, or None."""
    try:
        known = json.loads((results / "specs" / FILE).read_text(encoding="utf-8"))
        return int(known["models"]) if known["key"] == _key(audit) else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def with_number(audit: Audit, models: int) -> Audit:
    """Return the audit with this number of shadow models per job."""
    return audit.model_copy(update={"compute": audit.compute.model_copy(update={"shadows_per_job": models})})


def models_per_job(audit: Audit, sizes: Mapping[str, Size], models: Models, costs: Costs) -> int:
    """Return the number of models of the slowest setting that fit into a job, rounded down to the `GRID`.

    Raises UserError if the user's own code trains a model, because its time is unknown.
    """
    from mia_audit.planning.plan import training_seconds

    foreign = [name for name, section in audit.architectures.items() if section.learner != BUILT_IN]
    if foreign:
        raise UserError(
            f"architectures.{foreign[0]} is trained by your own code, which is not timed: give a number of models"
        )
    fitting = float(GRID[-1])
    for setting in settings(audit):
        if setting.trained:
            metadata = models[setting.dataset, setting.architecture]
            each, once = training_seconds(audit, setting, sizes[setting.dataset], metadata, costs)
            fitting = min(fitting, (SECONDS - once) / each) if each else fitting
    return max((number for number in GRID if number <= fitting), default=1)


def _key(audit: Audit) -> str:
    """Return a digest of everything that training and its time depend on, except the number of models."""
    parts = audit.model_dump(mode="json", include={"datasets", "architectures", "mechanisms", "training"})
    device, threads, batch = audit.compute.device, audit.compute.threads, audit.compute.micro_batch
    return identity(**parts, compute=[device, threads, batch])


def _main(results: Path) -> None:
    """Print the number for the config on standard input."""
    from mia_audit.planning.costs import Costs
    from mia_audit.planning.plan import models_of
    from mia_audit.planning.sizes import size_of
    from mia_audit.runtime.device import device_for

    audit = check_audit(json.load(sys.stdin), "config")
    sizes = {name: size_of(audit, name, results, {}) for name in audit.datasets}
    costs = Costs(audit.compute.micro_batch, device_for(audit.compute.threads, audit.compute.device))
    print(models_per_job(audit, sizes, models_of(audit, sizes), costs))


if __name__ == "__main__":
    try:
        _main(Path(sys.argv[1]))
    except UserError as error:
        print(error, file=sys.stderr)
        sys.exit(2)
