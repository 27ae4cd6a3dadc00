"""A folder of images, with one subfolder per class whose name is the class.

A folder of files in MNIST's format: pairs `…images-idx3-ubyte` and `…labels-idx1-ubyte`, with or without gzip.
"""

from __future__ import annotations

import stat
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from mia_audit.errors import UserError, few
from mia_audit.pools.images import (
    MOST_16_BITS,
    Images,
    decoding_at_once,
    in_8_bits,
    open_plain,
    packed_or_not,
    read_idx,
    sizes_of,
    unreadable,
)
from mia_audit.pools.persons import column_of_files, ids_of_files
from mia_audit.pools.section import Header, Source, pool, root_of

if TYPE_CHECKING:
    from PIL.Image import Image

    from mia_audit.pools.section import Dataset

SUFFIXES = {".png", ".jpg", ".jpeg", ".bmp", ".ppm", ".pgm", ".tif", ".tiff", ".webp", ".gif"}
CHANNELS = {"1": 1, "L": 1, "LA": 1, "RGB": 3, "RGBA": 3, "P": 3, "PA": 3, "CMYK": 3, "YCbCr": 3}
"""Channels of an image by Pillow's mode; transparency is dropped."""
DEEP = ("I;16", "I;16B", "I;16L")
"""Modes of grey-scale images of 16 bits, such as DICOM exports. They are supported only with conversion."""
PATH = 4096
"""Length of the longest path, which a message quotes whole."""
EXPECTED = f"expected one subfolder per class, with files that end in {', '.join(sorted(SUFFIXES))}"
CONVERTED = {"grey": 1, "rgb": 3}
"""Number of channels of every image after `convert`."""


@pool("images", "path", "size", "convert", "white", "person", header=Header("image"))
def images(dataset: Dataset, where: str) -> Source:
    """Read every image's header; images are decoded later. Hidden files and folders are skipped."""
    root = root_of(dataset, where)
    folders = (
        sorted(path for path in root.iterdir() if path.is_dir() and not path.name.startswith("."))
        if root.is_dir()
        else []
    )
    if not dataset.classes:
        _check_folders([folder.name for folder in folders], root, where)
    files = [
        (path, label) for label, folder in enumerate(folders) for path in sorted(folder.rglob("*")) if _is_image(path)
    ]
    present = {label for _, label in files}
    empty = [folder.name for label, folder in enumerate(folders) if label not in present]
    if not files:
        what = _empty_words(empty) if empty else f"no subfolders with images; {EXPECTED}"
        raise UserError(f"{where}.path: {root}: {what}")
    paths = [path for path, _ in files]
    with ThreadPoolExecutor() as executor:
        headers = list(executor.map(partial(_header, root=root.resolve(), deep=dataset.convert != "none"), paths))
    try:
        channels, sizes = _agreed(paths, headers, dataset, root.resolve(), where)
    except UserError as error:
        besides = f". Besides, {_empty_words(empty)}" if empty else ""
        raise UserError(f"{error}{besides}") from None
    if empty:
        raise UserError(f"{where}.path: {root}: {_empty_words(empty)}")
    white = dataset.white or MOST_16_BITS

    def open_image(row: int) -> Image:
        return in_8_bits(open_plain(paths[row]), white)

    labels = np.array([label for _, label in files])
    largest = max(width * height for header in headers if not isinstance(header, str) for width, height in [header[1]])
    at_once = decoding_at_once(largest)
    names = [str(path) for path in paths]
    decoded = Images(
        count=len(paths),
        channels=channels,
        sizes=sizes,
        open_image=open_image,
        name_of=names.__getitem__,
        at_once=at_once,
        path_of=paths.__getitem__,
    )
    persons = None
    below = [path.relative_to(root).as_posix() for path in paths]
    if dataset.person:
        persons = ids_of_files(dataset.person, below, [name.partition("/")[2] for name in below], where)
    classes = [folder.name for folder in folders]
    columns = partial(column_of_files, dataset.person, below, where)
    return Source("image", decoded, labels, classes, [], persons=persons, files=below, columns=columns)


SPLITS = {"dev", "eval", "test", "testing", "train", "training", "val", "valid", "validation"}
"""Names of folders that divide a data set into parts."""
LEFT = {"__macosx", "__pycache__", "@eadir", "lost+found", "thumbnails", "thumbs", "backup", "trash"}
"""Names of folders that programs leave behind."""


def _check_folders(names: list[str], root: Path, where: str) -> None:
    """Raise UserError for folders that are parts of a data set, or left behind by a program, and not classes."""
    splits = [name for name in names if name.lower() in SPLITS]
    if len(splits) > 1:
        raise UserError(
            f"{where}.path: {root}: {few(splits)} are parts of a data set, not classes: give one of them as the path, such as"
            f" {root / splits[0]}, or list all classes in classes if they are meant"
        )
    if left := [name for name in names if name.lower() in LEFT]:
        raise UserError(
            f"{where}.path: {root}: the folder {left[0]} is left behind by a program, and no class: move it elsewhere, or list all"
            " classes in classes if it is meant"
        )


