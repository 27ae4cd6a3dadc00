"""Read published score matrices, in the layouts of their authors, into one table of signals."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from mia_audit.attacks.io.parquet import check_finite, check_membership, check_values
from mia_audit.errors import UserError, suggest
from mia_audit.signals.derived import confidence_from_loss
from mia_audit.signals.name import read_signal
from mia_audit.storage import write_table

if TYPE_CHECKING:
    from jaxtyping import Bool, Float

PREFIXES = {
    "indices": "member",
    "losses": "loss",
    "variances": "variance",
    "norms_l1": "l1",
    "norms_l2": "l2",
    "norms_linf": "linf",
}
"""The content of the folders of the per-model layout, by the beginning of their names."""


@dataclass(frozen=True)
class Published:
    """Membership and signals, all [N records, K models]."""

    member: Bool[np.ndarray, "N K"]
    signals: dict[str, Float[np.ndarray, "N K"]]
    population: Float[np.ndarray, "Z K"] | None = None
    """The loss of records that no model was trained on, for RMIA."""


def read_per_model_csv(root: Path, where: dict[str, str]) -> Published:
    """Read the layout of Huang et al. 2024: {kind}_{dataset}/{key=value_…}/{model}.csv, one column of records per model.

    `where` keeps only folders with the given values (`dataset` is one of the keys). A membership that fits none of the
    signals is left out. The remaining folders must belong to one setting, with one membership and one folder per signal;
    otherwise a UserError lists the settings.
    """
    folders_of = _folders(root, where)
    if "member" not in folders_of:
        raise UserError(
            f"{root}: no indices_{{dataset}}/{{key=value}}/ folder{_said(where)}; expected the per-model-csv layout"
        )
    signals_of = [parameters for name, found in folders_of.items() if name != "member" for parameters, _ in found]
    fitting = [one for one in folders_of["member"] if any(_agree(one[0], parameters) for parameters in signals_of)]
    folders_of["member"] = fitting or folders_of["member"]
    for name, matching in folders_of.items():
        if len(matching) > 1:
            listed = "; ".join(folder.relative_to(root).as_posix() for _, folder in matching)
            raise UserError(f"{root}: several settings for {name} ({listed}); choose one with --where KEY=VALUE")
    folders = {name: matching[0][1] for name, matching in folders_of.items()}
    models = _models(folders["member"])
    indices = _matrix(folders.pop("member"), models)
    if not np.isin(indices, (0, 1)).all():
        raise UserError(f"{root}: the indices_* files hold values other than 0 and 1; expected membership, 0 or 1")
    member = indices == 1
    check_membership(member, str(root))
    signals = {name: _signal(name, folder, models, len(member)) for name, folder in folders.items()}
    if not signals:
        raise UserError(
            f"{root}: no signals{_said(where)}; expected {', '.join(f'{kind}_*' for kind in PREFIXES)} folders"
        )
    if "loss" in signals:
        signals = {"loss": signals.pop("loss")} | signals
        signals = {"loss": signals["loss"], "confidence": confidence_from_loss(signals["loss"])} | signals
    return Published(member, signals)


def write_signals(path: Path, published: Published, where: str) -> None:
    """Write signals.parquet: shadow, record, member and a float32 column per signal, one row group per model.

    Raises UserError, which names the source `where`, for values that are not finite in single precision.
    """
    for name, values in published.signals.items():
        check_finite(values, f"{where}: {name}")
        _refuse(np.abs(values) > np.finfo(np.float32).max, values, f"{where}: {name}")
    records, models = published.member.shape
    order = pa.array(np.arange(records, dtype=np.int32))

    def tables() -> Iterable[pa.Table]:
        for model in range(models):
            columns = {
                name: pa.array(values[:, model].astype(np.float32)) for name, values in published.signals.items()
            }
            yield pa.table(
                {
                    "shadow": pa.array(np.full(records, model, dtype=np.int32)),
                    "record": order,
                    "member": pa.array(published.member[:, model]),
                    **columns,
                }
            )

    write_table(path, iter(tables()), "signals", records * models)


def parse_where(texts: Iterable[str]) -> dict[str, str]:
    """Read the values of `--where KEY=VALUE`."""
    where = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not key or not equals:
            raise UserError(f"--where {text}: expected KEY=VALUE")
        where[key] = value
    return where


def _folders(root: Path, where: dict[str, str]) -> dict[str, list[tuple[dict[str, str], Path]]]:
    """Return the folders of the membership and of every signal, each with its parameters; UserError for a key that no folder has."""
    folders_of: dict[str, list[tuple[dict[str, str], Path]]] = {}
    keys: set[str] = set()
    for folder in sorted(path for path in root.glob("*/*") if path.is_dir()):
        kind = next((kind for kind in PREFIXES if folder.parent.name.startswith(f"{kind}_")), None)
        if kind is None:
            continue
        parameters = {"dataset": folder.parent.name.removeprefix(f"{kind}_")} | _parameters(folder.name)
        keys |= parameters.keys()
        if all(parameters.get(key, value) == value for key, value in where.items()):
            name = PREFIXES[kind]
            name = name if kind in ("indices", "losses") else f"{parameters.get('type', 'attribution')}_{name}"
            folders_of.setdefault(name, []).append((parameters, folder))
    for key in where:
        if keys and key not in keys:
            raise UserError(
                f"--where {key}={where[key]}: no folder of {root} has this key; {suggest(key, sorted(keys))}"
            )
    return folders_of


def _agree(one: dict[str, str], other: dict[str, str]) -> bool:
    """Return whether two folders belong to one setting: the keys that both have are equal."""
    return all(other.get(key, value) == value for key, value in one.items())


def _parameters(name: str) -> dict[str, str]:
    """Split key=value_key=value, where values may contain underscores."""
    parameters: dict[str, str] = {}
    key = ""
    for word in name.split("_"):
        head, equals, tail = word.partition("=")
        if equals:
            key, parameters[head] = head, tail
        elif key:
            parameters[key] += f"_{word}"
    return parameters


def _said(where: dict[str, str]) -> str:
    return " with " + ", ".join(f"{key}={value}" for key, value in where.items()) if where else ""


def _models(folder: Path) -> list[int]:
    models = sorted(int(path.stem) for path in folder.glob("*.csv") if path.stem.isdigit())
    if len(models) < 4:
        raise UserError(f"{folder}: {len(models)} models; expected at least 4 files {{model}}.csv")
    return models


def _signal(name: str, folder: Path, models: list[int], records: int) -> Float[np.ndarray, "N K"]:
    """Read a signal; UserError for values beyond single precision, in which signals are stored."""
    values = _matrix(folder, models, records)
    check_values(values, read_signal(name), str(folder))
    room, sizes = np.finfo(np.float32), np.abs(values)
    _refuse((sizes > room.max) | ((sizes < room.tiny) & (sizes > 0)), values, str(folder))
    return values


def _refuse(outside: Bool[np.ndarray, "N K"], values: Float[np.ndarray, "N K"], where: str) -> None:
    """Raise UserError, which names the first cell, if any is outside single precision."""
    if outside.any():
        record, model = np.argwhere(outside)[0]
        room = np.finfo(np.float32)
        raise UserError(
            f"{where}: {values[record, model]:g} at model {model}, record {record}; signals are stored in single precision, "
            f"whose absolute values range from {room.tiny:.0e} to {room.max:.0e}: give the signal in another unit"
        )


def _matrix(folder: Path, models: list[int], records: int | None = None) -> Float[np.ndarray, "N K"]:
    """Read one file per model, each with a header line and one number per record."""
    columns = []
    for model in models:
        path = folder / f"{model}.csv"
        if not path.is_file():
            raise UserError(f"{path}: no such file, but the indices_* files list model {model}")
        try:
            with warnings.catch_warnings(action="ignore"):  # about an empty file, which is an error below
                columns.append(np.loadtxt(path, skiprows=1, ndmin=1, encoding="utf-8"))
        except (ValueError, UnicodeDecodeError) as error:
            raise UserError(f"{path}: not a column of numbers: {' '.join(str(error).split())}") from None
        expected = records if records is not None else len(columns[0])
        if columns[-1].ndim > 1:
            raise UserError(f"{path}: {columns[-1].shape[1]} columns; expected one number per record")
        if columns[-1].shape != (expected,) or not expected:
            raise UserError(f"{path}: {columns[-1].shape[0]} records, but {expected} were expected")
    matrix = np.stack(columns).T
    check_finite(matrix, str(folder))
    return matrix
