"""Tables on disk: whole, in parts, or not at all; damaged and foreign ones are named with their columns."""

import fcntl
import hashlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mia_audit.errors import UserError
from mia_audit.storage import (
    atomic_folder,
    atomic_write,
    given_digest,
    open_table,
    read_frame,
    read_table,
    table_metadata,
    tables,
    write_json,
    write_table,
    write_text,
)
from mia_audit.storage.tables import CONTRACTS, column_parts, filled, joined, repeated, stretches

TABLE = pa.table({"record": pa.array(range(1000), pa.int32()), "score": pa.array([0.5] * 1000, pa.float32())})


def test_a_table_is_read_back_with_its_metadata(tmp_path: Path) -> None:
    path = tmp_path / "new" / "t.parquet"
    write_table(path, TABLE, "scores", 1000, {"seed": 3})
    assert read_table(path, "scores").equals(TABLE)
    assert read_table(path, "scores", ["score"]).column_names == ["score"]
    assert table_metadata(path, "scores") == {"seed": 3}


def test_every_table_of_an_iterator_is_a_row_group(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    write_table(path, iter([TABLE[:400], TABLE[400:]]), "scores", 1000)
    file = open_table(path, "scores")
    assert [file.metadata.row_group(index).num_rows for index in range(file.num_row_groups)] == [400, 600]
    assert read_table(path, "scores").equals(TABLE)


def test_a_folder_is_no_table(tmp_path: Path) -> None:
    with pytest.raises(
        UserError, match=rf"{tmp_path}: a folder; expected a metrics table .*{tmp_path}/metrics.parquet"
    ):
        open_table(tmp_path, "metrics")


def test_the_same_table_gives_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_table(tmp_path / name, TABLE, "scores", 1000, {"b": 1, "a": 2})
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_a_wrong_row_count_keeps_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    write_table(path, TABLE, "scores", 1000)
    before = path.read_bytes()
    with pytest.raises(ValueError, match="1000 rows were written, but 999 were expected"):
        write_table(path, TABLE, "scores", 999)
    assert path.read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["t.parquet"]


def test_a_failure_while_writing_leaves_nothing_behind(tmp_path: Path) -> None:
    def broken() -> Iterator[pa.Table]:
        yield TABLE
        raise RuntimeError("disk")

    with pytest.raises(RuntimeError, match="disk"):
        write_table(tmp_path / "t.parquet", broken(), "scores", 2000)
    with pytest.raises(RuntimeError), atomic_write(tmp_path / "u") as partial:
        partial.write_text("half")
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []


def test_files_have_the_permissions_of_any_new_file(tmp_path: Path) -> None:
    write_text(tmp_path / "a", "x")
    (tmp_path / "b").write_text("x")
    assert (tmp_path / "a").stat().st_mode == (tmp_path / "b").stat().st_mode


def test_json_is_sorted(tmp_path: Path) -> None:
    write_json(tmp_path / "a.json", {"b": 1, "a": 2})
    assert (tmp_path / "a.json").read_text() == '{\n  "a": 2,\n  "b": 1\n}\n'


@pytest.mark.parametrize("kept", [0, 3, 500, -4])
def test_a_truncated_table_is_a_user_error_that_names_it(tmp_path: Path, kept: int) -> None:
    path = tmp_path / "t.parquet"
    write_table(path, TABLE, "scores", 1000)
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(UserError, match=r"t\.parquet: truncated or not Parquet .* expected a scores table") as caught:
        open_table(path, "scores")
    assert "\n" not in str(caught.value)


def test_a_damaged_page_is_a_user_error_that_names_the_file(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    write_table(path, TABLE, "scores", 1000)
    content = bytearray(path.read_bytes())
    content[4:60] = bytes(56)
    path.write_bytes(content)
    with pytest.raises(UserError, match=r"t\.parquet: damaged"):
        read_table(path, "scores")


def test_any_flipped_bit_of_a_footer_is_a_user_error(tmp_path: Path) -> None:
    whole, path = tmp_path / "whole.parquet", tmp_path / "t.parquet"
    write_table(whole, TABLE.slice(0, 3), "scores", 3, {"seed": 3})
    content = whole.read_bytes()
    start = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    for place in range(start, len(content)):
        flipped = content[place] ^ (1, 128)[place % 2]
        path.write_bytes(content[:place] + bytes([flipped]) + content[place + 1 :])
        with pytest.raises(UserError, match=r"t\.parquet"):
            read_table(path, "scores")


def test_another_kind_is_refused_and_so_is_a_foreign_table_that_only_audits_make(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    write_table(path, TABLE, "scores", 1000)
    with pytest.raises(UserError, match="a scores table where a metrics table was expected"):
        open_table(path, "metrics")
    pq.write_table(TABLE, path)
    with pytest.raises(UserError, match=r"not written by an audit .*; only an audit writes membership tables"):
        open_table(path, "membership")


def test_a_changed_table_says_how_to_make_it_ones_own(tmp_path: Path) -> None:
    """pyarrow hands metadata on to a table that was changed, the digest of the old one among it."""
    path = tmp_path / "t.parquet"
    write_table(path, TABLE, "scores", 1000)
    pq.write_table(pq.read_table(path).slice(0, 500), path)
    with pytest.raises(UserError, match=r"damaged .* write it without the metadata 'mia_audit.sha256'"):
        open_table(path, "scores")


def test_missing_files_and_columns_are_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"t\.parquet: no such file; expected a scores table"):
        open_table(tmp_path / "t.parquet", "scores")
    write_table(tmp_path / "t.parquet", TABLE, "scores", 1000)
    with pytest.raises(UserError, match="no column 'member'; it has record, score"):
        read_table(tmp_path / "t.parquet", "scores", ["member"])


@contextmanager
def writer_of(folder: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """Run a process that is writing the file t and the folder d within this context; it finishes at the end of its input."""
    code = "import sys, pathlib; from mia_audit.storage import atomic_write, atomic_folder\n"
    code += "with atomic_write(pathlib.Path('t')) as t, atomic_folder(pathlib.Path('d')): t.touch(), print(flush=True), sys.stdin.read()"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", code], cwd=folder, **pipes) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            yield process
        finally:
            process.kill()


def test_only_the_temporary_files_of_killed_processes_are_removed(tmp_path: Path) -> None:
    with writer_of(tmp_path):
        write_text(tmp_path / "t", "x")
        with atomic_folder(tmp_path / "d") as partial:
            (partial / "x").touch()
        assert len(list(tmp_path.glob(".*.partial"))) == 2
    write_text(tmp_path / "t", "y")
    with atomic_folder(tmp_path / "d") as partial:
        (partial / "y").touch()
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["d", "t", "y"]
    assert (tmp_path / "t").read_text() == "y"


def test_the_last_writer_removes_the_temporary_files_of_one_killed_meanwhile(tmp_path: Path) -> None:
    with writer_of(tmp_path) as last:
        with writer_of(tmp_path):
            pass
        assert len(list(tmp_path.glob(".*.partial"))) == 4
        last.communicate()
        assert last.returncode == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["d", "t"]


@pytest.mark.parametrize("moment", ["created", "locked"])
def test_a_writer_whose_folder_is_removed_before_its_lock_creates_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    rivals = [True, False]

    def clear() -> None:
        if rivals.pop(0):
            next(tmp_path.glob(".d.*")).rmdir()

    mkdtemp, flock = tempfile.mkdtemp, fcntl.flock
    if moment == "created":
        monkeypatch.setattr(tempfile, "mkdtemp", lambda *arguments: (mkdtemp(*arguments), clear())[0])
    else:
        monkeypatch.setattr(fcntl, "flock", lambda *arguments: (flock(*arguments), clear())[0])
    with atomic_folder(tmp_path / "d") as partial:
        monkeypatch.undo()
        (partial / "x").touch()
    assert [path.name for path in tmp_path.rglob("*")] == ["d", "x"]
    assert rivals == []


def test_a_folder_replaces_one_that_another_process_has_just_put_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "before").touch()
    with atomic_folder(tmp_path / "d") as partial:
        (partial / "x").touch()
        rivals, rename = [True, True, False], Path.rename

        def rival(self: Path, target: Path) -> Path:
            if target == tmp_path / "d" and rivals.pop(0):
                target.mkdir()
                (target / "another").touch()
            return rename(self, target)

        monkeypatch.setattr(Path, "rename", rival)
    assert [path.name for path in tmp_path.rglob("*")] == ["d", "x"]
    assert rivals == []


def test_while_a_folder_is_replaced_its_files_are_all_there_or_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "d").mkdir()
    for name in ("a", "b"):
        (tmp_path / "d" / name).touch()
    seen = []

    def watched(original: Callable[..., None]) -> Callable[..., None]:
        def call(*arguments: Any, **options: Any) -> None:
            seen.append(sorted(path.name for path in (tmp_path / "d").glob("*")))
            original(*arguments, **options)

        return call

    with atomic_folder(tmp_path / "d") as partial:
        (partial / "c").touch()
        for name in ("rename", "unlink", "rmdir"):
            monkeypatch.setattr(os, name, watched(getattr(os, name)))
    assert seen[0] == ["a", "b"] and seen[-1] == ["c"]
    assert all(names in (["a", "b"], [], ["c"]) for names in seen)


LIMITED = """
import resource, sys
from pathlib import Path
import numpy as np, pyarrow as pa
from torch import nn
from mia_audit.cli import main
from mia_audit.errors import UserError
from mia_audit.models.weights import save_weights
from mia_audit.storage import atomic_write, write_table, write_text

def array(path):
    with atomic_write(path) as partial, partial.open("wb") as file:
        np.save(file, np.random.default_rng(0).random(100_000))

resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
writers = [
    lambda path: write_text(path, "x" * 200_000),
    lambda path: write_table(path, pa.table({"a": np.random.default_rng(0).random(100_000)}), "scores", 100_000),
    lambda path: save_weights(nn.Linear(500, 500), path),
    array,
]
for writer in writers:
    try:
        writer(Path("full"))
    except UserError as error:
        print(error)
"""


def test_a_full_disk_is_one_line_that_names_the_file_and_leaves_nothing(tmp_path: Path) -> None:
    """A limit on the size of files, which any user can set, takes the same path as a full disk."""
    result = subprocess.run([sys.executable, "-c", LIMITED], cwd=tmp_path, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    lines = result.stdout.splitlines()
    assert len(lines) == 4
    for line in lines:
        assert line.startswith("full: could not be written: ")
        assert line.endswith("again; finished work is kept") and "Make room" in line
    assert list(tmp_path.iterdir()) == []


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
    with pytest.raises(UserError, match=r"column 'name' holds .*; expected numbers, or leave it out"):
        open_table(path, "signals")
    pl.DataFrame(GIVEN["scores"] | {"name": ["a", "b"]}).write_parquet(path)
    open_table(path, "scores")
