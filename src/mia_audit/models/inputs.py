"""Convert stored records to a model's input tensors, batch by batch.

Functions for all image models: channels and sizes of the input.

Read the next batch while the GPU computes with the current one.
"""

import ctypes
import mmap
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from math import prod
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int, Num
from torch import Tensor

from mia_audit.errors import UserError
from mia_audit.models.catalogue import Parameters, whole


def channels_and_size(model: str, shape: tuple[int, ...]) -> tuple[int, tuple[int, int]]:
    """Split a pool's shape [C, H, W]; UserError for a table."""
    if len(shape) != 3:
        raise UserError(
            f"model '{model}' takes images, not a table of {shape[0]} columns: choose a table model such as 'mlp'"
        )
    return shape[0], (shape[1], shape[2])


def image_size(parameters: Parameters, size: tuple[int, int]) -> int | list[int]:
    """Return the input's size: `img_size` of the parameters if given, else `size`, as one number if it is square."""
    asked = parameters.get("img_size")
    if asked is None:
        return size[0] if size[0] == size[1] else list(size)
    return whole("img_size", asked)


def input_shape(arguments: Mapping[str, Any]) -> tuple[int, ...]:
    """Return [C, H, W] from resolved arguments."""
    size = arguments["img_size"]
    height, width = (size, size) if isinstance(size, int) else size
    return (arguments["in_chans"], height, width)


class ReadAhead:
    """Reads slices of `count` records by calling `read`, and the next slice of the same length in a thread.

    So consecutive slices are ready when they are requested; any other slice is read on request.
    """

    def __init__(self, read: Callable[[slice], Tensor], count: int) -> None:
        self._read, self._count = read, count
        self._thread = ThreadPoolExecutor(1, "read ahead")
        self._next: tuple[slice, Future[Tensor]] | None = None

    def __call__(self, rows: slice) -> Tensor:
        """Return the slice's records, and start to read the next slice."""
        expected = self._next if self._next and self._next[0] == rows else None
        batch = expected[1].result() if expected else self._read(rows)
        following = slice(rows.stop, min(2 * rows.stop - rows.start, self._count))
        more = following.start < following.stop
        self._next = (following, self._thread.submit(self._read, following)) if more else None
        return batch


READY = 2**28
"""Largest size in float32, in bytes, of a pool that is converted once and kept. A larger pool is converted batch by batch."""

SHARE = 0.25
"""Largest share of a GPU's free memory for a pool in its stored type."""


ORIGIN = ("collected", "section")
"""Facts about a pool that say where it came from, and change no input."""


class Inputs:
    """A pool as inputs of a model: `inputs[rows]` is float32 [B, …] on the device, for a slice or a tensor of rows.

    Memory is bounded by a batch plus a constant. A small pool is converted once. A larger one is kept on a GPU in its
    stored type, if it fits. Otherwise every batch is read from the memory map, and the map's pages and the heap's free
    pages are then returned to the system. A GPU computes while the next slice is read. Images are resized and
    standardised on the device.
    """

    def __init__(
        self,
        records: Num[np.ndarray, "n ..."],
        metadata: Mapping[str, Any],
        input_shape: Sequence[int],
        device: torch.device | str = "cpu",
    ) -> None:
        self.device = torch.device(device)
        self._metadata, self._shape = metadata, tuple(input_shape)
        self._stored: np.ndarray | Tensor = records
        self._ready: Tensor | None = None
        if 4 * len(records) * prod(self._shape) <= READY:
            self._ready = to_input(records, metadata, self._shape, self.device)
        elif self.device.type == "cuda" and records.nbytes <= SHARE * torch.cuda.mem_get_info(self.device)[0]:
            self._stored = _resident(records, self.device)
        self._slices = ReadAhead(self._staged, len(records)) if self.device.type == "cuda" else self._staged

    def __len__(self) -> int:
        return len(self._stored)

    def __getitem__(self, rows: slice | Int[Tensor, " B"]) -> Float[Tensor, "B ..."]:
        if self._ready is not None:
            return self._ready[rows]
        if isinstance(self._stored, Tensor):
            return _converted(self._stored[rows], self._metadata, self._shape)
        batch = self._slices(rows) if isinstance(rows, slice) else self._staged(rows.cpu().numpy())
        return _converted(batch.to(self.device, non_blocking=True), self._metadata, self._shape)

    @property
    def preprocessing(self) -> str:
        """The conversion of stored records, as a text that differs whenever the inputs would differ.

        It enters the key of every training, so what changes no input is left out.
        """
        facts = sorted((key, repr(value)) for key, value in self._metadata.items() if key not in ORIGIN)
        return repr((facts, self._shape))

    def stored(self, rows: Int[Tensor, " B"]) -> Num[np.ndarray, "B ..."]:
        """Return records in their stored type."""
        if isinstance(self._stored, Tensor):
            return self._stored[rows].cpu().numpy()
        return np.array(self._stored[rows.cpu().numpy()])

    def _staged(self, rows: slice | Int[np.ndarray, " B"]) -> Tensor:
        """Read records from the memory map into memory that a GPU can copy from while it computes."""
        batch = torch.from_numpy(np.array(self._stored[rows]))
        _give_back(self._stored)  # type: ignore[arg-type]
        _trim_heap()
        return batch.pin_memory() if self.device.type == "cuda" else batch