def _empty_words(empty: list[str]) -> str:
    return f"no images in {few(empty)}; {EXPECTED}"


def _is_image(path: Path) -> bool:
    return path.suffix.lower() in SUFFIXES and not path.name.startswith(".") and not path.is_dir()


def _header(path: Path, root: Path, deep: bool, whole: bool = False) -> tuple[int, tuple[int, int]] | str:
    """Return channels and size (width, height), or the error from reading the image's header or, with `whole`, the whole file.

    With `deep`, 16-bit images will be converted. Links to files outside the `root`, and anything that is not a regular
    file, are not opened.
    """
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            return "not a regular file"
        if not path.resolve().is_relative_to(root):
            return f"a link to a file outside {root}: copy the file into it"
        with open_plain(path) as image:
            if image.mode not in CHANNELS and not (deep and image.mode in DEEP):
                hint = (
                    "; convert: grey accepts it, and white states the value that becomes white"
                    if image.mode in DEEP
                    else ""
                )
                return f"pixels of mode {image.mode}, not of 8 bits per channel{hint}"
            if whole:
                image.load()
            return CHANNELS.get(image.mode, 1), image.size
    except Exception as error:  # Pillow raises any error for a damaged file
        return unreadable(error)


def _agreed(
    paths: list[Path], headers: list[tuple[int, tuple[int, int]] | str], dataset: Dataset, root: Path, where: str
) -> tuple[int, tuple[int, int]]:
    """Return the channels and size that all images share. Raises UserError with the names of all images that differ."""
    read = [header for header in headers if not isinstance(header, str)]
    wrong = {path: header for path, header in zip(paths, headers, strict=True) if isinstance(header, str)}
    if wrong:  # so that images that fail only during decoding are listed too
        sound = [path for path in paths if path not in wrong]
        with ThreadPoolExecutor() as executor:
            decoded = executor.map(partial(_header, root=root, deep=dataset.convert != "none", whole=True), sound)
            wrong |= {path: header for path, header in zip(sound, decoded, strict=True) if isinstance(header, str)}
        problems = [f"{path} ({wrong[path]})" for path in paths if path in wrong]
        raise UserError(
            f"{where}.path: {len(problems)} of {len(paths)} images cannot be read: {'; '.join(problems)}. Repair them, or move them elsewhere"
        )
    channels = CONVERTED.get(dataset.convert) or Counter(channels for channels, _ in read).most_common(1)[0][0]
    if dataset.convert == "none":
        odd = [str(path) for path, header in zip(paths, headers, strict=True) if header[0] != channels]
        if odd:
            kinds = ("grey-scale", "colour") if channels == 3 else ("colour", "grey-scale")
            raise UserError(
                f"{where}.path: {len(odd)} {kinds[0]} image{'s' * (len(odd) > 1)} among {kinds[1]} ones: {few(odd, longest=PATH)}."
                f" {where}.convert: rgb or grey converts all images"
            )
    common = Counter(size for _, size in read).most_common(1)[0][0]
    other = next((path for path, header in zip(paths, headers, strict=True) if header[1] != common), None)
    if other is not None and dataset.size is None:
        raise UserError(
            f"{where}.size: missing; images vary in size ({other} is not of {common[0]} × {common[1]} pixels like most): give the"
            " side in pixels to which all are resized, such as the model's, 224"
        )
    return channels, sizes_of(dataset.size, common)


IMAGES, LABELS = "images-idx3-ubyte", "labels-idx1-ubyte"
NOT_IDX = (ValueError, OSError, EOFError)
"""Exceptions that reading a damaged file raises."""


@pool("idx", "path", header=Header("image"))
def idx(dataset: Dataset, where: str) -> Source:
    """Return uint8 [n, 1, H, W], the images of all files in order with those of `train` first, and labels numbered from 0."""
    root = root_of(dataset, where)
    names = {path.name.removesuffix(".gz") for path in root.glob(f"*{IMAGES}*")} if root.is_dir() else set()
    stems = sorted(
        (name.removesuffix(IMAGES) for name in names if name.endswith(IMAGES)),
        key=lambda stem: ("train" not in stem, stem),
    )
    if not stems:
        raise UserError(f"{where}.path: {root}: no file …{IMAGES} or …{IMAGES}.gz; expected one, and its …{LABELS}")
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


def _read(path: Path, where: str) -> np.ndarray:
    chosen = packed_or_not(path)
    if chosen is None:
        raise UserError(f"{where}.path: {path}: no such file, packed (.gz) or not")
    try:
        return read_idx(chosen)
    except NOT_IDX as error:
        raise UserError(f"{where}.path: {chosen}: damaged, or not in MNIST's format (IDX): {error}") from None
