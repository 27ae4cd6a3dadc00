"""Read the next batch while the GPU computes with the current one."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from torch import Tensor


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
