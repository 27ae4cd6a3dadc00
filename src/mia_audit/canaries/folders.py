"""The three folders of an audit by canaries: what is trained on, what the model is asked, and what the auditor keeps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from mia_audit.errors import UserError
from mia_audit.pools.store import ARRAY, StoredRecords, read_records
from mia_audit.regular_files import private_folder
from mia_audit.storage import atomic_write, read_table, sha256, table_metadata, write_table

TRAIN, ASK, AUDITOR = "train", "ask", "auditor"
COINS = "coins.parquet"
ASKED = "asked_sha256"


@dataclass(frozen=True)
class Coins:
    """What only the auditor knows of the m canaries, in the order in which a model is asked: their kinds, and the coins."""

    kind: np.ndarray
    member: np.ndarray
    asked: str
    """The SHA-256 of the array of canaries."""


def write_records(folder: Path, records: np.ndarray, labels: np.ndarray, metadata: Mapping[str, Any]) -> str:
    """Write records.npy, records.parquet as a pool has them, and records.npz for other programs; return the array's SHA-256."""
    private_folder(folder)
    with atomic_write(folder / "records.npy") as partial, partial.open("wb") as file:
        np.save(file, np.ascontiguousarray(records))
    with atomic_write(folder / "records.npz") as partial, partial.open("wb") as file:
        np.savez_compressed(file, records=records, labels=labels)
    digest = sha256(folder / "records.npy")
    table = pa.table({"record": pa.array(np.arange(len(labels), dtype=np.int32)), "label": pa.array(labels)})
    write_table(folder / "records.parquet", table, "records", len(labels), {**metadata, ARRAY: digest})
    return digest


def write_coins(folder: Path, coins: Coins) -> None:
    """Write what the auditor keeps, into a folder of this user alone."""
    private_folder(folder)
    columns = {"canary": np.arange(len(coins.kind), dtype=np.int32), "kind": coins.kind, "member": coins.member}
    write_table(folder / COINS, pa.table(columns), "coins", len(coins.kind), {ASKED: coins.asked})


def read_coins(folder: Path) -> Coins:
    """Return what the auditor keeps; UserError where it is missing or damaged."""
    path = folder / AUDITOR / COINS if (folder / AUDITOR).is_dir() else folder / COINS
    table = read_table(path, "coins", ["kind", "member"])
    asked = str(table_metadata(path, "coins")[ASKED])
    return Coins(table["kind"].to_numpy().astype(np.str_), table["member"].to_numpy(), asked)


def read_asked(folder: Path, coins: Coins | None = None) -> StoredRecords:
    """Return the canaries that a model is asked; UserError where there are none, or the auditor's `coins` are of others."""
    path = folder / ASK if (folder / ASK).is_dir() else folder
    if not (path / "records.npy").exists():
        raise UserError(f"{path}: no canaries there; expected a folder that `mia-audit canaries make` wrote")
    if coins and coins.asked != sha256(path / "records.npy"):
        raise UserError(f"{path / 'records.npy'}: not the canaries that the auditor's {COINS} is about")
    return read_records(path)
