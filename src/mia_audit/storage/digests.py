"""SHA-256 digests embedded in Parquet files, so that damage anywhere in a file is detected before its numbers are used.

The list of an audit's files with their SHA-256, and comparison of the files with it.

The list is `SHA256SUMS` in the format of sha256sum, so `sha256sum --check` can read it. Its own SHA-256 is the audit's
root hash.

The random id of an audit. Unlike a digest, it reveals nothing about the results.
"""

from __future__ import annotations

import hashlib
import re
import secrets
import stat
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Literal

from mia_audit.errors import UserError
from mia_audit.foreign_json import parse_json
from mia_audit.seeds import folders_of_seeds
from mia_audit.storage.atomic import create_once, write_text

KEY = "mia_audit.sha256"
BLANK = "0" * 64
"""The value of KEY in a table's metadata while its digest is computed."""

_MARK = KEY.encode() + b"\x18\x40"
"""The key in Thrift's encoding, followed by the header of a string of 64 bytes."""

_CHUNK = 1 << 22

State = Literal["whole", "damaged", "absent"]


_known: dict[tuple[int, ...], tuple[State, str]] = {}
"""State and SHA-256 of the files that this process has written or checked, by device, inode, size and modification time."""


def embed_digest(path: Path) -> None:
    """Compute the SHA-256 of a finished Parquet file whose metadata have BLANK at KEY, and replace BLANK by this digest.

    Raises ValueError if the metadata have no KEY.
    """
    place = _place(path)
    if place is None:
        raise ValueError(f"{path}: no metadata '{KEY}' for the digest")
    before, after = _around(path, place)
    digest = _joined(before, BLANK, after)
    with path.open("r+b") as file:
        file.seek(place)
        file.write(digest.encode())
    _known[_identity(path)] = ("whole", _joined(before, digest, after))


def state(path: Path) -> State:
    """Return whether a Parquet file matches its digest. A file is read once, and again only after it has changed."""
    return _examined(path)[0]


def sha256(path: Path) -> str:
    """Return the SHA-256 of any file. A file that this process has written or checked is not read again."""
    return _examined(path)[1]


def _examined(path: Path) -> tuple[State, str]:
    identity = _identity(path)
    if identity not in _known:
        _known[identity] = _examine(path)
    return _known[identity]


def _examine(path: Path) -> tuple[State, str]:
    place = _place(path)
    if place is None:
        with path.open("rb") as file:
            return "absent", hashlib.file_digest(file, "sha256").hexdigest()
    with path.open("rb") as file:
        file.seek(place)
        stored = file.read(len(BLANK)).decode("latin-1")
    before, after = _around(path, place)
    return "whole" if stored == _joined(before, BLANK, after) else "damaged", _joined(before, stored, after)


def _identity(path: Path) -> tuple[int, ...]:
    metadata = path.stat()
    return metadata.st_dev, metadata.st_ino, metadata.st_size, metadata.st_mtime_ns


def _place(path: Path) -> int | None:
    """Return the position of the digest: after the mark, in the metadata at the end of the file."""
    with path.open("rb") as file:
        size = file.seek(0, 2)
        file.seek(max(size - 8, 0))
        tail = file.read(8)
        start = size - 8 - int.from_bytes(tail[:4], "little")
        if len(tail) < 8 or tail[4:] != b"PAR1" or start < 0:
            return None
        file.seek(start)
        offset = file.read(size - start).rfind(_MARK)
    return None if offset < 0 else start + offset + len(_MARK)


def _around(path: Path, place: int) -> tuple[hashlib._Hash, bytes]:
    """Return the running digest of the bytes before the embedded one, and the bytes after it."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        left = place
        while part := file.read(min(_CHUNK, left)):
            digest.update(part)
            left -= len(part)
        file.seek(len(BLANK), 1)
        return digest, file.read()


def _joined(before: hashlib._Hash, middle: str, after: bytes) -> str:
    digest = before.copy()
    digest.update(middle.encode("latin-1"))
    digest.update(after)
    return digest.hexdigest()


MANIFEST = "SHA256SUMS"
SIGNATURE = "SHA256SUMS.minisig"
"""The file of minisign's signature of the list, which is neither listed nor complained of."""
LOCAL = ("logs", "benchmarks", "specs")
"""Folders of results that reveal the machine, its paths and the time of an audit: these are neither passed on nor listed."""
CARD = "card.json"
"""The file that only a release has: all of its other files are passed on, whatever their names."""
_LINE = re.compile(r"([0-9a-f]{64})  ([^\n\r\\]+)")


def files_of(root: Path, only: Collection[str] = ()) -> Iterator[Path]:
    """Yield the files of results that are passed on, sorted. Raises UserError for links and anything else that is not a file.

    `only` has the top-level names to include, for a folder that may contain other files.
    """
    whole = (root / CARD).exists()
    repeated = set() if whole else {path.name for path in folders_of_seeds(root)}
    tops = [root / name for name in only if (root / name).exists()] if only else [root]
    for path in sorted(path for top in tops for path in (top.rglob("*") if top.is_dir() else [top])):
        parts = path.relative_to(root).parts
        if parts[0] in repeated and parts[1:] != (MANIFEST,):
            continue  # the seed's own list has the file
        local = parts[0] in LOCAL or any(part.startswith(".") for part in parts)
        if local and not whole:
            continue
        mode = path.lstat().st_mode
        if stat.S_ISDIR(mode):
            continue
        if not stat.S_ISREG(mode):
            raise UserError(f"{path}: a link, or not a regular file; results that are passed on have only these")
        if parts in ((MANIFEST,), (SIGNATURE,)):
            continue
        if set("\n\r\\") & set(path.name):
            raise UserError(f"{path}: its name has a line end or a backslash, which {MANIFEST} cannot list; rename it")
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


IDENTIFIER = ".audit-id"
"""The file of the id in the results, hidden so that SHA256SUMS of finished results does not change."""


def audit_id(results: Path) -> str:
    """Return the random id of an audit, 32 hexadecimal digits; the id is drawn on first use."""
    path = results / IDENTIFIER
    if not path.exists():
        with create_once(path) as partial:
            partial.write_text(secrets.token_hex(16) + "\n", encoding="ascii")
    try:
        identifier = path.read_bytes()[:64].decode("ascii", "replace").strip()
    except OSError as error:
        raise UserError(f"{path}: {(error.strerror or str(error)).lower()}; expected the audit's random id") from None
    if not re.fullmatch(r"[0-9a-f]{32}", identifier):
        raise UserError(f"{path}: damaged; expected the audit's random id, 32 hexadecimal digits")
    return identifier
