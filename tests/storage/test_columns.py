"""Columns in parts hold what they hold as a whole."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mia_audit.errors import UserError
from mia_audit.storage import open_table, tables, write_table
from mia_audit.storage.tables import column_parts, filled, joined, repeated, stretches


def cut(values, *places):
    return np.split(np.array(values), places)


@pytest.mark.parametrize("places", [(), (1,), (3,), (2, 4, 7)])
def test_stretches_and_repetitions_do_not_depend_on_the_parts(places):
    values, starts = stretches(cut([5, 5, 5, 2, 2, 2, 7, 7, 7], *places))
    assert values.tolist() == [5, 2, 7] and starts.tolist() == [0, 3, 6]
    first = repeated(cut([4, 1, 9, 4, 1, 9, 4, 1, 9], *places), 3)
    assert first is not None and first.tolist() == [4, 1, 9]
    assert repeated(cut([4, 1, 9, 4, 1, 9, 4, 9, 1], *places), 3) is None
    whole = filled(cut([0.5, 1.5, 2.5, 3, 3, 3, 3, 3, 3], *places), 9, np.float32)
    assert whole.dtype == np.float32 and whole.tolist() == [0.5, 1.5, 2.5, 3, 3, 3, 3, 3, 3]
    assert joined([]).tolist() == []


def test_a_column_is_read_in_batches_and_its_empty_cells_are_counted(tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "BATCH_ROWS", 4)
    whole, holes = list(range(10)), [1.5, None, 2.5, 3.5, None, 0.5, 1.0, 1.0, None, 1.0]
    pq.write_table(pa.table({"whole": whole, "holes": holes}), tmp_path / "t.parquet", row_group_size=5)
    file = pq.ParquetFile(tmp_path / "t.parquet")
    assert all(len(part) <= 4 for part in column_parts(file, "whole", "t"))
    assert joined(column_parts(file, "whole", "t")).tolist() == whole
    assert joined(column_parts(file, "whole", "t", [1])).tolist() == whole[5:]
    with pytest.raises(UserError, match="t: column 'holes' has 3 empty cells"):
        joined(column_parts(file, "holes", "t"))


def test_a_column_is_not_read_ahead_of_its_use(tmp_path):
    values = np.random.default_rng(0).normal(size=(40, 50_000))
    parts = (pa.table({"score": part}) for part in values)
    write_table(tmp_path / "t.parquet", parts, "scores", values.size)
    before, held = pa.total_allocated_bytes(), []
    for part in column_parts(open_table(tmp_path / "t.parquet", "scores"), "score", "t"):
        held.append(pa.total_allocated_bytes() - before)
        del part
    assert len(held) > 2 and max(held) < values.nbytes / 2
