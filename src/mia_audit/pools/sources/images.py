"""A folder of images: one subfolder a class, named after it."""

from __future__ import annotations

import stat
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from mia_audit.errors import UserError
from mia_audit.pools.catalogue import Source, pool, root_of
from mia_audit.pools.images import Images, decoding_at_once, open_plain, sizes_of, unreadable
from mia_audit.pools.persons import column_of_files, ids_of_files

if TYPE_CHECKING:
    from PIL.Image import Image

    from mia_audit.pools.section import Dataset

SUFFIXES = {".png", ".jpg", ".jpeg", ".bmp", ".ppm", ".pgm", ".tif", ".tiff", ".webp", ".gif"}
CHANNELS = {"1": 1, "L": 1, "LA": 1, "RGB": 3, "RGBA": 3, "P": 3, "PA": 3, "CMYK": 3, "YCbCr": 3}
"""Channels of an image by Pillow's mode; transparency is dropped."""
CONVERTED = {"grey": 1, "rgb": 3}
"""Channels that `convert` makes of all images."""


@pool("images", "path", "size", "convert", "person")
def images(dataset: Dataset, where: str) -> Source:
    """Read every image's header, and leave the image to be decoded later; hidden files and folders are passed over."""
    root = root_of(dataset, where)
    folders = (
        sorted(path for path in root.iterdir() if path.is_dir() and not path.name.startswith("."))
        if root.is_dir()
        else []
    )
    files = [
        (path, label) for label, folder in enumerate(folders) for path in sorted(folder.rglob("*")) if _is_image(path)
    ]
    present = {label for _, label in files}
    empty = [folder.name for label, folder in enumerate(folders) if label not in present]
    if not files or empty:
        what = f"no images in {', '.join(empty)}" if empty else "no subfolders with images"
        raise UserError(
            f"{where}.path: {root}: {what}; expected a subfolder a class with files that end in {', '.join(sorted(SUFFIXES))}"
        )
    paths = [path for path, _ in files]
    with ThreadPoolExecutor() as executor:
        headers = list(executor.map(partial(_header, root=root.resolve()), paths))
    channels, sizes = _agreed(paths, headers, dataset, root.resolve(), where)

    def open_image(row: int) -> Image:
        return open_plain(paths[row])

    labels = np.array([label for _, label in files])
    largest = max(width * height for header in headers if not isinstance(header, str) for width, height in [header[1]])
    at_once = decoding_at_once(largest)
    names = [str(path) for path in paths]
    decoded = Images(len(paths), channels, sizes, open_image, names.__getitem__, at_once, paths.__getitem__)
    persons = None
    below = [path.relative_to(root).as_posix() for path in paths]
    if dataset.person:
        persons = ids_of_files(dataset.person, below, [name.partition("/")[2] for name in below], where)
    classes = [folder.name for folder in folders]
    columns = partial(column_of_files, dataset.person, below, where)
    return Source("image", decoded, labels, classes, [], persons=persons, columns=columns)


def _is_image(path: Path) -> bool:
    return path.suffix.lower() in SUFFIXES and not path.name.startswith(".") and not path.is_dir()


def _header(path: Path, root: Path, whole: bool = False) -> tuple[int, tuple[int, int]] | str:
    """Return channels and size (width, height), or what is wrong with the file: with its header, or with the `whole` of it.

    Files outside the `root`, which links lead to, and what is no regular file are not opened.
    """
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            return "no regular file"
        if not path.resolve().is_relative_to(root):
            return f"a link that leads out of {root}: copy the file there"
        with open_plain(path) as image:
            if image.mode not in CHANNELS:
                return f"pixels of mode {image.mode}, not of 8 bits a channel"
            if whole:
                image.load()
            return CHANNELS[image.mode], image.size
    except Exception as error:  # whatever Pillow raises for a damaged file
        return unreadable(error)


def _agreed(
    paths: list[Path], headers: list[tuple[int, tuple[int, int]] | str], dataset: Dataset, root: Path, where: str
) -> tuple[int, tuple[int, int]]:
    """Return the channels and the size that all images have; UserError lists all that do not, by name."""
    read = [header for header in headers if not isinstance(header, str)]
    wrong = {path: header for path, header in zip(paths, headers, strict=True) if isinstance(header, str)}
    if wrong:  # then those that would only fail when they are decoded are listed as well
        sound = [path for path in paths if path not in wrong]
        with ThreadPoolExecutor() as executor:
            decoded = executor.map(partial(_header, root=root, whole=True), sound)
            wrong |= {path: header for path, header in zip(sound, decoded, strict=True) if isinstance(header, str)}
        problems = [f"{path} ({wrong[path]})" for path in paths if path in wrong]
        raise UserError(
            f"{where}.path: {len(problems)} of {len(paths)} images cannot be read: {'; '.join(problems)}. Repair them, or take them away"
        )
    channels = CONVERTED.get(dataset.convert) or Counter(channels for channels, _ in read).most_common(1)[0][0]
    if dataset.convert == "none":
        odd = [str(path) for path, header in zip(paths, headers, strict=True) if header[0] != channels]
        if odd:
            kinds = ("grey-scale", "colour") if channels == 3 else ("colour", "grey-scale")
            raise UserError(
                f"{where}.path: {len(odd)} {kinds[0]} image{'s' * (len(odd) > 1)} among {kinds[1]} ones: {', '.join(odd)}."
                f" {where}.convert: rgb or grey makes them all alike"
            )
    common = Counter(size for _, size in read).most_common(1)[0][0]
    other = next((path for path, header in zip(paths, headers, strict=True) if header[1] != common), None)
    if other is not None and dataset.size is None:
        raise UserError(
            f"{where}.size: missing; images vary in size ({other} is not of {common[0]} × {common[1]} pixels like most): give the"
            " side in pixels that all are resized to, such as the model's, 224"
        )
    return channels, sizes_of(dataset.size, common)
