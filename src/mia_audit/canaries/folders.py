"""The three folders of an audit by canaries: the training set, the queries to the model, and the auditor's secrets."""

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
    """The auditor's secrets: kinds and coins of the m canaries, in the order of the queries to a model."""

    kind: np.ndarray
    member: np.ndarray
    asked: str
    """The SHA-256 of the array of canaries."""


def write_records(folder: Path, records: np.ndarray, labels: np.ndarray, metadata: Mapping[str, Any]) -> str:
    """Write records.npy and records.parquet as in a pool, and records.npz for other programs; return the array's SHA-256."""
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
    """Write the auditor's secrets into a folder that only this user can access."""
    private_folder(folder)
    columns = {"canary": np.arange(len(coins.kind), dtype=np.int32), "kind": coins.kind, "member": coins.member}
    write_table(folder / COINS, pa.table(columns), "coins", len(coins.kind), {ASKED: coins.asked})


def read_coins(folder: Path) -> Coins:
    """Return the auditor's secrets. Raises UserError if they are missing or damaged."""
    path = folder / AUDITOR / COINS if (folder / AUDITOR).is_dir() else folder / COINS
    table = read_table(path, "coins", ["kind", "member"])
    asked = str(table_metadata(path, "coins")[ASKED])
    return Coins(table["kind"].to_numpy().astype(np.str_), table["member"].to_numpy(), asked)


def read_asked(folder: Path, coins: Coins | None = None) -> StoredRecords:
    """Return the canaries with which a model is queried. Raises UserError if they are missing, or do not match `coins`."""
    path = folder / ASK if (folder / ASK).is_dir() else folder
    if not (path / "records.npy").exists():
        raise UserError(f"{path}: has no canaries; expected a folder that `mia-audit canaries make` wrote")
    if coins and coins.asked != sha256(path / "records.npy"):
        raise UserError(
            f"{path / 'records.npy'}: does not match the auditor's {COINS}; expected the canaries of the same `canaries make`"
        )
    return read_records(path)
