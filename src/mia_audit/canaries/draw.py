"""Canaries of one training run: the folders with what is trained on and asked, the coins, and the membership scores."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

from mia_audit.arrays import check_logits
from mia_audit.attacks.io.layouts import confidence_of
from mia_audit.canaries.kinds import FEWEST, HeldOut, kinds
from mia_audit.errors import UserError, first_line, suggest
from mia_audit.evaluation.epsilon_bounds import bounds_table
from mia_audit.evaluation.files import Scored, metric_rows, metrics_table
from mia_audit.learners.protocol import Compute, open_learner
from mia_audit.pools.store import ARRAY, StoredRecords, read_records
from mia_audit.regular_files import private_folder
from mia_audit.storage import atomic_write, read_table, sha256, table_metadata, write_table
from mia_audit.training.task import Records

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

    Held-out records enter a training set only as canaries; records that equal them, which pools of persons have, are not
    held out with them. Raises UserError if the data set has too few records.
    """
    if count < FEWEST:
        raise UserError(f"--count {count}: expected at least {FEWEST} canaries; 1000 is a usual number")
    if count >= len(labels):
        raise UserError(f"--count {count}: the data set has {len(labels)} records, and each canary replaces one")
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
        records=np.concatenate([one[0] for one in made])[shuffled],
        labels=np.concatenate([one[1] for one in made])[shuffled],
        kind=kind[shuffled],
        member=random.random(count) < 0.5,
        others=records[rest],
        other_labels=labels[rest],
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
    canaries = draw(records, labels, len(metadata["classes"]), names=names, count=count, random=random)
    known = {name: metadata[name] for name in KEPT if name in metadata}
    write_records(out / TRAIN, *canaries.training_set(random), known)
    asked = write_records(out / ASK, canaries.records, canaries.labels, known)
    write_coins(out / AUDITOR, Coins(canaries.kind, canaries.member, asked))
    return canaries


KEPT = ("name", "kind", "shape", "classes", "features", "mean", "std", "frame")
"""Metadata of a pool that also apply to the training set and the canaries."""


def ask(architecture: Path, model: Path, asked: StoredRecords, compute: Compute) -> np.ndarray:
    """Return the confidence of a stored model (built-in, estimator or script) in the label of every canary, [m]."""
    _, learner = open_learner(architecture, compute)
    logits = learner.load(model).logits(Records.from_stored(asked))
    return confidence(np.asarray(logits), asked.labels, str(model))


def confidence(outputs: np.ndarray, labels: np.ndarray, where: str, given: bool = False) -> np.ndarray:
    """Return z_y − logsumexp of the other logits, [m], from logits or probabilities [m, C] (rows that sum to 1).

    Outputs that are `given`, not those of a model asked here, may be other shares or a sigmoid's: UserError.
    """
    if outputs.ndim != 2 or len(outputs) != len(labels):
        raise UserError(
            f"{where}: outputs of shape {list(outputs.shape)}; expected one row for each of the {len(labels)} canaries"
        )
    values = outputs.astype(np.float64)
    if (values >= 0).all() and np.allclose(values.sum(axis=1), 1, atol=1e-3):
        with np.errstate(divide="ignore"):
            values = np.log(np.maximum(values, 1e-30))
    if not np.isfinite(values).all():
        raise UserError(f"{where}: an output is not finite")
    if given:
        check_logits(values, where)
    return confidence_of(values[:, None, :], labels, where)[:, 0]


def read_outputs(path: Path, labels: np.ndarray) -> np.ndarray:
    """Return the confidence from logits or probabilities in a .npy file [m, C]."""
    try:
        outputs = np.load(path, allow_pickle=False)
    except FileNotFoundError:
        raise UserError(f"{path}: no such file; expected logits or probabilities, .npy [canaries, classes]") from None
    except (OSError, ValueError, EOFError) as error:
        raise UserError(f"{path}: not a NumPy array ({first_line(error)}); expected .npy [canaries, classes]") from None
    if outputs.dtype.kind not in "fiu":
        raise UserError(f"{path}: holds {outputs.dtype}, not numbers")
    return confidence(outputs, labels, str(path), given=True)


def read_given(path: Path, canaries: int) -> np.ndarray:
    """Return the scores [m] in a CSV file with columns `canary` (from 0, in the order of ask/) and `score` (high for members)."""
    expected = f"expected the columns `canary` (0 to {canaries - 1}) and `score`, one row for each canary"
    try:
        frame = pl.read_csv(path)
    except FileNotFoundError:
        raise UserError(f"{path}: no such file; {expected}") from None
    except (OSError, pl.exceptions.PolarsError) as error:
        raise UserError(f"{path}: not a CSV file ({first_line(error)[:120]}); {expected}") from None
    for name in ("canary", "score"):
        if name not in frame.columns:
            raise UserError(f"{path}: no column '{name}': {suggest(name, frame.columns)}; {expected}")
        if not frame[name].dtype.is_numeric() or frame[name].null_count():
            raise UserError(f"{path}: column '{name}' holds text or empty cells; {expected}")
    frame = frame.sort("canary")
    if frame["canary"].to_list() != list(range(canaries)):
        raise UserError(f"{path}: {len(frame)} rows, with missing, repeated or unknown canaries; {expected}")
    scores: np.ndarray = frame["score"].cast(pl.Float64).to_numpy()
    if not np.isfinite(scores).all():
        raise UserError(f"{path}: a score is not finite; {expected}")
    return scores


def scored(scores: np.ndarray, coins: Coins, chosen: Sequence[str] = ()) -> pl.DataFrame:
    """Return the columns canary, kind, member and score, for `mia-audit epsilon-bound`.

    Each score is replaced by its rank within its kind, in (0, 1), since confidence differs between kinds regardless of
    membership. Ranks do not depend on coins, so bounds stay valid. The kinds in `chosen` (all by default) must be
    chosen before scores are seen.
    """
    known = list(dict.fromkeys(coins.kind.tolist()))
    for name in chosen:
        if name not in known:
            raise UserError(f"--kinds {name}: no canary of that kind: {suggest(name, known)}")
    ranks = np.empty(len(scores))
    for name in known:
        inside = np.flatnonzero(coins.kind == name)
        order = np.argsort(np.argsort(scores[inside], kind="stable"), kind="stable")
        ranks[inside] = (order + 0.5) / len(inside)
    columns = {
        "canary": np.arange(len(scores)),
        "kind": coins.kind,
        "member": coins.member.astype(np.int64),
        "score": ranks,
    }
    return pl.DataFrame(columns).filter(pl.col("kind").is_in(list(chosen) or known))


def bounds(table: pl.DataFrame, delta: float, confidence: float, gaussian: bool = False) -> pl.DataFrame:
    """Return one row per method with the lower bound on `epsilon` at `delta` and `confidence` from scored canaries."""
    key = ("canaries", "confidence", "none", False)
    member, score = (table[name].to_numpy()[:, None] for name in ("member", "score"))
    one = Scored(key, np.zeros(1, dtype=np.int32), table["canary"].to_numpy(), member == 1, score)
    metrics = metrics_table(metric_rows(one, (), confidence))
    bounded = bounds_table(metrics, delta, confidence, bernoulli=True, gaussian=gaussian)
    return bounded.select("method", "epsilon", "delta", "confidence").with_columns(pl.lit(len(table)).alias("canaries"))
