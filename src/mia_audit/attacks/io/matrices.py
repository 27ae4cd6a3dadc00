"""Read users' score matrices: records × models in .npy, .npz, .csv or .parquet, with or without a header."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from mia_audit.arrays import check_same_order
from mia_audit.attacks.io.outliers import Outliers, kept_models
from mia_audit.attacks.io.parquet import (
    LEAST_MODELS,
    check_loss,
    check_membership,
    check_orientation,
    check_probability,
    check_values,
)
from mia_audit.errors import UserError, few, first_line
from mia_audit.pools.persons import Persons, read_ids
from mia_audit.signals.families import derive, derived_from, source_of, with_derived
from mia_audit.signals.name import PROBABILITY, SUMMARIES, Signal, read_signal
from mia_audit.storage.unpacked import NOT_NUMPY, Npz, check_parquet

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from jaxtyping import Float

    Check = Callable[["Shape"], None]

MOST_MODELS = 10_000
"""The largest number of columns. A matrix with more is transposed, or its columns are not models."""

INDEX = ("record", "", "__index_level_0__")
"""Names of a column that identifies the record of each row; pandas writes the last two."""

Read = tuple[np.ndarray, np.ndarray | None]
"""A matrix, with the record of each row as text if the file names records."""


@dataclass(frozen=True)
class SignalFile:
    """A signal and the file that holds its matrix."""

    signal: Signal
    file: str


def parse_signal_file(text: str) -> SignalFile:
    """Read `NAME=FILE`; a NAME without a known scale is written `NAME:positive:low`, `NAME:real:high` and so on."""
    words, equals, file = text.partition("=")
    # names of attributions may have colons (captum:DeepLift_l1)
    name, *rest = [words] if read_signal(words).summary else words.split(":")
    if not equals or not name or not file:
        raise UserError(f"--signal {text}: expected NAME=FILE, for example loss=losses.npy or ixg_l1=norms.csv")
    if not rest:
        signal = read_signal(name)
        if name not in ("loss", "confidence", PROBABILITY) and signal.summary is None:
            raise UserError(
                f"--signal {text}: '{name}' is not a loss, confidence, probability or attribution summary (…_{', …_'.join(SUMMARIES)}); "
                f"give its scale, and whether members have low or high values: {name}:positive:low, {name}:real:high …"
            )
        return SignalFile(signal, file)
    if len(rest) != 2 or rest[0] not in ("positive", "real") or rest[1] not in ("low", "high"):
        raise UserError(f"--signal {text}: expected {name}:positive|real:low|high, got {words}")
    signal = Signal(name, cast(Any, rest[0]), cast(Any, rest[1]))
    if name in ("loss", "confidence") and signal != (known := read_signal(name)):
        raise UserError(
            f"--signal {text}: the signal {name} is {known.scale} and {known.members} in members; rename any other signal"
        )
    return SignalFile(signal, file)


class RecordIds:
    """The ids of the records, by the first file that has any. Threads may add files at the same time."""

    def __init__(self, what: str = "column `record`") -> None:
        self._what = what
        self._named: tuple[str, np.ndarray] | None = None
        self._unnamed = ""
        self._lock = Lock()

    def add(self, file: str, index: np.ndarray | None) -> None:
        """Compare a file's ids, if it has any, with those of the files before; UserError if records or their order differ."""
        with self._lock:
            if index is None:
                self._unnamed = self._unnamed or file
            elif self._named is None:
                self._named = file, index
            elif (other := index != self._named[1]).any():
                row = int(np.argmax(other))
                raise UserError(
                    f"{file}: record '{index[row]}' in row {row} where {self._named[0]} has '{self._named[1][row]}'; "
                    "expected the same records in the same order"
                )
            if self._named and self._unnamed:
                check_order(*self._named, f"{self._unnamed} has no {self._what}")


def check_order(file: str, index: np.ndarray, reason: str) -> None:
    """Raise UserError unless records are numbered 0, 1, 2 … in the order of the rows."""
    other = index != np.arange(len(index)).astype(str)
    if other.any():
        row = int(np.argmax(other))
        raise UserError(
            f"{file}: record '{index[row]}' in row {row}, but {reason}; expected records 0, 1, 2 … in order, or no ids"
        )


