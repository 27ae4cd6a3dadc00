"""Files in the format of MNIST (IDX): a header and an array of bytes, with or without gzip."""

from __future__ import annotations

import gzip
import math
import struct
from pathlib import Path

import numpy as np
from jaxtyping import UInt8

from mia_audit.storage.unpacked import check_memory

BYTES = 8
"""The third byte of a file of unsigned bytes, which are the only supported type of numbers."""


def packed_or_not(path: Path) -> Path | None:
    """Return a file, or the same name with .gz appended; None if neither exists."""
    packed = path.with_name(f"{path.name}.gz")
    return path if path.is_file() else packed if packed.is_file() else None


def read_idx(path: Path) -> UInt8[np.ndarray, "n ..."]:
    """Read an array. Raises ValueError for a file in another format, or with another length than its header states.

    A packed file is unpacked only up to the size in its header.
    """
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
        start = file.read(4)
        if len(start) < 4 or start[:2] != b"\0\0" or start[2] != BYTES or start[3] not in (1, 3):
            raise ValueError("not an IDX file of bytes")
        sides = struct.unpack(f">{start[3]}I", file.read(4 * start[3]))
        size = math.prod(sides)
        check_memory(str(path), size, f"an array of shape {list(sides)}")
        content = file.read(size + 1)
    if len(content) != size:
        raise ValueError(f"{len(content):,} bytes or more, but the file's header states {size:,}")
    return np.frombuffer(content, dtype=np.uint8).reshape(sides)
