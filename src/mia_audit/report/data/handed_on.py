"""How report and provenance describe files: by name and digest. Their folders, which may name persons, are only in a local log."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, count
from pathlib import PurePath
from typing import Any

FOLDERS = re.compile(r"""(?:~|[A-Za-z]:)?[^\s'"=:;,|&<>()/\\]*[/\\](?:[^\s'"=:;,|&<>()/\\]*[/\\])*""")
"""Pattern of the folders in front of a file's name, in a path or in a command."""
WORDS = ("title", "label", "classes")
"""Keys whose values are free text or column names, in which a slash is not a separator."""

PATHS = ("path", "signals", "pretrained", "membership")
"""Keys whose value is a single path, which may contain spaces; a list as value holds texts with paths in them."""


def base_names(value: Any, key: str = "") -> Any:
    """Return a config's values with every path replaced by the name of its file or folder."""
    if isinstance(value, str):
        if key in PATHS:
            return PurePath(value.replace("\\", "/")).name
        return value if key in WORDS else without_folders(value)
    if isinstance(value, Mapping):
        return {name: base_names(part, str(name)) for name, part in value.items()}
    if isinstance(value, Sequence):
        return [base_names(part) for part in value]
    return value


def without_folders(text: str) -> str:
    """Return a text without the folders in front of file names."""
    return FOLDERS.sub("", re.sub(r"[/\\]+(?=$|[\s'\"=:;,|&<>()])", "", text))


def by_base_name(digests: Mapping[str, str]) -> dict[str, str]:
    """Return digests of files by their base names; equal names are numbered in the order of the paths."""
    named: dict[str, str] = {}
    for path, digest in sorted(digests.items()):
        name = PurePath(path).name
        numbered = (f"{name} ({number})" for number in count(2))
        named[next(key for key in chain([name], numbered) if key not in named)] = digest
    return named


def paths_in(value: Any, where: str = "") -> Iterator[tuple[str, str]]:
    """Yield the texts of a config that name folders, unchanged, with the keys that lead to them."""
    if isinstance(value, str):
        if base_names(value, where.rpartition(".")[2]) != value:
            yield where, value
    elif isinstance(value, Mapping):
        for name, part in value.items():
            yield from paths_in(part, f"{where}.{name}" if where else str(name))
    elif isinstance(value, Sequence):
        for part in value:
            yield from paths_in(part, where)
