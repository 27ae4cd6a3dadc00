"""The list of an audit's files with their SHA-256, and comparison of the files with it.

The list is `SHA256SUMS` in the format of sha256sum, so `sha256sum --check` can read it. Its own SHA-256 is the audit's
root hash.
"""

from __future__ import annotations

import hashlib
import re
import stat
from collections.abc import Collection, Iterator
from pathlib import Path

from mia_audit.errors import UserError
from mia_audit.foreign_json import parse_json
from mia_audit.storage.atomic import write_text

MANIFEST = "SHA256SUMS"
SIGNATURE = "SHA256SUMS.minisig"
"""The file of minisign's signature of the list, which is neither listed nor complained of."""
LOCAL = ("logs", "benchmarks", "specs")
"""Folders of results that reveal the machine, its paths and the time of an audit: these are neither passed on nor listed."""
_LINE = re.compile(r"([0-9a-f]{64})  ([^\n\r\\]+)")


def files_of(root: Path, only: Collection[str] = ()) -> Iterator[Path]:
    """Yield the files of results that are passed on, sorted. Raises UserError for links and anything else that is not a file.

    `only` has the top-level names to include, for a folder that may contain other files.
    """
    tops = [root / name for name in only if (root / name).exists()] if only else [root]
    for path in sorted(path for top in tops for path in (top.rglob("*") if top.is_dir() else [top])):
        parts = path.relative_to(root).parts
        if parts[0] in LOCAL or any(part.startswith(".") for part in parts) or parts in ((MANIFEST,), (SIGNATURE,)):
            continue
        mode = path.lstat().st_mode
        if stat.S_ISDIR(mode):
            continue
        if not stat.S_ISREG(mode):
            raise UserError(
                f"{path}: a link, or not a regular file; results that are passed on may have only regular files"
            )
        if set("\n\r\\") & set(path.name):
            raise UserError(
                f"{path}: the name has a line end or a backslash, which {MANIFEST} cannot list; rename the file"
            )
        yield path


def write_manifest(root: Path, only: Collection[str] = ()) -> str:
    """Write SHA256SUMS of all files in results, or of those that `files_of` yields, and return the root hash."""
    lines = (f"{_sha256(path)}  {path.relative_to(root).as_posix()}\n" for path in files_of(root, only))
    write_text(root / MANIFEST, "".join(lines))
    return root_hash(root)


def root_hash(root: Path) -> str:
    """Return the SHA-256 of SHA256SUMS, which changes with any file that is listed."""
    return _sha256(root / MANIFEST)


def differences(root: Path) -> Iterator[str]:
    """Yield a line for every file that does not match SHA256SUMS, is missing, or is not listed."""
    listed = read_manifest(root / MANIFEST)
    files = {path.relative_to(root).as_posix(): path for path in files_of(root)}
    for name, digest in listed.items():
        if name not in files:
            yield f"{root / name}: missing, but {MANIFEST} lists it"
        elif _sha256(files[name]) != digest:
            yield f"{root / name}: changed since {MANIFEST} was written"
    for name in sorted(files.keys() - listed.keys()):
        yield f"{root / name}: not in {MANIFEST}"


def provenance_differences(root: Path) -> Iterator[str]:
    """Yield a line for every file that provenance.json names, if the file is missing or has another digest."""
    path = root / "provenance.json"
    try:
        stated = parse_json(path.read_text(encoding="utf-8"))
        digests = {**stated["inputs_sha256"], **stated["page_sha256"]}
    except FileNotFoundError:
        return
    except (OSError, ValueError, TypeError, KeyError):
        yield f"{path}: damaged; expected the provenance of a report"
        return
    for name, digest in digests.items():
        if not isinstance(name, str) or Path(name).is_absolute() or ".." in Path(name).parts:
            yield f"{path}: names a file outside the results"
        elif not _is_file(root / name):
            yield f"{root / name}: missing, but provenance.json names it"
        elif _sha256(root / name) != digest:
            yield f"{root / name}: does not match its digest in provenance.json"


def read_manifest(path: Path) -> dict[str, str]:
    """Return the digest of every file that SHA256SUMS lists; UserError if it is missing or damaged."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        raise UserError(f"{path}: no such file; every finished audit has one") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: cannot be read: {error}") from None
    listed = {}
    for number, line in enumerate(lines, 1):
        match = _LINE.fullmatch(line)
        if match is None or match[2] in listed or Path(match[2]).is_absolute() or ".." in Path(match[2]).parts:
            raise UserError(f"{path}, line {number}: damaged; expected a SHA-256 and the path of a file in the results")
        listed[match[2]] = match[1]
    return listed


def _is_file(path: Path) -> bool:
    """Return whether a path from a foreign file is that of a file; a path longer than the system allows is not."""
    try:
        return path.is_file()
    except OSError:
        return False


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
