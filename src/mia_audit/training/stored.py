"""Trained shadow models on disk: a folder shadow-{k} with the model, and a table shadow-{k}.parquet that describes its training.

Why this stands below Snakemake, which already decides what is out of date: Snakemake knows jobs, and a job trains a
block of models, because starting a process for each would take longer than training it. Three things are therefore
decided here, model by model:

- An audit that grows trains only new models. The last block gets more models, so its job runs again, and must leave the
  models alone that it finds.
- A killed job continues after its last whole model, and in that model from its last checkpoint.
- A job that Snakemake runs again because a file has a newer time, and not other content, trains nothing.

The key of a training is the digest of everything that the model depends on: the specification, the files that training
reads, and the model's own training set, so that the number of models is no part of it. Nor are versions of packages: an
upgrade retrains nothing, and provenance.json says which versions an audit had. The table is written last and its
metadata hold the key and the digests of the model's files: a folder without its table is not a model. A model is trained
again only if its key or a digest differs; a damaged file is reported, and never read.

Weights may be deleted once the signals are computed (`compute.weights: temporary`). A marker in the folder then says
that this was on purpose, and the table keeps the digests, so that the model still counts as trained. Whatever needs the
weights again is refused with the way to get them back.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from mia_audit.errors import UserError
from mia_audit.storage import read_table, sha256, table_metadata, write_table, write_text
from mia_audit.storage.tables import RETRAIN, STAMPS, diverged_metadata, diverged_models
from mia_audit.training.report import SCHEMA
from mia_audit.training.task import identity

if TYPE_CHECKING:
    import numpy as np
    from jaxtyping import Bool

KEY, FILES = "key", "files"
"""Metadata of a model's table: the key of its training, and the SHA-256 of the model's files by their path in its folder."""


DISCARDED = "discarded.txt"
"""File in the folder of a model whose weights were deleted after its signals were computed."""

MASKS = "masks.safetensors"
"""The published masks of a model's noise, which are never discarded."""


def files_read(pool: Path, architecture: Path, start: Path | None, public: bool) -> list[Path]:
    """List the files that training reads; an array is represented by the table beside it, which holds its digest."""
    weights = [start] if start else []
    return [pool / "records.parquet", architecture, *weights, *([pool / "public.parquet"] if public else [])]


def training_keys(
    shadows: Iterable[int], membership: Bool[np.ndarray, "n k"], spec: Mapping[str, Any], files: Iterable[Path]
) -> dict[int, str]:
    """Return the key of the training of every model in `membership`'s columns.

    `spec` describes the training, and `files` are the files that training reads; an array is represented by the table
    that holds its digest. Versions of packages are not part of a key, so an upgrade does not retrain finished models.
    """
    depends_on = {"spec": dict(spec), "files": {path.name: sha256(path) for path in files}}
    return {
        shadow: identity(shadow=shadow, members=column.nonzero()[0].tolist(), **depends_on)
        for shadow, column in zip(shadows, membership.T, strict=True)
    }


def model_folder(models: Path, shadow: int) -> Path:
    """Return the folder of a model."""
    return models / f"shadow-{shadow}"


def model_table(models: Path, shadow: int) -> Path:
    """Return the path of the table that describes a model's training; models trained elsewhere have none."""
    return models / f"shadow-{shadow}.parquet"


