"""Reject jobs that can never fit in memory, and models and signals that cannot fit on disk, before any model is trained.

When the workflow starts, it writes the machines' limits to a file. Models with an architecture.json are checked at
once, all others by the job that writes this file (`mia-audit architecture`).
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mia_audit.config.expand import families_of, group_of, kept_models
from mia_audit.config.load import check_audit
from mia_audit.config.schema import Audit
from mia_audit.errors import UserError
from mia_audit.planning.requests import refuse_too_large
from mia_audit.signals.families import columns

FILE = "limits.json"

Usage = Callable[[Path], "tuple[int, int, int]"]
"""Returns total, used and free bytes of the file system of a folder."""


def write(path: Path, config: Mapping[str, Any], megabytes: int | None) -> None:
    """Write the audit's config and, if it is known, the largest memory that a job may have."""
    from mia_audit.storage.atomic import write_text  # planning imports no pyarrow

    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, json.dumps({"config": config, "megabytes": megabytes}, default=str) + "\n")


def refuse(path: Path, results: Path) -> None:
    """Raise UserError for the first architecture in the results whose jobs fit no machine, or whose models do not fit on disk."""
    known = _read(path)
    for described in sorted(results.glob("*/*/architecture.json")):
        known.check(described.parent, json.loads(described.read_text(encoding="utf-8")))


def refuse_model(path: Path, group: Path, metadata: Mapping[str, Any], records: int) -> None:
    """Do what `refuse` does for one architecture. `group` is its folder, and `records` the number of records in its pool."""
    if path.exists():  # the file is missing if a command is called by hand
        _read(path).check(group, metadata, records)


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


def _read(path: Path) -> Limits:
    known = json.loads(path.read_text(encoding="utf-8"))
    return Limits(check_audit(known["config"], str(path)), known["megabytes"])


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
