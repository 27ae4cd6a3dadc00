"""scores.parquet holds the same rows however many targets are written at a time; signals.parquet may come from elsewhere."""

import re

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mia_audit.attacks.catalogue import AttackRun
from mia_audit.attacks.io import parquet as files
from mia_audit.attacks.io.parquet import SignalsFile
from mia_audit.errors import UserError
from mia_audit.evaluation.files import read_scores
from mia_audit.signals.name import read_signal
from mia_audit.storage import write_table
from mia_audit.storage.tables import column_of, encoding_of

RECORD, TARGET = np.array([3, 5, 8, 9]), np.array([0, 2, 3, 4, 7])


@pytest.mark.parametrize("rows", [1, 3, 8, 12, 1 << 16])  # a target in parts, two targets at a time, three, all
def test_every_run_is_a_row_group_of_all_targets(tmp_path, monkeypatch, rows):
    monkeypatch.setattr(files, "CHUNK_ROWS", rows)
    rng = np.random.default_rng(0)
    members = {null: rng.random((4, 5)) < 0.5 for null in (False, True)}
    runs = [
        AttackRun(attack, (read_signal("loss"),), "none", null) for attack in ("threshold", "lrt") for null in members
    ]
    scored = [(run, members[run.null_control], np.asfortranarray(rng.normal(size=(4, 5)))) for run in runs]
    files.write_scores(tmp_path / "scores.parquet", scored, runs, RECORD, TARGET, {})
    for found, (run, member, scores) in zip(read_scores(tmp_path / "scores.parquet"), scored, strict=True):
        assert found.key == (run.attack, "loss", "none", run.null_control)
        assert found.record.tolist() == RECORD.tolist() and found.target.tolist() == TARGET.tolist()
        np.testing.assert_array_equal(found.member, member)
        np.testing.assert_array_equal(found.score, scores.astype(np.float32))


def foreign(**changes):
    """Signals as another tool writes them: 64 bits, membership as 0 and 1, rows in any order."""
    random = np.random.default_rng(0)
    values = {
        "shadow": np.repeat(np.arange(5), 40) + 3,
        "record": np.tile(np.arange(40), 5),
        "member": (random.random(200) < 0.5).astype(int),
        "loss": random.exponential(size=200),
    }
    return pl.DataFrame(values | changes)


def test_signals_of_another_tool_are_read_in_any_order(tmp_path):
    table = foreign()
    table.sample(fraction=1, shuffle=True, seed=1).write_parquet(tmp_path / "signals.parquet")
    file = SignalsFile(tmp_path / "signals.parquet")
    assert file.target.tolist() == [3, 4, 5, 6, 7] and file.record.tolist() == list(range(40))
    (loss,) = file.read(file.signals[0])
    np.testing.assert_array_equal(loss, table["loss"].to_numpy().reshape(5, 40).T)
    np.testing.assert_array_equal(file.member, table["member"].to_numpy().reshape(5, 40).T == 1)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (foreign(member=np.full(200, 2)), "column 'member': 2 at model 0, record 0; expected 0 or 1"),
        (foreign(record=np.zeros(200, dtype=int)).head(190), "each with the same records, once each"),
        (foreign().with_columns(member=pl.when(pl.col("record") > 3).then("member")), "column 'member' has 20 empty"),
        (foreign().drop("shadow"), "no column 'shadow' (whole numbers) for a signals table"),
    ],
)
def test_what_is_wrong_with_them_is_named(tmp_path, table, message):
    table.write_parquet(tmp_path / "signals.parquet")
    with pytest.raises(UserError, match=re.escape(message)) as caught:
        SignalsFile(tmp_path / "signals.parquet")
    assert "elete" not in str(caught.value)


def test_vectors_are_read_back_and_have_no_dictionary(tmp_path):
    random = np.random.default_rng(0)
    member = random.random((5, 40)) < 0.5
    vectors = random.standard_normal((5, 40, 3)).astype(np.float16)

    def tables():
        for shadow in range(5):
            columns = {
                "shadow": np.full(40, shadow, dtype=np.int32),
                "record": np.arange(40, dtype=np.int32),
                "member": member[shadow],
                "ixg_l1": np.ones(40, dtype=np.float32),
                "ixg_vector": vectors[shadow],
            }
            yield pa.table({name: column_of(values) for name, values in columns.items()})

    path = tmp_path / "signals.parquet"
    write_table(path, tables(), "signals", 200, **encoding_of(next(tables()).schema))
    file = SignalsFile(path)
    (signal,) = [one for one in file.signals if one.is_vector]
    (read,) = file.read(signal)
    np.testing.assert_array_equal(read, vectors.swapaxes(0, 1))
    written = pq.ParquetFile(path).metadata
    assert written.num_row_groups == 5
    encodings = [written.row_group(0).column(i).encodings for i in range(written.num_columns)]
    assert ["RLE_DICTIONARY" in one for one in encodings] == [True, True, False, True, False]
