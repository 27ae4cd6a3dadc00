"""The run file, which the workflow writes when it starts: how jobs compute, and the limits of the machines on which they run.

Jobs read this file and are not run again when it changes. Jobs that can never fit in memory, and models and signals that
cannot fit on disk, are rejected before any model is trained: models with an architecture.json at once, all others by the
job that writes this file (`mia-audit architecture`).
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import Field

from mia_audit.config.expand import families_of, floor_of, group_of, kept_models, settings, trained_per_record
from mia_audit.config.load import check_audit, parse
from mia_audit.config.schema import Audit, Compute
from mia_audit.errors import UserError
from mia_audit.planning.requests import refuse_too_large
from mia_audit.sections import Section
from mia_audit.signals.families import columns

FILE = "run.json"

Usage = Callable[[Path], "tuple[int, int, int]"]
"""Returns total, used and free bytes of the file system of a folder."""


class Run(Section):
    """How the jobs of an audit compute, and their limits; the defaults are those of a command that is called by hand."""

    compute: Compute = Compute()
    private: tuple[str, ...] = ()
    """Architectures that some mechanism trains on per-record gradients."""
    floors: dict[str, float] = Field(default_factory=dict)
    """The test accuracy that a setting's first models must reach, by {dataset}/{architecture}/{mechanism}."""
    config: dict[str, Any] = Field(default_factory=dict)
    """The config, with the device on which models are trained."""
    megabytes: int | None = None
    """The largest memory that a job may have, if it is known."""

    @classmethod
    def read(cls, path: Path | None) -> Run:
        """Read a run file; without one, return the defaults. UserError if it is no run file."""
        if path is None:
            return cls()
        try:
            return parse(cls, json.loads(path.read_text(encoding="utf-8")), str(path))
        except (OSError, ValueError):
            raise UserError(f"{path}: expected the run file that the workflow writes when it starts") from None


def write(path: Path, audit: Audit, config: Mapping[str, Any], device: str, megabytes: int | None) -> None:
    """Write the run file of an audit, given its config, the device on which it trains, and the largest memory of a job, if it is known."""
    from mia_audit.storage.atomic import write_text  # planning imports no pyarrow

    trained = {(one.dataset, one.architecture, one.mechanism) for one in settings(audit) if one.trained}
    run = {
        "compute": audit.compute.model_dump(mode="json"),
        "private": [name for name in audit.architectures if trained_per_record(audit, name)],
        "floors": {"/".join(names): floor for names in sorted(trained) if (floor := floor_of(audit, *names))},
        "config": {**config, "compute": {**config.get("compute", {}), "device": device}},
        "megabytes": megabytes,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, json.dumps(run, default=str) + "\n")


def refuse(path: Path, results: Path) -> None:
    """Raise UserError for the first architecture in the results whose jobs fit no machine, or whose models do not fit on disk."""
    known = _limits(Run.read(path), str(path))
    for described in sorted(results.glob("*/*/architecture.json")):
        known.check(described.parent, json.loads(described.read_text(encoding="utf-8")))


def refuse_model(run: Run, group: Path, metadata: Mapping[str, Any], records: int) -> None:
    """Do what `refuse` does for one architecture. `group` is its folder, and `records` the number of records in its pool."""
    if run.config:
        _limits(run, FILE).check(group, metadata, records)


@dataclass(frozen=True)
class Limits:
    """The limits of an audit's jobs: megabytes of memory, if they are known."""

    audit: Audit
    megabytes: int | None

    def check(self, group: Path, metadata: Mapping[str, Any], records: int = 0) -> None:
        """Raise UserError if the model with this folder does not fit; models of earlier configs are not checked."""
        dataset, architecture = group.parent.name, group.name
        if architecture not in self.audit.architectures or dataset not in self.audit.datasets:
            return
        if self.megabytes:
            refuse_too_large(self.audit, architecture, metadata, self.megabytes)
        refuse_full_disk(self.audit, dataset, architecture, metadata, group, records)


def _limits(run: Run, where: str) -> Limits:
    return Limits(check_audit(run.config, where), run.megabytes)


def refuse_full_disk(
    audit: Audit,
    dataset: str,
    architecture: str,
    metadata: Mapping[str, Any],
    group: Path,
    records: int,
    usage: Usage = shutil.disk_usage,
) -> None:
    """Raise UserError if the models that are still to be trained, with their signals, need more bytes than are free."""
    counts = [audit.number_of_models(setting.mechanism) for setting in group_of(audit, dataset, architecture)]
    models = sum(counts)
    there = sum(1 for path in group.glob("*/models/shadow-*") if path.is_dir())
    of_model = families_of(audit)[architecture]
    stored = sum(len(columns(family, options)) for family, options in of_model.items())
    left = max(models - there, 0)
    weights = weights_bytes(audit, metadata) * min(left, most_weights(audit, counts))
    needed, free = weights + signals_bytes(stored, records) * left, usage(_existing(group))[2]
    if needed > free:
        raise UserError(
            f"architectures.{architecture} on {dataset}: {models:,} models, of which {there:,} exist, need another"
            f" {needed / 1e9:,.1f} GB with their signals, but {free / 1e9:,.1f} GB are free at {group}: make room, or lower"
            " membership.models"
        )


def most_weights(audit: Audit, counts: Sequence[int]) -> int:
    """Return how many models have weights on disk at once, from the settings' numbers of models.

    If weights are temporary, these are all models of the largest setting, and the kept models of the others.
    """
    temporary = audit.compute.weights == "temporary"
    return max(counts) + kept_models(audit) * (len(counts) - 1) if temporary else sum(counts)


def weights_bytes(audit: Audit, metadata: Mapping[str, Any]) -> int:
    """Return the bytes that a shadow model's weights take on disk; 0 if the user's own code stores them."""
    stored = int(metadata.get("stored_bytes", 0))
    return stored // 2 if audit.compute.weights == "bf16" else stored


def signals_bytes(signals: int, cells: int) -> int:
    """Return the bytes of signals for this many records × models, in the tables of models and in that of the setting."""
    return 2 * 4 * (signals + 3) * cells  # the columns in addition to shadow, record and member


def _existing(path: Path) -> Path:
    path = path.absolute()
    while not path.is_dir():
        path = path.parent
    return path