class MatrixFiles:
    """Membership and signals in matrix files, checked against each other and read one at a time."""

    def __init__(
        self, membership: str, given: list[SignalFile], person: str = "", leave_out: Sequence[int] = ()
    ) -> None:
        """Read the membership, and every record's person if a file has them. If only one of loss and confidence is given, the other is derived."""
        self.member, index = read_membership(membership)
        self._ids = RecordIds()
        self._ids.add(membership, index)
        self.record = np.arange(len(self.member))
        self._shape = self.member.shape
        every = np.arange(self._shape[1])
        self._kept = kept_models(every.tolist(), leave_out, membership)
        self.target, self.member = every[self._kept], self.member[:, self._kept]
        self.models = len(self.target)
        self.outliers = Outliers()
        self.persons = _persons(person, self.member, membership) if person else None
        self._membership = membership
        self._person = person
        self._files: dict[str, str] = {}
        for one in given:
            if one.signal.name in self._files:
                raise UserError(f"--signal {one.signal.name}: given twice")
            self._files[one.signal.name] = one.file
        self.signals = with_derived([one.signal for one in given])

    @property
    def files(self) -> list[Path]:
        """The files that membership, persons and signals are read from."""
        names = (self._membership, *([self._person] if self._person else []), *self._files.values())
        return list(
            dict.fromkeys(
                Path(f"{name}.npz" if key else file) for file in names for name, _, key in [file.partition(".npz:")]
            )
        )

    @property
    def derived(self) -> dict[str, str]:
        """The source of every signal that was derived, not read from a file."""
        return derived_from(self._files)

    def read(self, signal: Signal) -> list[Float[np.ndarray, "N K"]]:
        """Return one matrix [N, K] per query of a signal; UserError for invalid values, or if records or shape differ from the membership's."""
        if source := source_of(signal.name, self._files):
            return self.outliers.replaced(signal, derive(signal.name, source, self.read), self.target)
        file = self._files[signal.name]
        matrix, index = read_matrix(file, (self._shape, self._membership))
        check_same_order(model_names(file), file, model_names(self._membership), self._membership)
        self._ids.add(file, index)
        matrix = matrix[:, self._kept]
        queries = [matrix] if matrix.ndim == 2 else [matrix[:, :, query] for query in range(matrix.shape[2])]
        checked = []
        for values in queries:
            check_values(values, signal, file, f"; if it may be negative, give it as NAME:real:{signal.members}")
            if signal.name == PROBABILITY:
                check_probability(values, file)
            checked.append(np.asfortranarray(values, dtype=np.float64))
        if signal.name == "loss":
            check_loss(checked[0], self.member, file)
        return self.outliers.replaced(signal, checked, self.target)


def read_membership(file: str) -> Read:
    """Read which records each model was trained on; UserError unless cells are 0 or 1 and every model has members and non-members."""
    matrix, index = read_matrix(file)
    if matrix.ndim != 2:
        raise UserError(f"{file}: {_sizes(matrix.shape)}; expected records × models")
    member = as_membership(matrix, file)
    if matrix.shape[1] < LEAST_MODELS:
        raise UserError(f"{file}: {matrix.shape[1]} models; attacks need at least {LEAST_MODELS}, one column each")
    check_orientation(member, file)
    check_membership(member, file)
    return member, index


def _persons(file: str, member: np.ndarray, membership: str) -> Persons:
    """Return the persons of a membership's records; UserError if a training set has only some of a person's records."""
    persons = Persons.numbered(read_ids(Path(file), len(member)))
    check_membership(persons.gathered(member, membership), f"{membership}: persons")
    return persons


def as_membership(matrix: np.ndarray, where: str) -> np.ndarray:
    """Return a membership, records × models or the records of one model, as truth values; UserError, which names the cell, unless all are 0 or 1."""
    wrong = np.argwhere(~((matrix == 0) | (matrix == 1)))
    if len(wrong):
        record, *model = wrong[0]
        at = f"model {model[0]}, record {record}" if model else f"record {record}"
        raise UserError(f"{where}: {matrix[tuple(wrong[0])]} at {at}; membership is 0 or 1, or true or false")
    return np.asfortranarray(matrix, dtype=bool)


