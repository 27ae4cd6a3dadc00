"""Draw the canaries of one training run, and write them into folders: what is trained on, what is asked, and the coins."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from mia_audit.canaries.kinds import FEWEST, HeldOut, kinds
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


@dataclass(frozen=True)
class DrawnCanaries:
    """Canaries [m, …] with labels, kinds and coins, and the remaining records of the data set."""

    records: np.ndarray
    labels: np.ndarray
    kind: np.ndarray
    member: np.ndarray
    others: np.ndarray
    other_labels: np.ndarray

    def training_set(self, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Return the records and labels to train on in random order: the remaining records and the canaries with coin 1."""
        records = np.concatenate([self.others, self.records[self.member]])
        labels = np.concatenate([self.other_labels, self.labels[self.member]])
        order = random.permutation(len(labels))
        return records[order], labels[order]


def draw(
    records: np.ndarray, labels: np.ndarray, classes: int, names: Sequence[str], count: int, random: np.random.Generator
) -> DrawnCanaries:
    """Hold out `count` records, make canaries from them in equal numbers of each kind, and toss a fair coin for each.

    Held-out records enter a training set only as canaries. Raises UserError if the data set has too few records.
    """
    if count < FEWEST:
        raise UserError(f"--count {count}: expected at least {FEWEST} canaries; 1000 is a usual number")
    if count >= len(labels):
        raise UserError(
            f"--count {count}: the data set has {len(labels)} records, and each canary replaces one of them"
        )
    if classes < 2:
        raise UserError(f"the data set has {classes} class; canaries need at least two classes")
    order = random.permutation(len(labels))
    held, rest = order[:count], order[count:]
    parts = np.array_split(held, len(names))
    made = [
        kinds[name](HeldOut(records[part], labels[part], classes), random)
        for name, part in zip(names, parts, strict=True)
    ]
    kind = np.repeat(np.asarray(names), [len(part) for part in parts])
    shuffled = random.permutation(count)
    return DrawnCanaries(
        np.concatenate([one[0] for one in made])[shuffled],
        np.concatenate([one[1] for one in made])[shuffled],
        kind[shuffled],
        random.random(count) < 0.5,
        records[rest],
        labels[rest],
    )


def make(
    records: np.ndarray,
    labels: np.ndarray,
    metadata: Mapping[str, Any],
    names: Sequence[str],
    count: int,
    out: Path,
    seed: int | None = None,
) -> DrawnCanaries:
    """Write train/, ask/ and auditor/ below `out`; without a seed all randomness comes from the system's entropy."""
    if out.exists() and not out.is_dir():
        raise UserError(f"{out}: a file, where a folder was expected; name a new folder with --out")
    if seed is not None and seed < 0:
        raise UserError(f"--seed {seed}: expected 0 or a positive number")
    if out.exists() and any(out.iterdir()):
        raise UserError(f"{out}: exists already, and coins are tossed only once; name another folder")
    for name in names:
        kinds.check(name)
    random = np.random.default_rng(secrets.randbits(256) if seed is None else seed)
    canaries = draw(records, labels, len(metadata["classes"]), names, count, random)
    known = {name: metadata[name] for name in KEPT if name in metadata}
    write_records(out / TRAIN, *canaries.training_set(random), known)
    asked = write_records(out / ASK, canaries.records, canaries.labels, known)
    write_coins(out / AUDITOR, Coins(canaries.kind, canaries.member, asked))
    return canaries


KEPT = ("name", "kind", "shape", "classes", "features", "mean", "std")
"""Metadata of a pool that also apply to the training set and the canaries."""
