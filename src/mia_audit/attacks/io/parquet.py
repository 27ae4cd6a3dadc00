"""Read signals.parquet with one signal in memory at a time, and write scores.parquet with one row group per run and aggregate.

Mistakes that leave every number in range are refused: probabilities given as losses, swapped axes, exact halves declared as fair coins.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from mia_audit.attacks.catalogue import AttackRun, unread
from mia_audit.attacks.design import RECORDS, aggregates_of, in_unit, recognise, same_training_set, unit_of
from mia_audit.attacks.io.outliers import Outliers, kept_models
from mia_audit.errors import UserError, few
from mia_audit.pools.persons import Persons, numbered_ids
from mia_audit.signals.families import derive, derived_from, source_of, with_derived
from mia_audit.signals.name import PROBABILITY, Signal, is_signal, read_signal
from mia_audit.storage import ROW_GROUPS, digests, naming_damage, open_table, row_groups_of, table_metadata, write_table
from mia_audit.storage.tables import column_parts, diverged_models, filled, joined, repeated, rows_of_lists, stretches
from mia_audit.storage.unpacked import check_parquet

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int

    from mia_audit.signals.name import Cells, Member

SURE = 5.0
"""A loss is rejected if the members' mean exceeds that of the others by more than this many standard errors."""

NEAR_ONE, PILED = 0.99, 0.25
"""Values within [0, 1] are taken to be softmax probabilities if more than the share `PILED` of them exceed `NEAR_ONE`."""

RARE = 1e-4
"""Exact halves of all models are not a coincidence if fair coins give them with less than this probability: one model's may be."""


def check_loss(loss: Cells, member: Member, where: str) -> None:
    """Raise UserError for a loss that looks like the label's softmax probability: within [0, 1], and higher in members or mostly near 1."""
    if loss.max() > 1 or loss.min() < 0:
        return
    inside, outside = (loss[side].astype(np.float64) for side in (member, ~member))
    if not (len(inside) and len(outside)):
        return
    error = np.sqrt(inside.var() / len(inside) + outside.var() / len(outside))
    higher = inside.mean() - outside.mean() > SURE * error > 0
    if higher or (loss > NEAR_ONE).mean() > PILED:
        raise UserError(
            f"{where}: values are within [0, 1] and {'higher in members' if higher else 'mostly near 1'}: they are the label's "
            "softmax probability, not its loss; give them as probability=FILE, or their −log as loss"
        )


def check_probability(values: Cells, where: str) -> None:
    """Raise UserError for a value above 1."""
    if values.max() > 1:
        record, model = np.argwhere(values > 1)[0]
        raise UserError(f"{where}: {values[record, model]:g} at model {model}, record {record} is not a probability")


def check_orientation(member: Member, where: str) -> None:
    """Raise UserError for a membership that is models × records: all rows, but not all columns, have the same number of members.

    Only memberships with more columns than rows are checked. Undecided cases get a warning on stderr.
    """
    records, models = member.shape
    if models <= records:
        return
    rows, columns = (len(np.unique(member.sum(axis=axis))) == 1 for axis in (1, 0))
    shape = f"{where}: {records} × {models} is read as {records} records of {models} models"
    if rows and not columns and records > 1:
        raise UserError(
            f"{shape}, but all rows have equally many members, as if they were the models; expected records × models: transpose it"
        )
    print(f"mia-audit: {shape}; if it is models × records, transpose it and the signals", file=sys.stderr)


