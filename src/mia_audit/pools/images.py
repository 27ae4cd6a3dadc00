"""Images that are decoded on access.

Files in the format of MNIST (IDX): a header and an array of bytes, with or without gzip.
"""

from __future__ import annotations

import gzip
import math
import struct
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from threading import BoundedSemaphore
from typing import TYPE_CHECKING, Any
from warnings import filterwarnings

import numpy as np
from jaxtyping import UInt8

from mia_audit.errors import first_line
from mia_audit.pools.section import BadRecordError
from mia_audit.storage.unpacked import check_memory

if TYPE_CHECKING:
    from PIL.Image import Image

MODES = {1: "L", 3: "RGB"}
"""Pillow's mode by the number of channels."""
FORMATS = ("PNG", "JPEG", "BMP", "PPM", "TIFF", "WEBP", "GIF")
"""The accepted formats, whatever the file's name. For these formats Pillow starts no other program."""
MOST_16_BITS = 2**16 - 1
"""The largest value of a 16-bit pixel."""
MOST_PIXELS = 50_000_000
"""Largest number of pixels of an image, before resizing."""
BYTES_PER_PIXEL = 12
"""Memory per pixel while an image is decoded: the image itself, a copy in another mode, and a resized copy."""
DECODING_MEGABYTES = 1200
"""Memory for decoding several images at once; it fits within `mem_mb` of the rule `pool`."""


@dataclass(frozen=True)
class Images:
    """`count` images as uint8 [C, H, W], decoded by `open_image` and named by `name_of` in errors; `path_of` is given if each image is a file.

    Images are resized to `sizes` (height, width) without keeping the aspect ratio (as in Huang et al. 2024, F.3).
    Pillow's bilinear filter averages pixels when an image shrinks.
    """

    count: int
    channels: int
    sizes: tuple[int, int]
    open_image: Callable[[int], Image]
    name_of: Callable[[int], str]
    at_once: AbstractContextManager[Any] = field(default_factory=nullcontext)
    """A semaphore that is held while an image is decoded, to limit the number of images in memory."""
    path_of: Callable[[int], Path] | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """[n, C, H, W]."""
        return (self.count, self.channels, *self.sizes)

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, row: int) -> UInt8[np.ndarray, "C H W"]:
        """Decode one image. Raises BadRecordError, which names the file, if it is damaged."""
        from PIL.Image import Resampling

        try:
            with self.at_once:
                image = self.open_image(row).convert(MODES[self.channels])
                if image.size != self.sizes[::-1]:
                    image = image.resize(self.sizes[::-1], Resampling.BILINEAR)
                pixels = np.asarray(image, dtype=np.uint8)
        except Exception as error:  # decoders raise any error for a damaged file
            raise BadRecordError(f"{self.name_of(row)} ({unreadable(error)})") from None
        return np.ascontiguousarray(pixels.reshape(*self.sizes, self.channels).transpose(2, 0, 1))

    def content(self, row: int) -> bytes:
        """Return the bytes that identify an image independent of its position: those of its file, or else its pixels.

        An image that cannot be read is identified by its name; `__getitem__` raises the error.
        """
        try:
            if self.path_of is not None:
                return self.path_of(row).read_bytes()
            return self.open_image(row).tobytes()
        except Exception:  # decoders raise any error for a damaged file
            return self.name_of(row).encode()


def open_plain(path: Path) -> Image:
    """Open an image in one of `FORMATS` and of at most `MOST_PIXELS` pixels. Pillow's exceptions are passed on."""
    from PIL.Image import open as open_file

    guard_pillow()
    return open_file(path, formats=FORMATS)


def in_8_bits(image: Image, white: int) -> Image:
    """Return a 16-bit image with values 0 … `white` scaled to 0 … 255 and larger ones clipped. Return other images unchanged."""
    if not image.mode.startswith("I;16"):
        return image
    from PIL.Image import fromarray

    values = np.asarray(image, dtype=np.float32) * (255 / white)
    return fromarray(np.minimum(np.rint(values), 255).astype(np.uint8))


def guard_pillow() -> None:
    """Stop Pillow from opening huge images and from starting other programs, as it does for EPS files of any name."""
    from PIL import EpsImagePlugin, Image

    EpsImagePlugin.gs_binary = False
    Image.init()
    Image.MAX_IMAGE_PIXELS = MOST_PIXELS
    filterwarnings("ignore", category=UserWarning, module=r"PIL\.")  # warnings about odd metadata, which are not read
    filterwarnings("error", category=Image.DecompressionBombWarning)


def decoding_at_once(pixels: int) -> AbstractContextManager[Any]:
    """Return a semaphore for as many images of this size in pixels as can be decoded at once in `DECODING_MEGABYTES`."""
    return BoundedSemaphore(max(1, DECODING_MEGABYTES * 1_000_000 // max(1, pixels * BYTES_PER_PIXEL)))


def unreadable(error: Exception) -> str:
    """Return why an image cannot be read, without the name of its file."""
    from PIL import UnidentifiedImageError
    from PIL.Image import DecompressionBombError, DecompressionBombWarning

    if isinstance(error, DecompressionBombError | DecompressionBombWarning):
        return f"more than {MOST_PIXELS:,} pixels"
    if isinstance(error, UnidentifiedImageError):
        return "not an image, or of an unknown kind"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror.lower()
    return first_line(error)


def sizes_of(size: int | None, native: Any) -> tuple[int, int]:
    """Return height and width: both `size` if it is given, else those of the image itself, `native` (width, height)."""
    return (size, size) if size else (int(native[1]), int(native[0]))


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