Shape = tuple[int, ...]


def read_matrix(file: str, like: tuple[Shape, str] | None = None) -> Read:
    """Read a matrix of numbers, records × models (× queries), in the format of the file's ending.

    Raises UserError, which names the file, for any other content.

    Where a file states the type and shape of its array in a header, they are checked before the array is read. `like` has
    the records × models that are expected, and the file that has them.
    """

    def check(shape: Shape) -> None:
        if like and shape[:2] != like[0]:
            raise UserError(
                f"{file}: {_sizes(shape)} where {like[1]} has {_sizes(like[0])}; expected the same records × models"
            )
        if len(shape) > 1 and shape[1] > MOST_MODELS:
            raise UserError(
                f"{file}: {_sizes(shape)}: more than {MOST_MODELS} models; expected records × models, one column per model"
            )

    name, _, key = file.partition(".npz:")
    path = Path(f"{name}.npz" if key else file)
    reader = READERS.get(path.suffix.lower())
    if reader is None:
        raise UserError(
            f"{file}: unknown kind of file; expected {', '.join(READERS)} (or FILE.npz:KEY for an array in .npz)"
        )
    if not path.is_file():
        raise UserError(f"{path}: no such file")
    try:
        matrix, index = reader(path, key, check)
    except (UserError, MemoryError):
        raise
    except Exception as error:  # readers raise exceptions of any type on damaged files
        reason = " ".join(str(error).split()) or type(error).__name__
        if "pickle" in reason:  # NumPy's message goes on to recommend unpickling
            reason = "it does not begin like a NumPy file"
        raise UserError(f"{file}: damaged, empty or not a matrix of numbers ({reason})") from None
    if matrix.dtype.kind not in "buif":
        raise UserError(f"{file}: holds {matrix.dtype}, not numbers; expected records × models")
    if matrix.ndim not in (2, 3) or not matrix.size:
        raise UserError(f"{file}: {_sizes(matrix.shape)}; expected records × models, or records × models × queries")
    check(matrix.shape)
    if index is not None:
        ids, counts = np.unique(index, return_counts=True)
        if (counts > 1).any():
            raise UserError(
                f"{file}: record '{ids[np.argmax(counts > 1)]}' has several rows; expected each record once"
            )
    return matrix, index


def model_names(file: str) -> list[str]:
    """Return the names of the models in a table that `read_matrix` can read; none where it has no names."""
    path = Path(file)
    if path.suffix.lower() == ".parquet":
        names: list[str] = pq.read_schema(path).names
    elif path.suffix.lower() == ".csv":
        with path.open(encoding=TEXT, errors="replace") as lines:
            first = lines.readline(64 * MOST_MODELS)
        names = [cell.strip().strip('"') for cell in re.split("[,;\t]", first)]
        if all(map(_is_number, names)):
            return []
    else:
        return []
    return [name for name in names if name not in INDEX]


def read_column(file: str) -> Float[np.ndarray, " n"]:
    """Read one number per model, from a file that `read_matrix` reads, or a .npy file with one axis. Raises UserError for any other content."""
    if file.endswith(".npy"):
        try:
            values = np.load(file, allow_pickle=False)
        except NOT_NUMPY as error:
            raise UserError(f"{file}: no array of numbers ({first_line(error)})") from None
        if values.ndim == 1 and values.dtype.kind in "buif":
            return np.asarray(values, dtype=np.float64)
    values, _ = read_matrix(file)
    if values.ndim != 2 or 1 not in values.shape:
        raise UserError(f"{file}: {_sizes(values.shape)}; expected one number for each model")
    return np.asarray(values, dtype=np.float64).reshape(-1)


def _sizes(shape: Shape) -> str:
    return " × ".join(str(size) for size in shape) or "a single number"


def _read_npy(path: Path, key: str, check: Check) -> Read:
    return np.load(path, mmap_mode="r", allow_pickle=False), None


