"""Callers' keys: random, shown once on creation, stored as SHA-256 in a file that only its owner can read, and never logged."""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import secrets
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from mia_audit.errors import UserError
from mia_audit.regular_files import open_regular

LINE = re.compile(r"(?P<name>\S+) (?P<digest>[0-9a-f]{64})")
LARGEST = 1 << 20
"""Largest size of a file of keys, in bytes."""


@dataclass(frozen=True)
class Keys:
    """The SHA-256 of every caller's key. A key has 256 random bits, so its digest needs no salt and cannot be inverted."""

    digests: tuple[tuple[str, bytes], ...] = field(repr=False)

    def caller_of(self, key: str) -> str | None:
        """Return the caller of this key, or None; all digests are compared, each in constant time."""
        given = hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()
        caller = None
        for name, digest in self.digests:
            if hmac.compare_digest(digest, given):
                caller = name
        return caller


def new_key(path: Path, name: str) -> str:
    """Create a caller's key, add its digest to the file, and return the key. Raises UserError if the caller has a key."""
    if name in (known for known, _ in _lines(path, missing_ok=True)):
        raise UserError(
            f"{path}: '{name}' has a key already; to replace that key, delete its line, and then create a new key"
        )
    key = secrets.token_urlsafe(32)
    descriptor = _opened(path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
    size = os.fstat(descriptor).st_size
    unfinished = size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"  # an editor may omit the last line's end
    end = "\n" if unfinished else ""
    with os.fdopen(descriptor, "a", encoding="utf-8") as file:
        file.write(f"{end}{name} {hashlib.sha256(key.encode()).hexdigest()}\n")
        file.flush()
        os.fsync(file.fileno())
    return key


def read_keys(path: Path, callers: Iterable[str]) -> Keys:
    """Read the file of keys. Raises UserError if others can read it, a line is malformed, or a caller does not have exactly one key."""
    known = _lines(path, missing_ok=True)
    names = [name for name, _ in known]
    named = set(callers)
    for name in sorted(named - set(names)):
        raise UserError(f"{path}: no key of caller '{name}'; create one with --new-key {name}")
    for name in names:
        if name not in named:
            raise UserError(
                f"{path}: a key of '{name}', who is not a caller of the service; delete the line, or add the caller to 'callers'"
            )
        if names.count(name) > 1:
            raise UserError(f"{path}: two keys of '{name}'; expected one: delete the line of the key that is not used")
    return Keys(tuple((name, bytes.fromhex(digest)) for name, digest in known))


def _lines(path: Path, missing_ok: bool) -> list[tuple[str, str]]:
    if missing_ok and not path.exists() and not path.is_symlink():
        return []
    with os.fdopen(_opened(path, os.O_RDONLY), "rb") as file:
        content = file.read(LARGEST + 1)
    if len(content) > LARGEST:
        raise UserError(f"{path}: more than {LARGEST:,} bytes; expected one line per caller")
    known = []
    for number, line in enumerate(content.decode("utf-8", "replace").splitlines(), 1):
        match = LINE.fullmatch(line)
        if match is None:  # the line itself is not shown because it may be a key
            raise UserError(
                f"{path}, line {number}: expected a name and the SHA-256 of a key; create a key with --new-key NAME"
            )
        known.append((match["name"], match["digest"]))
    return known


def _opened(path: Path, flags: int) -> int:
    try:
        descriptor = open_regular(path, flags)
    except OSError as error:
        raise UserError(f"{path}: {(error.strerror or str(error)).lower()}; expected a file of keys") from None
    if os.fstat(descriptor).st_mode & 0o077:
        os.close(descriptor)
        raise UserError(
            f"{path}: other users can access it; expected a file that only you can read; run chmod 600 {path}"
        )
    return descriptor
