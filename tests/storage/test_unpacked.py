"""Files that unpack to more than there is room for are refused by their headers."""

import io
import zipfile

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mia_audit.attacks.io.matrices import MatrixFiles, parse_signal_file, read_matrix
from mia_audit.attacks.io.parquet import SignalsFile
from mia_audit.config.load import parse
from mia_audit.errors import UserError
from mia_audit.pools.section import Dataset
from mia_audit.pools.sources.files import arrays, table
from mia_audit.storage import unpacked
from mia_audit.storage.unpacked import Npz, check_csv


def lying(path, shape, content=bytes(64)):
    """Write an .npz file whose header says more than is there."""
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f8", "fortran_order": False, "shape": shape})
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a.npy", header.getvalue() + content)
    return path


@pytest.fixture
def little(monkeypatch):
    """Leave a megabyte."""
    monkeypatch.setattr(unpacked, "available_memory", lambda: 1_000_000)


def zeros(path, shape, **more):
    np.savez_compressed(path, a=np.zeros(shape), **more)
    return path


def test_headers_that_say_what_is_not_there_are_refused(tmp_path):
    path = lying(tmp_path / "a.npz", (10**6, 10**6))
    with pytest.raises(ValueError, match="but the file has fewer"):
        Npz(path)
    with pytest.raises(UserError, match=r"damaged, empty or not a matrix of numbers .*but the file has fewer"):
        read_matrix(str(path))


def test_an_archive_is_compared_with_the_membership_before_it_is_read(tmp_path, monkeypatch):
    member = np.arange(20)[:, None] // 10 == np.arange(4) % 2
    np.save(tmp_path / "member.npy", member)
    given = [parse_signal_file(f"loss={zeros(tmp_path / 'loss.npz', (1000, 4))}")]
    files = MatrixFiles(str(tmp_path / "member.npy"), given)
    monkeypatch.setattr(np, "load", None)
    with pytest.raises(UserError, match=r"loss.npz: 1000 × 4 where .*member.npy has 20 × 4"):
        files.read(files.signals[0])


def test_parquet_is_compared_with_the_membership_before_it_is_read(tmp_path, monkeypatch):
    np.save(tmp_path / "member.npy", np.arange(20)[:, None] // 10 == np.arange(4) % 2)
    pq.write_table(pa.table({str(k): np.zeros(100_000) for k in range(4)}), tmp_path / "loss.parquet")
    files = MatrixFiles(str(tmp_path / "member.npy"), [parse_signal_file(f"loss={tmp_path / 'loss.parquet'}")])
    monkeypatch.setattr(pq.ParquetFile, "read", None)
    with pytest.raises(UserError, match=r"loss.parquet: 100000 × 4 where .* has 20 × 4"):
        files.read(files.signals[0])


def test_a_matrix_that_does_not_fit_is_one_line(tmp_path, little):
    with pytest.raises(UserError, match=r"a.npz: array 'a' of shape \[100000, 4\] takes .* GB in memory"):
        read_matrix(str(zeros(tmp_path / "a.npz", (100_000, 4))))
    pq.write_table(pa.table({str(k): np.zeros(100_000) for k in range(4)}), tmp_path / "a.parquet")
    with pytest.raises(UserError, match=r"a.parquet: a table of 100,000 rows and 4 columns takes"):
        read_matrix(str(tmp_path / "a.parquet"))


def test_a_pool_that_does_not_fit_is_one_line(tmp_path, little):
    np.savez_compressed(tmp_path / "a.npz", records=np.zeros((100_000, 2)), labels=np.zeros(100_000, dtype=int))
    dataset = parse(Dataset, {"source": "arrays", "path": str(tmp_path / "a.npz")}, "test")
    with pytest.raises(UserError, match=r"array 'records' of shape .* takes"):
        arrays(dataset, "datasets.d")
    pq.write_table(
        pa.table({"label": np.zeros(1_000_000, dtype=int), "x": np.zeros(1_000_000)}), tmp_path / "a.parquet"
    )
    dataset = parse(Dataset, {"source": "table", "path": str(tmp_path / "a.parquet")}, "test")
    with pytest.raises(UserError, match="a table of 1,000,000 rows and 2 columns takes"):
        table(dataset, "datasets.d")


def test_signals_that_do_not_fit_are_one_line(tmp_path, little):
    rows = 200_000
    columns = {"shadow": np.repeat(np.arange(4), rows // 4), "record": np.tile(np.arange(rows // 4), 4)}
    pq.write_table(pa.table(columns | {"member": np.arange(rows) % 2, "loss": np.zeros(rows)}), tmp_path / "s.parquet")
    with pytest.raises(UserError, match="a table of 200,000 rows"):
        SignalsFile(tmp_path / "s.parquet")


def test_lines_of_a_csv_file_are_bounded_before_it_is_read(tmp_path, monkeypatch):
    path = tmp_path / "empty.csv"
    path.write_text("x,label\n" + "\n" * 100_000)
    section = parse(Dataset, {"source": "table", "path": str(path)}, "test")
    monkeypatch.setattr(unpacked, "available_memory", lambda: 3_000_000)
    with pytest.raises(UserError, match=r"empty.csv: a table of 100,001 lines takes"):
        table(section, "datasets.d")


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_csv_file_of_empty_lines_is_not_read(end, tmp_path):
    path = tmp_path / "empty.csv"
    path.write_text("a,label" + 1_500_000 * end, newline="")
    with pytest.raises(UserError, match=r"empty.csv: most of its 1,500,000 lines are empty: remove them"):
        check_csv(path)
