"""What tests of several rooms build and ask: commands with their specifications, pools, signals, and what is refused."""

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

from mia_audit.cli import main
from mia_audit.errors import UserError
from mia_audit.evaluation.metrics import auc
from mia_audit.pools.store import write_membership
from mia_audit.storage import table_metadata, write_table

CLASSES = ["a", "b", "c"]


def words(command: str, folder: Path, *given: object, **options: Any) -> list[str]:
    """Return the words of a command line.

    An option that is a mapping or a specification is written to a file in the folder; one that is None is left out.
    """
    line = [command, *map(str, given)]
    for name, value in options.items():
        if isinstance(value, Mapping):
            path = folder / f"{name}-{len(list(folder.glob(f'{name}-*')))}.json"
            path.write_text(json.dumps(value))
            value = path
        elif hasattr(value, "from_audit"):
            value = value.write(folder)
        if value is not None:
            line += [f"--{name.replace('_', '-')}", *map(str, value if isinstance(value, list | tuple) else [value])]
    return line


def run(command: str, *given: object, **options: Any) -> int:
    """Run a command with these options in this process, and return its exit code."""
    with TemporaryDirectory() as folder:
        return main(words(command, Path(folder), *given, **options))


def one_line(capsys: pytest.CaptureFixture[str]) -> str:
    """Return what was said on stderr, which is one line."""
    line = capsys.readouterr().err
    assert line.count("\n") == 1, line
    return line


@contextmanager
def refused(message: str) -> Iterator[None]:
    """Expect an error of the user's in one line that holds this text."""
    with pytest.raises(UserError, match=re.escape(message)) as caught:
        yield
    assert "\n" not in str(caught.value)


class Trap:
    """Leaves a mark where it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.mark,)


def contents(folder: Path) -> dict[str, bytes]:
    """Return the bytes of every file below a folder, by its path there."""
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def halves(random: np.random.Generator, records: int, models: int) -> np.ndarray:
    """Draw a membership [records, models] in which every model has half of the records."""
    return np.stack([random.permutation(records) < records // 2 for _ in range(models)], axis=1)


def mean_auc(scores: np.ndarray, member: np.ndarray) -> float:
    """Return the mean over targets of the AUC of scores [records, targets]."""
    return float(np.mean([auc(score, inside) for score, inside in zip(scores.T, member.T, strict=True)]))


def write_records(
    folder: Path, stem: str, records: np.ndarray, labels: np.ndarray, columns: Mapping[str, Any] = {}, **metadata: Any
) -> None:
    """Write records as `mia-audit pool` does, under `records` or `public`; a table unless they are images."""
    folder.mkdir(parents=True, exist_ok=True)
    np.save(folder / f"{stem}.npy", records)
    shape = list(records.shape[1:])
    known = {"name": "toy", "kind": "image" if len(shape) > 1 else "table", "shape": shape, "classes": CLASSES}
    known["features"] = [f"f{number}" for number in range(shape[0])] if len(shape) == 1 else None
    table = {"record": np.arange(len(records), dtype=np.int32), "label": np.asarray(labels, dtype=np.int32), **columns}
    write_table(folder / f"{stem}.parquet", pa.table(table), "records", len(records), known | metadata)


def write_pool(folder: Path, records: np.ndarray, labels: np.ndarray, member: np.ndarray, **metadata: Any) -> Path:
    """Write a pool without public records, and the membership [records, models] of its shadow models."""
    write_records(folder, "records", records, labels, **metadata)
    write_membership(folder / "membership.parquet", member, {"design": "half", "seed": 0})
    return folder


def write_signals(path: Path, member: np.ndarray, metadata: dict[str, Any] | None = None, **columns: Any) -> Path:
    """Write a signals.parquet, a model after the other, of columns [records, models] or [records]."""
    records, models = member.shape

    def tables() -> Iterator[pa.Table]:
        for model in range(models):
            table = {"shadow": np.full(records, model, np.int32), "record": np.arange(records, dtype=np.int32)}
            table["member"] = member[:, model]
            for name, values in columns.items():
                column = values[:, model] if values.ndim == 2 else values
                table[name] = column.astype(np.float32) if column.dtype.kind == "f" else column
            yield pa.table(table)

    write_table(path, tables(), "signals", records * models, metadata)
    return path


def change_table(path: Path, kind: str, metadata: Mapping[str, Any] = {}, **columns: Any) -> None:
    """Write a table again with other columns, each an expression of polars, and other metadata; None takes a key away."""
    frame = pl.read_parquet(path).with_columns(**columns)
    known = {name: value for name, value in (table_metadata(path, kind) | metadata).items() if value is not None}
    write_table(path, frame.to_arrow(), kind, len(frame), known)
