"""Tables made by other tools: accepted where their columns are the kind's, and else named column by column."""

import hashlib

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mia_audit.errors import UserError
from mia_audit.storage import given_digest, open_table, read_frame, table_metadata, write_table
from mia_audit.storage.tables import CONTRACTS

GIVEN = {
    "signals": {"shadow": [0, 1], "record": [0, 0], "member": [True, False], "loss": [0.5, 0.6]},
    "scores": {
        "attack": ["a", "a"], "signal": ["s", "s"], "likelihood": ["v", "v"], "null_control": [False, False],
        "target": [0, 1], "record": [0, 0], "member": [1, 0], "score": [0.5, 0.1],
    },
    "metrics": {
        "attack": ["a"], "signal": ["s"], "likelihood": ["v"], "null_control": [False],
        "target": [0], "members": [5], "non_members": [5], "auc": [0.6],
    },
}  # fmt: skip


@pytest.mark.parametrize("kind", CONTRACTS)
def test_a_table_written_by_polars_is_read_and_its_digest_noted(tmp_path, kind):
    path = tmp_path / f"{kind}.parquet"
    frame = pl.DataFrame(GIVEN[kind])
    frame.write_parquet(path)
    assert open_table(path, kind).metadata.num_rows == len(frame)
    assert read_frame(path, kind).equals(frame)
    assert table_metadata(path, kind) == {}
    assert given_digest(path) == {path.name: hashlib.sha256(path.read_bytes()).hexdigest()}
    write_table(path, pa.table(GIVEN[kind]), kind, len(frame))
    assert given_digest(path) == {}


def test_the_facts_of_a_foreign_table_are_read(tmp_path):
    table = pa.table(GIVEN["signals"]).replace_schema_metadata({"mia_audit.metadata": '{"signals": {"loss": {}}}'})
    pq.write_table(table, tmp_path / "s.parquet")
    assert table_metadata(tmp_path / "s.parquet", "signals") == {"signals": {"loss": {}}}


@pytest.mark.parametrize("kind", CONTRACTS)
def test_every_column_is_checked(tmp_path, kind):
    path = tmp_path / "t.parquet"
    for name, (words, _) in CONTRACTS[kind].items():
        pl.DataFrame(GIVEN[kind]).drop(name).write_parquet(path)
        with pytest.raises(UserError, match=rf"no column '{name}' \({words}\) for a {kind} table"):
            open_table(path, kind)
        pl.DataFrame(GIVEN[kind]).with_columns(pl.lit(b"?").alias(name)).write_parquet(path)
        with pytest.raises(UserError, match=f"column '{name}' holds .*binary; expected {words}"):
            open_table(path, kind)


def test_other_columns_of_signals_are_numbers(tmp_path):
    path = tmp_path / "t.parquet"
    pl.DataFrame(GIVEN["signals"] | {"name": ["a", "b"]}).write_parquet(path)
    with pytest.raises(UserError, match=r"column 'name' holds .*; expected numbers, or leave the column out"):
        open_table(path, "signals")
    pl.DataFrame(GIVEN["scores"] | {"name": ["a", "b"]}).write_parquet(path)
    open_table(path, "scores")
