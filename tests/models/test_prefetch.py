"""Reading ahead: the same records, the next ones begun before they are asked for."""

from threading import Event, current_thread, main_thread

import torch
from torch import Tensor

from mia_audit.models.inputs import ReadAhead

RECORDS = torch.arange(10)


def test_slices_are_what_was_asked_for_in_any_order() -> None:
    ahead = ReadAhead(lambda rows: RECORDS[rows], 10)
    for rows in (slice(0, 4), slice(4, 8), slice(8, 10), slice(2, 3), slice(0, 10), slice(4, 8), slice(0, 4)):
        assert torch.equal(ahead(rows), RECORDS[rows])


def test_the_next_slice_is_read_while_this_one_is_used() -> None:
    begun = {4: Event(), 8: Event()}
    read: list[tuple[int, bool]] = []

    def reading(rows: slice) -> Tensor:
        read.append((rows.start, current_thread() is main_thread()))
        if rows.start in begun:
            begun[rows.start].set()
        return RECORDS[rows]

    ahead = ReadAhead(reading, 10)
    ahead(slice(0, 4))
    assert begun[4].wait(timeout=60)  # without having been asked for
    assert torch.equal(ahead(slice(4, 8)), RECORDS[4:8])
    assert begun[8].wait(timeout=60)
    assert torch.equal(ahead(slice(8, 10)), RECORDS[8:])
    assert read == [(0, True), (4, False), (8, False)]
