"""The digests of results: those in tables, pools and weights, those in provenance.json, and those in SHA256SUMS."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

from mia_audit.errors import UserError, first_line
from mia_audit.models.weights import WRITTEN, read_weights
from mia_audit.pools.store import ARRAY, read_records
from mia_audit.seeds import folders_of_seeds
from mia_audit.storage import digests, table_metadata
from mia_audit.storage.digests import CARD, differences, provenance_differences
from mia_audit.storage.tables import RETRAIN, STAMPS
from mia_audit.training.stored import MASKS, damaged_file


def complaints(results: Path) -> Iterator[str]:
    """Yield a line for every file that differs from its own digest, provenance.json or SHA256SUMS."""
    if (results / CARD).exists():
        yield from differences(results)
        return
    yield from damages(results)
    for folder in (results, *folders_of_seeds(results)):
        yield from provenance_differences(folder)
        yield from differences(folder)


def files_with_digests(results: Path) -> list[Path]:
    """List the tables, pools and weights of results; UserError if there are none. A release has none: its files are of any program."""
    if (results / CARD).exists():
        return []
    files = [path for path in sorted(results.rglob("*")) if path.suffix in CHECKS]
    files = [path for path in files if not any(part.startswith(".") for part in path.relative_to(results).parts)]
    if not files:
        raise UserError(f"{results}: no tables or models there; expected the results of an audit, results/NAME")
    return files


def damages(results: Path) -> Iterator[str]:
    """Yield a line for every table, pool and weights whose content does not match its digest."""
    for path in files_with_digests(results):
        try:
            CHECKS[path.suffix](path)
        except UserError as error:
            yield str(error)


def _table(path: Path) -> None:
    if digests.state(path) != "whole":
        raise UserError(f"{path}: truncated or damaged: delete it and run again")
    if path.parent.name == "models" and (match := re.fullmatch(r"shadow-(\d+)\.parquet", path.name)):
        _model(path, int(match[1]))


def _model(path: Path, shadow: int) -> None:
    """Check that the files of a model match the digests in its table."""
    if damaged := damaged_file(path.parent, shadow, table_metadata(path, "training")):
        raise UserError(
            f"{damaged}: missing, or does not match its digest in {path.name}. Delete {path.parent / STAMPS} and run again:"
            f" {RETRAIN}"
        )


def _pool(path: Path) -> None:
    read_records(path.parent, path.stem)
    if not table_metadata(path.with_suffix(".parquet"), "records").get(ARRAY):
        raise UserError(
            f"{path}: {path.stem}.parquet beside it does not hold the digest of this file, so this audit did not write it"
        )


def _weights(path: Path) -> None:
    from safetensors import SafetensorError, safe_open

    read_weights(path)
    try:
        with safe_open(path, framework="np") as file:
            written = WRITTEN in (file.metadata() or {})
    except (SafetensorError, OSError) as error:
        raise UserError(f"{path}: damaged ({first_line(error)})") from None
    if not written and path.name != MASKS:
        raise UserError(
            f"{path}: does not contain the digest that an audit writes into weights, so this audit did not write it"
        )


CHECKS: dict[str, Callable[[Path], None]] = {".parquet": _table, ".npy": _pool, ".safetensors": _weights}
"""Checks by the endings of files that contain their own digest, or whose digest is in a file beside them."""
