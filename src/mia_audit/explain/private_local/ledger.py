"""What was spent and what was released: one row per answer, on disk before anybody sees that answer.

The file is a stream of Arrow record batches that is only ever appended to. An answer leaves with its row in the same append, so
that a crash loses both or charges for an answer that nobody saw: what was released is never more than what was charged.
"""

from __future__ import annotations

import fcntl
import json
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
import pyarrow as pa

from mia_audit.errors import UserError, first_line
from mia_audit.privacy.gaussian import epsilon_of_gdp
from mia_audit.storage import SCHEMA_VERSION, create_once

if TYPE_CHECKING:
    from jaxtyping import Float

KIND = "private-ledger"


class Entry(NamedTuple):
    """One answer: the query and its explanation [n], f and the class there, where the answer came from, and what it cost."""

    query: Float[np.ndarray, " n"]
    value: float
    explained_class: int
    source: str
    steps: int
    mu_squared: float
    explanation: Float[np.ndarray, " n"]


class Ledger:
    """The entries so far, in memory and, given a path, on disk.

    Opening a ledger that exists takes up where it ended; `metadata` (data, terms) must be those it was begun with. Only one
    process at a time may hold it. Raises UserError for a ledger of other metadata, a damaged one and one that is in use.
    """

    def __init__(self, path: Path | None, features: int, delta: float, metadata: dict[str, Any]) -> None:
        self.path, self.delta = path, delta
        self.entries: list[Entry] = []
        self.mu_squared = 0.0
        self._file, self._process = -1, os.getpid()
        self._schema = _schema(features, metadata)
        if path is not None:
            self._open(path, metadata)

    @property
    def epsilon(self) -> float:
        """ε at δ of everything charged so far."""
        return epsilon_of_gdp(math.sqrt(self.mu_squared), self.delta)

    def append(self, entries: list[Entry]) -> None:
        """Charge for entries and keep them; only when this has returned may their explanations be released.

        Where the disk fails they stay charged, and the ledger takes no more until it is opened again.
        """
        if os.getpid() != self._process:
            raise UserError(
                "private explanations: a fork may not spend the budget of the process that holds the ledger"
            )
        batch = self._batch(entries) if self.path is not None and entries else None
        if batch is not None and self._file < 0:
            raise UserError(f"{self.path}: closed; nothing was released")
        if batch is not None:
            self._refuse_replaced()
        self.entries += entries
        self.mu_squared += sum(entry.mu_squared for entry in entries)
        if batch is None:
            return
        try:
            _write_all(self._file, batch.serialize())
            os.fsync(self._file)
        except OSError as error:
            self.close()
            raise UserError(
                f"{self.path}: {error.strerror or error}; the answer was not released and stays charged. Make room and start again"
            ) from None

    def _refuse_replaced(self) -> None:
        """Refuse to write to a file that is no longer the one at the path, from which another process may answer."""
        assert self.path is not None
        mine = os.fstat(self._file)
        try:
            there = self.path.stat()
        except OSError:
            there = None
        if there is None or (there.st_dev, there.st_ino) != (mine.st_dev, mine.st_ino):
            raise UserError(
                f"{self.path}: moved or replaced while it was in use; nothing was released. Put it back and start again"
            )

    def close(self) -> None:
        """Let go of the file; another process may then open it."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def table(self) -> pa.Table:
        """Return all entries: number, query, value, class, source, steps, mu_squared, mu_squared_spent and epsilon (at δ), explanation."""
        return pa.Table.from_batches([self._batch(self.entries, whole=True)])

    def _batch(self, entries: list[Entry], whole: bool = False) -> pa.RecordBatch:
        first, spent = (0, 0.0) if whole else (len(self.entries), self.mu_squared)
        totals = spent + np.cumsum([entry.mu_squared for entry in entries])
        columns: dict[str, Sequence[Any] | np.ndarray] = {
            "number": np.arange(first, first + len(entries)),
            "query": [entry.query for entry in entries],
            "value": [entry.value for entry in entries],
            "class": [entry.explained_class for entry in entries],
            "source": [entry.source for entry in entries],
            "steps": [entry.steps for entry in entries],
            "mu_squared": [entry.mu_squared for entry in entries],
            "mu_squared_spent": totals,
            "epsilon": [epsilon_of_gdp(math.sqrt(total), self.delta) for total in totals.tolist()],
            "explanation": [entry.explanation for entry in entries],
        }
        arrays = [
            pa.array(list(values), field.type) for field, values in zip(self._schema, columns.values(), strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _open(self, path: Path, metadata: dict[str, Any]) -> None:
        if not path.exists():
            with create_once(path) as partial:
                partial.write_bytes(self._schema.serialize())
                _sync(partial)
            _sync(path.parent)
        self._file = os.open(path, os.O_RDWR | os.O_APPEND)
        try:
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise UserError(
                    f"{path}: another process answers from this ledger; two of them would spend the budget twice"
                ) from None
            self._read(path, metadata)
        except BaseException:
            self.close()
            raise

    def _read(self, path: Path, metadata: dict[str, Any]) -> None:
        with pa.memory_map(str(path)) as file:
            try:
                schema = pa.ipc.read_schema(file)
            except (pa.ArrowInvalid, OSError, EOFError) as error:
                raise UserError(f"{path}: damaged ({first_line(error)}); expected a ledger") from None
            told = json.loads((schema.metadata or {}).get(b"mia_audit.metadata", b"null"))
            if told != metadata:
                other = sorted(key for key in metadata if not isinstance(told, dict) or told.get(key) != metadata[key])
                raise UserError(
                    f"{path}: begun with other {', '.join(other) or 'metadata'}; answers on other terms need a ledger of their own"
                )
            end = file.tell()
            while end < file.size():
                try:
                    batch = pa.ipc.read_record_batch(pa.ipc.read_message(file), schema)
                    batch.validate(full=True)
                except (pa.ArrowInvalid, OSError, EOFError):
                    break  # an append that a crash cut short: its answers were never released
                self._take(path, batch)
                end = file.tell()
        os.ftruncate(self._file, end)

    def _take(self, path: Path, batch: pa.RecordBatch) -> None:
        rows = batch.to_pydict()
        numbers = list(range(len(self.entries), len(self.entries) + len(batch)))
        if rows["number"] != numbers or not np.allclose(
            rows["mu_squared_spent"], self.mu_squared + np.cumsum(rows["mu_squared"]), rtol=1e-9
        ):
            raise UserError(f"{path}: damaged: entry {numbers[0]} does not follow from those before it")
        for row in batch.to_pylist():
            query, explanation = np.array(row["query"]), np.array(row["explanation"])
            told = (row["value"], row["class"], row["source"], row["steps"], row["mu_squared"])
            self.entries.append(Entry(query, *told, explanation))
            self.mu_squared += row["mu_squared"]


def _schema(features: int, metadata: dict[str, Any]) -> pa.Schema:
    vector = pa.list_(pa.float64(), features)
    metadata = {
        "mia_audit.kind": KIND,
        "mia_audit.schema": SCHEMA_VERSION,
        "mia_audit.metadata": json.dumps(metadata, sort_keys=True),
    }
    fields = {
        "number": pa.int64(),
        "query": vector,
        "value": pa.float64(),
        "class": pa.int32(),
        "source": pa.string(),
        "steps": pa.int32(),
        "mu_squared": pa.float64(),
        "mu_squared_spent": pa.float64(),
        "epsilon": pa.float64(),
        "explanation": vector,
    }
    return pa.schema([pa.field(name, kind, nullable=False) for name, kind in fields.items()], metadata)


def _write_all(file: int, content: pa.Buffer) -> None:
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(file, rest) :]


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
