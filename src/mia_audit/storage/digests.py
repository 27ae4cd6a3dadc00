"""SHA-256 digests embedded in Parquet files, so that damage anywhere in a file is detected before its numbers are used."""

import hashlib
from pathlib import Path
from typing import Literal

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


def _around(path: Path, place: int) -> tuple["hashlib._Hash", bytes]:
    """Return the running digest of the bytes before the embedded one, and the bytes after it."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        left = place
        while part := file.read(min(_CHUNK, left)):
            digest.update(part)
            left -= len(part)
        file.seek(len(BLANK), 1)
        return digest, file.read()


def _joined(before: "hashlib._Hash", middle: str, after: bytes) -> str:
    digest = before.copy()
    digest.update(middle.encode("latin-1"))
    digest.update(after)
    return digest.hexdigest()
