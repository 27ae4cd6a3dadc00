"""Refuse what can never fit, before any model is trained: jobs on models in memory, and models and signals on disk.

The workflow writes what it knows of the machines to a file as it starts. Models that are described by then are checked at once,
all others by the job that describes them (`mia-audit architecture`).
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
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
"""Total, used and free bytes of the file system of a folder."""


def write(path: Path, config: Mapping[str, Any], megabytes: int | None) -> None:
    """Write the audit's config and the memory that a job can have at most, where it is known."""
    from mia_audit.storage.atomic import write_text  # planning imports no pyarrow

    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, json.dumps({"config": config, "megabytes": megabytes}, default=str) + "\n")


def refuse(path: Path, results: Path) -> None:
    """Raise UserError for the first model described in the results whose jobs fit no machine, or whose models do not fit the disk."""
    known = _read(path)
    for described in sorted(results.glob("*/*/architecture.json")):
        known.check(described.parent, json.loads(described.read_text(encoding="utf-8")))


def refuse_model(path: Path, group: Path, metadata: Mapping[str, Any], records: int) -> None:
    """Raise UserError as `refuse` does for one model; `group` is its folder, and `records` are those of its pool."""
    if path.exists():  # not where a command is called by hand
        _read(path).check(group, metadata, records)


@dataclass(frozen=True)
class Limits:
    """What an audit's models are held to: the megabytes that a job can have, where that is known."""

    audit: Audit
    megabytes: int | None

    def check(self, group: Path, metadata: Mapping[str, Any], records: int = 0) -> None:
        """Raise UserError where the model with this folder does not fit; one of an earlier config is not judged."""
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
    """Raise UserError where the models that are still to be trained, with their signals, take more bytes than are free."""
    models = audit.membership.models * len(group_of(audit, dataset, architecture))
    there = sum(1 for path in group.glob("*/models/shadow-*") if path.is_dir())
    of_model = families_of(audit)[architecture]
    stored = sum(len(columns(family, options)) for family, options in of_model.items())
    left = max(models - there, 0)
    weights = weights_bytes(audit, metadata) * min(left, most_weights(audit, models))
    needed, free = weights + signals_bytes(stored, records) * left, usage(_existing(group))[2]
    if needed > free:
        raise UserError(
            f"architectures.{architecture} on {dataset}: {models:,} models, {there:,} of them there, take {needed / 1e9:,.1f} GB more with"
            f" their signals, but {free / 1e9:,.1f} GB are free at {group}: make room, or lower membership.models"
        )


def most_weights(audit: Audit, models: int) -> int:
    """Return how many of so many models have weights at a time: where they are temporary, all of one setting and those that are kept."""
    each = audit.membership.models
    return models if audit.compute.weights != "temporary" else each + kept_models(audit) * (models // each - 1)


def weights_bytes(audit: Audit, metadata: Mapping[str, Any]) -> int:
    """Return the bytes that a shadow model's weights take on disk; 0 where somebody else's code stores them."""
    stored = int(metadata.get("stored_bytes", 0))
    return stored // 2 if audit.compute.weights == "bf16" else stored


def signals_bytes(signals: int, cells: int) -> int:
    """Return the bytes of so many signals of so many records × models: in the models' own tables, and in the setting's."""
    return 2 * 4 * (signals + 3) * cells  # beside shadow, record and member


def _existing(path: Path) -> Path:
    path = path.absolute()
    while not path.is_dir():
        path = path.parent
    return path
