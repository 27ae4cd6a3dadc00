"""Estimators on disk, in skops' format: data with the names of types, and no pickle. The same model gives the same bytes."""

from __future__ import annotations

import importlib
import json
import zipfile
from collections.abc import Iterable
from io import BytesIO
from pathlib import Path
from typing import Any

from mia_audit.errors import UserError, first_line
from mia_audit.registry import MODULE
from mia_audit.storage import atomic_write

FILE = "estimator.skops"

SCHEMA = "schema.json"
"""The file inside a .skops archive that describes the model; the other files hold its arrays."""

TRUSTED = ("sklearn", "numpy", "scipy", "collections")
"""Packages whose types every stored estimator may contain."""

INSTALL = "install it with: pip install 'mia-audit[estimators]'"


def save_estimator(estimator: Any, folder: Path) -> None:
    """Write an estimator into a folder; UserError if skops cannot store it."""
    skops = _skops()
    try:
        stored = skops.dumps(estimator)
    except Exception as error:  # skops raises various errors for unknown objects
        raise UserError(f"a {type(estimator).__name__} cannot be stored by skops: {first_line(error)}") from None
    with atomic_write(folder / FILE) as partial:
        partial.write_bytes(_same_bytes(stored))


def load_estimator(folder: Path, packages: Iterable[str]) -> Any:
    """Open an estimator that contains only types of `packages`, scikit-learn, NumPy, SciPy and the standard library's containers.

    Raises UserError, which names the file, if the file is missing, damaged, or contains any other type.
    """
    skops, path = _skops(), folder / FILE
    if not path.exists():
        raise UserError(f"{path}: no such file; expected an estimator")
    try:
        types = skops.get_untrusted_types(file=path)
    except Exception as error:  # zipfile, json and NumPy raise various errors for a damaged archive
        raise UserError(f"{path}: damaged, or not an estimator: {first_line(error)}") from None
    allowed = {*TRUSTED, *packages}
    if foreign := [name for name in types if not _is_type_of(name, allowed)]:
        raise UserError(
            f"{path}: contains a {foreign[0]}, which is not a type of {', '.join(sorted(allowed))}; for models of other packages,"
            " write a script that imports these packages"
        )
    try:
        return skops.load(path, trusted=types)
    except Exception as error:
        raise UserError(f"{path}: damaged, or written by another version of its library: {first_line(error)}") from None


def _skops() -> Any:
    try:
        import skops.io
    except ImportError:
        raise UserError(f"estimators are stored by skops, which is missing; {INSTALL}") from None
    return skops.io


def _is_type_of(name: str, packages: set[str]) -> bool:
    """Return whether a dotted name is a type of one of the packages, or of the user's own file."""
    module, _, last = name.rpartition(".")
    if module.startswith(MODULE):
        return True
    if module.partition(".")[0] not in packages:
        return False
    try:
        return isinstance(getattr(importlib.import_module(module), last, None), type)
    except ImportError:
        return False


def _same_bytes(stored: bytes) -> bytes:
    """Replace skops' memory addresses and times in an archive by numbers in the order of its schema."""
    with zipfile.ZipFile(BytesIO(stored)) as archive:
        contents = {name: archive.read(name) for name in archive.namelist()}
    numbers: dict[int, int] = {}
    names: dict[str, str] = {}

    def renumber(node: Any) -> Any:
        if isinstance(node, list):
            return [renumber(part) for part in node]
        if not isinstance(node, dict):
            return node
        renewed: dict[str, Any] = {}
        for key, value in node.items():
            if key == "__id__":
                renewed[key] = numbers.setdefault(value, len(numbers))
            elif key == "file" and isinstance(value, str) and value in contents:
                renewed[key] = names.setdefault(value, f"{len(names)}{Path(value).suffix}")
            else:
                renewed[key] = renumber(value)
        return renewed

    schema = json.dumps(renumber(json.loads(contents[SCHEMA]))).encode()
    written = BytesIO()
    with zipfile.ZipFile(written, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in [*((new, contents[old]) for old, new in names.items()), (SCHEMA, schema)]:
            archive.writestr(zipfile.ZipInfo(name), data, zipfile.ZIP_DEFLATED)
    return written.getvalue()
