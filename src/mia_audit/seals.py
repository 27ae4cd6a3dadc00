"""Digests that files carry inside, so that damage anywhere in them is noticed before a number of theirs is used."""

import hashlib
from pathlib import Path
from typing import Literal

KEY = "mia_audit.sha256"
BLANK = "0" * 64
"""What a table's metadata say under KEY until it is sealed, and what counts there when its digest is taken."""

_MARK = KEY.encode() + b"\x18\x40"
"""How Thrift writes the key, and that a string of 64 bytes follows."""

_CHUNK = 1 << 22

State = Literal["whole", "damaged", "unsealed"]


_known: dict[tuple[int, ...], tuple[State, str]] = {}
"""State and SHA-256 of the files that this process has sealed or checked, by what tells whether a file has changed since."""


def seal(path: Path) -> None:
    """Write a finished Parquet file's SHA-256, taken with BLANK in its place, where its metadata say BLANK."""
    place = _place(path)
    if place is None:
        raise ValueError(f"{path}: no metadata '{KEY}' to seal")
    before, behind = _around(path, place)
    digest = _joined(before, BLANK, behind)
    with path.open("r+b") as file:
        file.seek(place)
        file.write(digest.encode())
    _known[_identity(path)] = ("whole", _joined(before, digest, behind))


def state(path: Path) -> State:
    """Tell whether a Parquet file is as it was sealed; a file is read once for that, and again only if it has changed."""
    return _examined(path)[0]


def sha256(path: Path) -> str:
    """Return the SHA-256 of any file; one that was sealed or checked here is not read again."""
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
            return "unsealed", hashlib.file_digest(file, "sha256").hexdigest()
    with path.open("rb") as file:
        file.seek(place)
        sealed = file.read(len(BLANK)).decode("latin-1")
    before, behind = _around(path, place)
    return "whole" if sealed == _joined(before, BLANK, behind) else "damaged", _joined(before, sealed, behind)


def _identity(path: Path) -> tuple[int, ...]:
    facts = path.stat()
    return facts.st_dev, facts.st_ino, facts.st_size, facts.st_mtime_ns


def _place(path: Path) -> int | None:
    """Return where the digest stands: behind the mark, in the metadata at the end of the file."""
    with path.open("rb") as file:
        size = file.seek(0, 2)
        file.seek(max(size - 8, 0))
        tail = file.read(8)
        start = size - 8 - int.from_bytes(tail[:4], "little")
        if len(tail) < 8 or tail[4:] != b"PAR1" or start < 0:
            return None
        file.seek(start)
        found = file.read(size - start).rfind(_MARK)
    return None if found < 0 else start + found + len(_MARK)


def _around(path: Path, place: int) -> tuple["hashlib._Hash", bytes]:
    """Return the digest begun with what stands before the seal, and the bytes behind it."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        left = place
        while part := file.read(min(_CHUNK, left)):
            digest.update(part)
            left -= len(part)
        file.seek(len(BLANK), 1)
        return digest, file.read()


def _joined(before: "hashlib._Hash", seal: str, behind: bytes) -> str:
    digest = before.copy()
    digest.update(seal.encode("latin-1"))
    digest.update(behind)
    return digest.hexdigest()
