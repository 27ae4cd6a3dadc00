"""Draw canaries, and write a training set that contains about half of them."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mia_audit.canaries.catalogue import HeldOut, kinds
from mia_audit.canaries.folders import ASK, AUDITOR, TRAIN, Coins, write_coins, write_records
from mia_audit.canaries.section import FEWEST
from mia_audit.errors import UserError


@dataclass(frozen=True)
class Canaries:
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
) -> Canaries:
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
    return Canaries(
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
) -> Canaries:
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