def file_digests(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of every file of a model, by its path in the model's folder."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): sha256(path) for path in paths}


def discard(models: Path, shadows: Iterable[int], keep: int) -> int:
    """Delete the files of finished models, except the first and those numbered below `keep`; return how many models were deleted.

    Their tables stay, so the models still count as trained. A marker is written first, which states that the files were
    deleted on purpose. Raises UserError if a model is damaged.
    """
    trained = [shadow for shadow in shadows if model_folder(models, shadow).is_dir()]
    chosen = [shadow for shadow in trained[1:] if shadow >= keep]
    for shadow in chosen:
        folder = model_folder(models, shadow)
        metadata = table_metadata(model_table(models, shadow), "training")
        if damaged := damaged_file(models, shadow, metadata):
            raise UserError(f"{damaged}: does not match its digest in the model's table: {RETRAIN}")
        write_text(folder / DISCARDED, "The weights were deleted after the model's signals were computed.\n")
        for name in metadata.get(FILES, {}):
            if name != MASKS:
                Path(folder, name).unlink(missing_ok=True)
    return len(chosen)


def require_weights(folder: Path) -> None:
    """Raise UserError if a model's weights were deleted."""
    if (folder / DISCARDED).exists():
        raise UserError(
            f"{folder}: the weights were deleted after the signals were computed (compute.weights: temporary), but are needed again:"
            f" delete {folder.parent}/shadow-*/ and run {RETRAIN}, which trains the same models"
        )


def stated_digests(models: Path, shadow: int, folder: Path) -> dict[str, str]:
    """Return the SHA-256 of every file of a model, or the digests in its table if the files were deleted."""
    if (folder / DISCARDED).exists():
        stated: dict[str, str] = table_metadata(model_table(models, shadow), "training")[FILES]
        return stated
    return file_digests(folder)


def write_training(models: Path, shadow: int, key: str, table: pa.Table) -> None:
    """Write the table of a model whose folder is complete."""
    metadata = {KEY: key, FILES: file_digests(model_folder(models, shadow))}
    write_table(model_table(models, shadow), table, "training", len(table), metadata)


def write_diverged(models: Path, shadow: int, key: str, reason: str) -> None:
    """Write the table of a model whose training diverged, and which has no folder."""
    metadata = {KEY: key, FILES: {}} | diverged_metadata({str(shadow): reason})
    write_table(model_table(models, shadow), SCHEMA.empty_table(), "training", 0, metadata)


def finished(models: Path, shadow: int, key: str) -> pa.Table | None:
    """Return the table of a model that was trained under a key, or that diverged; None if it must be trained.

    A model whose files differ from the digests in its table is reported as damaged on stderr.
    """
    path = model_table(models, shadow)
    if not path.exists():
        return None
    try:
        metadata = table_metadata(path, "training")
        table = read_table(path, "training")
    except UserError as error:
        _warn_damaged(str(error))
        return None
    if metadata.get(KEY) != key:
        return None
    if damaged := damaged_file(models, shadow, metadata):
        _warn_damaged(f"{damaged}: does not match its digest in {path.name}")
        return None
    return table


def damaged_file(models: Path, shadow: int, metadata: dict[str, Any]) -> Path | None:
    """Return a file of a model that is missing or differs from its digest in the table; None if all files match, or were discarded."""
    folder = model_folder(models, shadow)
    if (folder / DISCARDED).exists():
        return None
    for name, digest in metadata.get(FILES, {}).items():
        path = Path(folder, name)
        try:
            same = sha256(path) == digest
        except OSError:
            same = False
        if not same:
            return path
    return None


def _warn_damaged(why: str) -> None:
    print(f"warning: {why}; the model is trained again", file=sys.stderr)


def shadow_folders(models: Path, shadows: Iterable[int], weights: bool = True) -> dict[int, Path]:
    """Return the folders of models by number, without those whose training diverged.

    Raises UserError if a model that did not diverge is missing or, with `weights`, if a model was discarded.
    """
    folders = {}
    for shadow in shadows:
        folder, table = model_folder(models, shadow), model_table(models, shadow)
        if folder.is_dir():
            if weights:
                require_weights(folder)
            folders[shadow] = folder
        elif not (table.exists() and diverged_models(table, "training")):
            raise UserError(
                f"{folder}: no such model; expected shadow model {shadow}. Delete {models / STAMPS} and run again:"
                " only missing models are trained"
            )
    return folders


def first_folder(models: Path) -> Path:
    """Return the folder of the first trained model; UserError if there is none."""
    matches = (re.fullmatch(r"shadow-(\d+)", path.name) for path in models.glob("shadow-*") if path.is_dir())
    numbers = [int(match[1]) for match in matches if match]
    if not numbers:
        raise UserError(f"{models}: no folders shadow-{{k}} there; expected trained shadow models")
    return model_folder(models, min(numbers))
