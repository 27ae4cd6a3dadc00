"""Digests that files carry inside, so that damage anywhere in them is noticed before a number of theirs is used."""

import hashlib
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Literal

KEY = "mia_audit.sha256"
BLANK = "0" * 64
"""What a table's metadata say under KEY until it is sealed, and what counts there when its digest is taken."""

_MARK = KEY.encode() + b"\x18\x40"
"""How Thrift writes the key, and that a string of 64 bytes follows."""

_CHUNK = 1 << 22

State = Literal["whole", "damaged", "unsealed"]


def seal(path: Path) -> None:
    """Write a finished Parquet file's SHA-256 where its metadata say BLANK."""
    place = _place(path)
    if place is None:
        raise ValueError(f"{path}: no metadata '{KEY}' to seal")
    digest = _digest(path, place)
    with path.open("r+b") as file:
        file.seek(place)
        file.write(digest.encode())


def state(path: Path) -> State:
    """Tell whether a Parquet file is as it was sealed; a file is read once for that, and again only if it has changed."""
    facts = path.stat()
    return _state(path, (facts.st_ino, facts.st_size, facts.st_mtime_ns))


@lru_cache(maxsize=4096)
def _state(path: Path, _: tuple[int, int, int]) -> State:
    place = _place(path)
    if place is None:
        return "unsealed"
    with path.open("rb") as file:
        file.seek(place)
        sealed = file.read(len(BLANK))
    return "whole" if sealed == _digest(path, place).encode() else "damaged"


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


def _digest(path: Path, place: int) -> str:
    digest = hashlib.sha256()
    for part in _parts(path, place):
        digest.update(part)
    return digest.hexdigest()


def _parts(path: Path, place: int) -> Iterator[bytes]:
    with path.open("rb") as file:
        left = place
        while part := file.read(min(_CHUNK, left)):
            yield part
            left -= len(part)
        file.seek(len(BLANK), 1)
        yield BLANK.encode()
        while part := file.read(_CHUNK):
            yield part
