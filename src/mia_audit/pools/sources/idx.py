"""A folder of files in MNIST's format: pairs `…images-idx3-ubyte` and `…labels-idx1-ubyte`, with or without gzip."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from mia_audit.errors import UserError
from mia_audit.pools.catalogue import Header, Source, pool, root_of
from mia_audit.pools.idx import packed_or_not, read_idx

if TYPE_CHECKING:
    from mia_audit.pools.section import Dataset

IMAGES, LABELS = "images-idx3-ubyte", "labels-idx1-ubyte"
NOT_IDX = (ValueError, OSError, EOFError)
"""Exceptions that reading a damaged file raises."""


@pool("idx", "path", header=Header("image"))
def idx(dataset: Dataset, where: str) -> Source:
    """Return uint8 [n, 1, H, W], the images of all files in order with those of `train` first, and labels numbered from 0."""
    root = root_of(dataset, where)
    names = {path.name.removesuffix(".gz") for path in root.glob(f"*{IMAGES}*")} if root.is_dir() else set()
    stems = sorted((name.removesuffix(IMAGES) for name in names if name.endswith(IMAGES)), key=_training_first)
    if not stems:
        raise UserError(
            f"{where}.path: {root}: no file …{IMAGES} or …{IMAGES}.gz; expected one of these, and its …{LABELS}"
        )
    parts = [(_read(root / f"{stem}{IMAGES}", where), _read(root / f"{stem}{LABELS}", where)) for stem in stems]
    for stem, (images, labels) in zip(stems, parts, strict=True):
        if (
            images.ndim != 3
            or labels.ndim != 1
            or len(images) != len(labels)
            or images.shape[1:] != parts[0][0].shape[1:]
        ):
            raise UserError(
                f"{where}.path: {root}: {stem}{IMAGES} of shape {list(images.shape)} and {stem}{LABELS} of {list(labels.shape)} do"
                " not match: expected images of one size, [n, H, W], and one label per image"
            )
    images, labels = (np.concatenate([part[side] for part in parts]) for side in (0, 1))
    classes = [str(number) for number in range(int(labels.max(initial=0)) + 1)]
    return Source("image", images[:, None], labels.astype(np.int64), classes, [])


def _training_first(stem: str) -> tuple[bool, str]:
    return "train" not in stem, stem


def _read(path: Path, where: str) -> np.ndarray:
    chosen = packed_or_not(path)
    if chosen is None:
        raise UserError(f"{where}.path: {path}: no such file, packed (.gz) or not")
    try:
        return read_idx(chosen)
    except NOT_IDX as error:
        raise UserError(f"{where}.path: {chosen}: damaged, or not in MNIST's format (IDX): {error}") from None