def taken_by(architecture: Mapping[str, Any], metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return a pool's metadata, with the model's own mean and standard deviation of pixels if the data set states none."""
    return {**architecture["normalisation"], **metadata}


class Subset:
    """Some rows of a pool, renumbered: `subset[rows]` is `whole[chosen[rows]]`, on the same device."""

    def __init__(self, whole: "Inputs | Tensor", chosen: Int[Tensor, " n"]) -> None:
        self.device = whole.device
        self._whole, self._chosen = whole, chosen

    def __len__(self) -> int:
        return len(self._chosen)

    def __getitem__(self, rows: slice | Int[Tensor, " B"]) -> Float[Tensor, "B ..."]:
        return self._whole[self._chosen[rows]]


def to_input(
    records: Num[np.ndarray, "B ..."],
    metadata: Mapping[str, Any],
    input_shape: Sequence[int] | None = None,
    device: torch.device | str = "cpu",
) -> Float[Tensor, "B ..."]:
    """Return float32 [B, …] on the device: images (uint8 [B, C, H, W]) standardised, and resized to `input_shape` if it differs.

    `metadata` is that of records.parquet: kind (image | table) and, for images, mean and sd of pixels in [0, 1]. Each
    is one number, or one per channel; it is 0.5 if neither the data set nor the model states any. Tables (float32 [B,
    d]) pass through.
    """
    values = torch.from_numpy(np.array(records)).to(device)  # copy, because a memory map is read-only
    return _converted(values, metadata, input_shape)


def _converted(values: Tensor, metadata: Mapping[str, Any], input_shape: Sequence[int] | None) -> Tensor:
    if metadata["kind"] == "table":
        return values.float()
    mean, sd = (
        torch.tensor(metadata.get(key, 0.5), dtype=torch.float32, device=values.device).reshape(-1, 1, 1)
        for key in ("mean", "std")
    )
    images = (values.float() / 255 - mean) / sd
    if input_shape is not None and tuple(input_shape[1:]) != tuple(images.shape[2:]):
        images = F.interpolate(
            images, size=tuple(input_shape[1:]), mode="bilinear", antialias=True, align_corners=False
        )
    return images


def _resident(records: np.ndarray, device: torch.device) -> Tensor:
    """Copy records to a device in pieces, so that the host never holds them all."""
    whole = torch.empty(records.shape, dtype=torch.from_numpy(records[:0].copy()).dtype, device=device)
    rows = max(1, READY * len(records) // max(records.nbytes, 1))
    for start in range(0, len(records), rows):
        whole[start : start + rows] = torch.from_numpy(np.array(records[start : start + rows])).to(device)
        _give_back(records)
    return whole


def _give_back(records: np.ndarray) -> None:
    """Release a memory map's pages from this process. They stay in the system's cache, which all readers share."""
    mapping = getattr(records, "_mmap", None)
    if isinstance(mapping, mmap.mmap):
        mapping.madvise(mmap.MADV_DONTNEED)


def _trim_heap() -> None:
    """Return the heap's free pages to the system. Otherwise glibc keeps them, and small objects between them prevent their reuse."""
    trim = _malloc_trim()
    if trim is not None:
        trim(0)


@cache
def _malloc_trim() -> Any:
    """Return glibc's malloc_trim; None with another C library."""
    return getattr(ctypes.CDLL(None), "malloc_trim", None)