def _read_npz(path: Path, key: str, check: Check) -> Read:
    arrays = Npz(path)
    names = list(arrays.headers)
    if not key and len(names) == 1:
        key = names[0]
    if key not in names:
        known = few(" ".join(name.split()) for name in names)
        raise UserError(f"{path}: expected {path}:KEY with KEY one of {known}")
    check(arrays.headers[key][0])
    return arrays.read(key), None


def _read_csv(path: Path, key: str, check: Check) -> Read:
    with path.open(encoding=TEXT, errors="replace") as lines:
        first = lines.readline(64 * MOST_MODELS)
        separator = next((mark for mark in ",;\t" if mark in first), None)
        cells = first.split(separator)
        if len(cells) > MOST_MODELS:
            raise UserError(f"{path}: more than {MOST_MODELS} columns; expected records × models, one column per model")
        if not first.strip():
            raise UserError(f"{path}: empty; expected records × models")
    indexed = cells[0].strip().strip('"') in INDEX
    header = _is_header(cells[1:] if indexed else cells, indexed)
    indexed = indexed and header
    row = _first_row(path, header)
    if not row.strip():
        raise UserError(f"{path}: no record below the header; expected records × models")
    try:
        matrix = np.loadtxt(
            path,
            delimiter=separator,
            skiprows=int(header),
            ndmin=2,
            usecols=range(1, len(cells)) if indexed else None,
            comments=None,
            converters=_number if "true" in row or "false" in row else None,
            encoding=TEXT,
        )
    except ValueError as error:
        reason = " ".join(str(error).split()).partition("; use `usecols`")[0]
        raise UserError(f"{path}: not a matrix of numbers: {reason}") from None
    if not indexed:
        return matrix, None
    index = np.loadtxt(
        path, dtype=str, comments=None, delimiter=separator, skiprows=1, ndmin=1, usecols=0, encoding=TEXT
    )
    return matrix, np.char.strip(index, ' "')


def _is_header(names: list[str], indexed: bool) -> bool:
    """Return whether the cells of the first line name models, by words or by consecutive numbers.

    After an index column, any distinct whole numbers name models. A line that mixes words and numbers is a damaged
    record.
    """
    numbers = [_number(name) for name in names if _is_number(name)]
    if len(numbers) < max(len(names), 2):
        return not numbers
    if indexed and all(number.is_integer() for number in numbers):
        return len(set(numbers)) == len(numbers)
    return numbers in (list(range(len(names))), list(range(1, len(names) + 1)))


def _first_row(path: Path, header: bool) -> str:
    """Return the first line below the header."""
    with path.open(encoding=TEXT, errors="replace") as lines:
        return [lines.readline() for _ in range(1 + header)][-1].lower()


def _number(cell: str) -> float:
    words = {"true": 1.0, "false": 0.0}
    text = cell.strip().strip('"').lower()
    return words[text] if text in words else float(text)


def _is_number(cell: str) -> bool:
    try:
        _number(cell)
    except ValueError:
        return False
    return True


def _read_parquet(path: Path, key: str, check: Check) -> Read:
    file = pq.ParquetFile(path)
    names = [name for name in file.schema_arrow.names if name not in INDEX]
    check((file.metadata.num_rows, len(names)))
    check_parquet(file, str(path))
    table = file.read(columns=names)
    for name in names:
        kind = table.schema.field(name).type
        if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)):
            raise UserError(f"{path}: column '{name}' holds {kind}, not numbers; expected records × models")
        if table[name].null_count:
            raise UserError(f"{path}: column '{name}' has {table[name].null_count} empty cells; expected numbers")
    index = next((name for name in file.schema_arrow.names if name in INDEX), None)
    rows = np.array(file.read(columns=[index])[index].to_pylist(), dtype=str) if index is not None else None
    return np.stack([table[name].to_numpy() for name in names]).T, rows


TEXT = "utf-8-sig"
"""The encoding of text files, without the byte-order mark with which some spreadsheets begin them."""

READERS = {".npy": _read_npy, ".npz": _read_npz, ".csv": _read_csv, ".parquet": _read_parquet}
"""Readers by the file's ending; their argument `key` names an array in a .npz file."""