def check_coins(member: Member, where: str) -> None:
    """Raise UserError for a membership declared as fair coins if models have exactly half of the records or depend on each other."""
    records, models = member.shape
    chance = np.sqrt(2 / (np.pi * records)) ** models  # at least the probability that every model has exactly half
    if chance < RARE and (member.sum(axis=0) == records // 2).all():
        raise UserError(
            f"{where}: every model has exactly {records // 2} of {records} records, so membership was not drawn by fair coins; expected --design half"
        )
    if not recognise(member).independent:
        raise UserError(
            f"{where}: memberships in different models depend on each other, so they were not drawn by fair coins; expected --design half"
        )


def warn_of_persons(member: Member, where: str) -> None:
    """Print a warning on stderr if more records than by chance have the same memberships in all models, as records of one person have."""
    drawn = member[member.any(axis=1) & ~member.all(axis=1)]
    if len(drawn) < 2 or not recognise(drawn).independent:
        return
    alike = len(drawn) - len(np.unique(drawn, axis=0))
    shares = drawn.mean(axis=0)
    chance = len(drawn) ** 2 / 2 * float(np.prod(shares**2 + (1 - shares) ** 2))
    if alike > chance + SURE * np.sqrt(chance) + SURE:
        print(
            f"mia-audit: {where}: {alike} of {len(member)} records have the same memberships as another one, as if membership was drawn by"
            " person; attacks on records understate what persons risk: name the persons (--person FILE, or a column `person` of the table)",
            file=sys.stderr,
        )


LEAST_MODELS = 4
"""The smallest number of shadow models with which a leave-one-out attack makes sense."""

KEYS = ("shadow", "record", "member", "label", "predicted")
"""Columns of signals.parquet that are not signals."""

ENCODING: dict[str, Any] = {
    "use_dictionary": ["attack", "signal", "likelihood", "unit", "aggregate"],
    "column_encoding": {"record": "DELTA_BINARY_PACKED"},
    "write_statistics": False,
    "compression": dict.fromkeys(("null_control", "target"), "lz4"),
    "data_page_size": 1 << 23,
    "write_batch_size": 1 << 16,
}
"""Writer options of scores.parquet. They take a quarter of the defaults' time and half of their space.

Scores and membership look like noise to a compressor: zstd, which restarts on every page, takes a tenth of the total
time and compresses no better than lz4. Statistics would take half as much time again; the metadata `ROW_GROUPS`
describes the row groups instead.
"""

NAME = pa.dictionary(pa.int32(), pa.string())
NAMES = ("attack", "signal", "likelihood", "unit", "aggregate")


def score_schema(persons: Persons | None = None) -> pa.Schema:
    """Return the schema of scores.parquet; with `persons` it has a column `person`, and `record` is null in rows of persons."""
    kinds: dict[str, pa.DataType] = {
        **dict.fromkeys(NAMES, NAME),
        "null_control": pa.bool_(),
        "target": pa.int32(),
        "record": pa.int32(),
        "member": pa.bool_(),
        "score": pa.float32(),
    }
    if persons is not None:
        kinds["person"] = pa.array(persons.ids).type
    return pa.schema([pa.field(name, kind, nullable=name == "record") for name, kind in kinds.items()])


CHUNK_ROWS = 1 << 16
"""Largest number of rows given to the writer at a time, so that columns that repeat from target to target stay in the cache."""

SMALLEST, LARGEST = 1e-60, 1e100
"""Limits between which the largest absolute value of a signal must lie."""

GIVEN = "given_sha256"
"""The metadata key of scores.parquet and metrics.parquet for the SHA-256 of every file that no audit wrote, by file name."""

TARGET = "target"
"""The metadata key of signals.parquet for the number of a finished model: it is the only target, the others are its references."""

UNLIKE = "unlike_references"
"""The metadata key of a finished model's tables for its accuracies and losses that are unlike those of its references:
its own value, and the lowest and highest of the references; None if they were not compared."""

UNREAD = "unread_attacks"
"""The metadata key of scores.parquet and metrics.parquet for the requested attacks that had no signal to read."""

DERIVED = "derived_signals"
"""The metadata key of scores.parquet and metrics.parquet for the source of a derived loss or confidence."""

QUERY = "@"
"""Joins a signal's name and the number of a further query (augmentation) of the same records: `loss`, `loss@2`, `loss@3`."""


def readings_metadata(asked: Sequence[str], signals: Sequence[Signal], derived: Mapping[str, str]) -> dict[str, Any]:
    """Return metadata on derived signals and on attacks without a signal to read. The latter are also named in a warning on stderr."""
    nothing = unread(asked, signals)
    if nothing:
        names = few(signal.name for signal in signals)
        print(f"mia-audit: warning: {', '.join(nothing)}: no signal to read (available: {names})", file=sys.stderr)
    return ({UNREAD: nothing} if nothing else {}) | ({DERIVED: dict(derived)} if derived else {})


class TooFewModels(UserError):
    """There are not enough models for any attack."""


class SignalsFile:
    """A signals.parquet, read column by column as matrices [N records, K models]. They are transposed views, contiguous by model."""

    def __init__(self, path: Path, leave_out: Sequence[int] = ()) -> None:
        """Open the file and read the membership; UserError for a file that is not K models × the same N records in order."""
        self._path = path
        self.outliers = Outliers()
        self._file = open_table(path, "signals", ["shadow", "record", "member"])
        self._queries: dict[str, list[str]] = {}
        for name in self._file.schema_arrow.names:
            if is_signal(name):
                self._queries.setdefault(name.partition(QUERY)[0], []).append(name)
        stated = table_metadata(path, "signals").get("signals", {})
        self.signals = with_derived(
            [Signal(name, **stated[name]) if name in stated else read_signal(name) for name in self._queries]
        )
        self._order: np.ndarray | None = None
        ordered = stated_order(self._file)
        held = ("one signal",) if ordered else ("shadow", "record", "order", "one signal")
        check_parquet(self._file, str(path), columns=len(held))
        if not ordered:
            self._order = np.lexsort([joined(self._parts(name)) for name in ("record", "shadow")])
        self.missing = diverged_models(path, "signals")
        self.target: Int[np.ndarray, " K"]
        self.target, starts = stretches(self._parts("shadow"))
        stored = len(self.target)
        self._kept = kept_models(self.target.tolist(), leave_out, str(path))
        self.models = len(self.target[self._kept])
        if self.models < LEAST_MODELS:
            raise TooFewModels(f"{path}: {self.models} models; attacks need at least {LEAST_MODELS}")
        rows = self._file.metadata.num_rows
        self._records = rows // stored
        record = repeated(self._parts("record"), self._records)
        expected = [model for model in range(stored + len(self.missing)) if model not in self.missing]
        if not (
            (self._order is not None or self.target.tolist() == expected)
            and rows == stored * self._records
            and np.array_equal(starts, np.arange(stored) * self._records)
            and record is not None
        ):
            order = "" if self._order is not None else " one after the other"
            same = ", once each" if self._order is not None else " in the same order"
            raise UserError(f"{path}: expected the rows of every model{order}, each with the same records{same}")
        self.record: Int[np.ndarray, " N"] = record
        self._stored, self.target = stored, self.target[self._kept]
        self.member: Bool[np.ndarray, "N K"] = self._matrix(self._checked_member(), bool)
        check_orientation(self.member, str(path))
        check_membership(self.member, str(path))
        self.persons = self._persons()

    def read(self, signal: Signal) -> list[Float[np.ndarray, "N K"]]:
        """Return a signal's values for every query, as float32 if they are stored so, else as float64; [N, K, m] for vectors.

        A loss or confidence that the table lacks is derived from the other one or from probabilities. Raises UserError,
        which names the first cell that is not a finite number.
        """
        if signal.is_vector:
            return [self._vectors(name) for name in self._queries[signal.name]]
        if source := source_of(signal.name, self._queries):
            return self.outliers.replaced(signal, derive(signal.name, source, self.read), self.target)
        kinds = {
            field.name: np.float32 if field.type == pa.float32() else np.float64 for field in self._file.schema_arrow
        }
        queries = {name: self._matrix(self._parts(name), kinds[name]) for name in self._queries[signal.name]}
        for name, values in queries.items():
            check_finite(values, f"{self._path}: column '{name}'")
            if signal.name == PROBABILITY:
                check_values(values, signal, f"{self._path}: column '{name}'")
                check_probability(values, f"{self._path}: column '{name}'")
        if signal.name == "loss":
            check_loss(next(iter(queries.values())), self.member, f"{self._path}: column 'loss'")
        return self.outliers.replaced(signal, list(queries.values()), self.target)

    def _vectors(self, name: str) -> Float[np.ndarray, "N K m"]:
        """Return a column of vectors, over their L1 norms, float16, mapped from a temporary file: attacks read blocks of records."""
        rows, size = self._stored * self._records, self._file.schema_arrow.field(name).type.list_size
        with TemporaryFile() as file, naming_damage(self._path, "signals"):
            values = np.memmap(file, dtype=np.float16, shape=(rows, size))
            start = 0
            for part in rows_of_lists(self._file, name, str(self._path)):
                if not np.isfinite(part.sum(dtype=np.float32)):
                    raise UserError(f"{self._path}: column '{name}': expected finite numbers")
                values[start : start + len(part)] = part
                start += len(part)
        return values.reshape(self._stored, self._records, -1)[self._kept].swapaxes(0, 1)

    @property
    def derived(self) -> dict[str, str]:
        """The source of every signal that is derived because the table lacks it."""
        return derived_from(self._queries)

    def right(self) -> Bool[np.ndarray, "N K"] | None:
        """Return which records every model classifies correctly; None where the table has no predicted classes."""
        if not {"label", "predicted"} <= set(self._file.schema_arrow.names):
            return None
        pairs = zip(self._parts("label"), self._parts("predicted"), strict=True)
        return self._matrix((label == predicted for label, predicted in pairs), bool)

    def _persons(self) -> Persons | None:
        """Return the person of every record, if the table has them; UserError if models disagree on it, or if a
        training set has only some of a person's records.
        """
        if "person" not in self._file.schema_arrow.names:
            return None
        values = joined(self._parts("person"))
        values = values.astype(np.str_) if values.dtype.kind == "O" else values
        ids = numbered_ids(values, f"{self._path}: column 'person'")
        of_models = ids.reshape(self._stored, self._records)
        if (of_models != of_models[0]).any():
            raise UserError(f"{self._path}: column 'person': expected the same person for a record in every model")
        persons = Persons.numbered(of_models[0])
        member = persons.gathered(self.member, f"{self._path}: column 'member'")
        check_membership(member, f"{self._path}: persons")
        return persons

    def _checked_member(self) -> Iterator[np.ndarray]:
        """Yield the column of members; UserError for a cell that is neither 0 nor 1."""
        row = 0
        for part in self._parts("member"):
            if (wrong := ~((part == 0) | (part == 1))).any():
                first = int(np.argmax(wrong))
                model, record = divmod(row + first, self._records)
                raise UserError(
                    f"{self._path}: column 'member': {part[first]} at model {model}, record {record}; expected 0 or 1"
                )
            row += len(part)
            yield part

    def _matrix(self, parts: Iterable[np.ndarray], kind: type) -> np.ndarray:
        return filled(parts, self._stored * self._records, kind).reshape(self._stored, self._records)[self._kept].T

    def _parts(self, name: str) -> Iterator[np.ndarray]:
        """Yield a column's values, ordered by model, then record. If the table has another order, they are yielded at once."""
        with naming_damage(self._path, "signals"):
            parts = column_parts(self._file, name, str(self._path))
            if self._order is None:
                yield from parts
            elif len(values := joined(parts)):
                yield values[self._order]


def stated_order(file: pq.ParquetFile) -> bool:
    """Return whether an audit wrote the table, according to its metadata; the rows then have the usual order."""
    return digests.KEY.encode() in (file.schema_arrow.metadata or {})


def check_membership(member: Bool[np.ndarray, "N K"], where: str) -> None:
    """Raise UserError unless every model has a member and a non-member, and a training set of its own."""
    count = member.sum(axis=0)
    for model in np.flatnonzero((count == 0) | (count == len(member))):
        lacking = "non-member" if count[model] else "member"
        raise UserError(
            f"{where}: model {model} has no {lacking}; an attack needs members and non-members of every model"
        )
    if twins := same_training_set(member):
        raise UserError(
            f"{where}: models {twins[0]} and {twins[1]} have the same training set, so that each reveals the other's members; "
            "expected one model per training set"
        )


def check_finite(values: Float[np.ndarray, "N K"], where: str) -> None:
    """Raise UserError unless every value is a finite number."""
    if not np.isfinite(values.sum()) and not (finite := np.isfinite(values)).all():
        record, model = np.argwhere(~finite)[0]
        raise UserError(
            f"{where}: {values[record, model]} at model {model}, record {record} ({(~finite).sum()} such cells); expected finite numbers"
        )


def check_values(values: Float[np.ndarray, "N K"], signal: Signal, where: str, remedy: str = "") -> None:
    """Raise UserError for values that are not finite, that are negative in a positive signal, or whose squares are out of range.

    `remedy` ends the message on a negative value.
    """
    low, high = float(values.min()), float(values.max())
    if signal.scale == "positive" and low < 0:
        record, model = np.argwhere(values == low)[0]
        raise UserError(f"{where}: {low:g} at model {model}, record {record}, but '{signal.name}' is positive{remedy}")
    if not np.isfinite(high - low):
        check_finite(values, where)
    if (size := max(-low, high)) and not SMALLEST < size < LARGEST:
        record, model = np.argwhere(values == (high if size == high else low))[0]
        raise UserError(
            f"{where}: {values[record, model]:g} at model {model}, record {record} is the largest value; expected an absolute value"
            f" between {SMALLEST:g} and {LARGEST:g}: give the signal in another unit"
        )


def write_scores(
    path: Path,
    scored: Iterable[tuple[AttackRun, Bool[np.ndarray, "N K"], Float[np.ndarray, "N K"]]],
    runs: Sequence[AttackRun],
    record: Sequence[int] | np.ndarray,
    target: Sequence[int] | np.ndarray,
    metadata: dict[str, Any],
    persons: Persons | None = None,
) -> None:
    """Write scores.parquet: float32 scores, with NaN for missing ones, and one row group per run and aggregate, in the order of `runs`.

    With `persons`, a run's scores of records are followed by those of persons, for every aggregate. A run with more
    rows than fit in a row group has several consecutive ones.
    """
    schema, aggregates = score_schema(persons), aggregates_of(persons)
    tables = score_tables(scored, record, target, persons) if runs else iter([schema.empty_table()])
    rows = {aggregate: len(target) * len(record if aggregate == RECORDS else persons or ()) for aggregate in aggregates}
    groups = [
        [run.attack, run.signal, run.likelihood, run.null_control, unit_of(aggregate), aggregate]
        for run in runs
        for aggregate in aggregates
        for _ in range(row_groups_of(rows[aggregate]))
    ]
    write_table(path, tables, "scores", len(runs) * sum(rows.values()), metadata | {ROW_GROUPS: groups}, **ENCODING)


def score_tables(
    scored: Iterable[tuple[AttackRun, Bool[np.ndarray, "N K"], Float[np.ndarray, "N K"]]],
    record: Sequence[int] | np.ndarray,
    target: Sequence[int] | np.ndarray,
    persons: Persons | None = None,
) -> Iterator[pa.Table]:
    """Yield the rows of every run and aggregate, sorted by target, then record or person."""
    records = np.asarray(record, dtype=np.int32)
    of_records = _Rows({"record": records} | ({"person": persons.spread(persons.ids)} if persons else {}), target)
    of_people = _Rows({"person": persons.ids}, target) if persons else of_records
    schema = score_schema(persons)
    for run, member, scores in scored:
        for aggregate in aggregates_of(persons):
            rows, inside = (of_records, member)
            if aggregate != RECORDS and persons is not None:
                rows, inside = of_people, persons.gathered(member, "membership")
            yield rows.table(run, aggregate, inside, in_unit(scores, persons, aggregate), schema)
        del scores  # free these scores before the next run's are computed


class _Rows:
    """The columns that all runs share, ordered by target, then record or person: built only once, and shared."""

    def __init__(self, own: dict[str, np.ndarray], target: Sequence[int] | np.ndarray) -> None:
        count = len(next(iter(own.values())))
        together = max(1, CHUNK_ROWS // max(count, 1))
        size = max(1, together * min(count, CHUNK_ROWS))
        self._places: list[tuple[int, int]] = []  # the first row of every chunk, and its number of rows
        targets: list[pa.Array] = []
        for first in range(0, len(target), together):
            some = np.asarray(target[first : first + together], np.int32)
            rows, values = len(some) * count, pa.array(np.repeat(some, min(count, CHUNK_ROWS)))
            places = [(start, min(size, rows - start)) for start in range(0, rows, size)]
            targets += [values[:length] for _, length in places]
            self._places += places
        self._targets = pa.chunked_array(targets, pa.int32())
        self._first = self._chunked(np.zeros(size, dtype=np.int32))
        self._null_control = {value: self._chunked(np.full(size, value)) for value in (False, True)}
        self._own = {"record": self._chunked(pa.nulls(size, pa.int32()))}
        self._own |= {name: self._chunked(np.tile(values, together)) for name, values in own.items()}
        self._members: dict[bool, pa.Array] = {}

    def _chunked(self, values: np.ndarray | pa.Array) -> pa.ChunkedArray:
        """Return an array of all rows that repeats the values chunk by chunk, and holds them in memory once."""
        values = pa.array(values)
        return pa.chunked_array([values[start % len(values) :][:length] for start, length in self._places], values.type)

    def table(
        self, run: AttackRun, aggregate: str, member: np.ndarray, scores: np.ndarray, schema: pa.Schema
    ) -> pa.Table:
        """Return the rows of one run."""
        if run.null_control not in self._members:
            self._members[run.null_control] = pa.array(member.T.ravel())
        values = (run.attack, run.signal, run.likelihood, unit_of(aggregate), aggregate)
        columns = {
            **{name: _named(self._first, value) for name, value in zip(NAMES, values, strict=True)},
            "null_control": self._null_control[run.null_control],
            "target": self._targets,
            **self._own,
            "member": self._members[run.null_control],
            "score": pa.array(scores.T.ravel().astype(np.float32, copy=False)),
        }
        return pa.table({name: columns[name] for name in schema.names}).cast(schema)


def _named(places: pa.ChunkedArray, name: str) -> pa.ChunkedArray:
    names = pa.array([name])
    return pa.chunked_array([pa.DictionaryArray.from_arrays(chunk, names, safe=False) for chunk in places.chunks])
