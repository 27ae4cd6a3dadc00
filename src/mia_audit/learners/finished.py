"""Import finished models, stored by other software, into the folder that a learner opens."""

from __future__ import annotations

from pathlib import Path
from shutil import copy2, copytree

from mia_audit.errors import UserError
from mia_audit.learners.protocol import Learner
from mia_audit.storage import atomic_write

WEIGHTS_SUFFIXES = (".safetensors", ".pth", ".pt", ".bin")
"""Endings of files that hold the weights of a torch module."""


def adopt(learner: Learner, path: Path, folder: Path, where: str) -> None:
    """Import a finished model into an existing, empty folder, and open it there.

    Raises UserError, which begins with `where`, if the path does not exist or is not a model of that learner.
    """
    if not path.exists():
        raise UserError(f"{where}: {path}: no such file or folder; expected a finished model")
    try:
        learner.adopt(path, folder)
        learner.load(folder)
    except UserError as error:
        raise UserError(f"{where}: {str(error).replace(str(folder), str(path))}") from None


def copy_into(folder: Path, path: Path, name: str = "") -> None:
    """Copy a file, or the contents of a folder, into a folder; a file is renamed to `name` if given."""
    if path.is_dir():
        copytree(path, folder, dirs_exist_ok=True)
        return
    with atomic_write(folder / (name or path.name)) as partial:
        copy2(path, partial)
