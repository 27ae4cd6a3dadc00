"""The task of training one model, given to a learner, and loss and confidence from logits. Nothing here imports torch."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from mia_audit.pools.persons import Persons
from mia_audit.seeds import seed_for

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int, Num

    from mia_audit.pools.store import StoredRecords
    from mia_audit.privacy.catalogue import Mechanism
    from mia_audit.training.checkpoints import Checkpoint
    from mia_audit.training.section import Training


def loss(logits: Float[np.ndarray, "n C"], labels: Int[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """Return the cross-entropy, logsumexp(z) − z_y, computed as log(1 + exp(−confidence)) to avoid cancellation."""
    return np.asarray(np.logaddexp(0.0, -confidence(logits, labels)))


def confidence(logits: Float[np.ndarray, "n C"], labels: Int[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """Return the logit-scaled confidence, z_y − logsumexp of the other logits (Carlini et al. 2022)."""
    rows = np.arange(len(labels))
    others = logits.astype(np.float64)
    own = others[rows, labels]
    others[rows, labels] = -np.inf
    largest = others.max(axis=1)
    return np.asarray(own - largest - np.log(np.exp(others - largest[:, None]).sum(axis=1)))


def identity(**parts: Any) -> str:
    """Return the SHA-256 of everything that a training run depends on, given as JSON values. A checkpoint of another identity is not used."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


Progress = Callable[[int, int], None]
"""Called after every step with the step's number of records and the epoch's number (from 1)."""


def _nothing_kept() -> Checkpoint:
    from mia_audit.training.checkpoints import Checkpoint  # configs are read without pyarrow

    return Checkpoint()


@dataclass(frozen=True, eq=False)
class Records:
    """Records as stored in a pool: values [n, …], possibly memory-mapped, labels [n], and the pool's metadata.

    `numbers` are the records' numbers in the pool, which key random draws.
    """

    values: Num[np.ndarray, "n ..."]
    labels: Int[np.ndarray, " n"]
    metadata: Mapping[str, Any]
    numbers: Int[np.ndarray, " n"]
    persons: Int[np.ndarray, " n"] | None = None
    """The number of every record's person, if the pool has persons. They are numbered in the order of their first records."""

    @classmethod
    def from_stored(cls, stored: StoredRecords) -> Self:
        """Return all records of a pool."""
        persons = None if stored.persons is None else Persons.numbered(stored.persons).of
        return cls(stored.data, stored.labels, stored.metadata, np.arange(len(stored.labels)), persons)

    @property
    def classes(self) -> int:
        """The number of the pool's classes."""
        return len(self.metadata["classes"])

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, rows: slice | Sequence[int] | Int[np.ndarray, " m"]) -> Records:
        persons = None if self.persons is None else self.persons[rows]
        return Records(self.values[rows], self.labels[rows], self.metadata, self.numbers[rows], persons)


@dataclass(frozen=True, kw_only=True)
class TrainingTask:
    """One model to train.

    `members` marks the training set, `public` has the pool's public records if the mechanism reads them, and `start` is
    the file of initial weights, if any. All
    randomness is keyed by `key` and the number of the shadow model. A task without a key is for a model to be released,
    whose randomness comes from the operating system's entropy.
    """

    records: Records
    members: Bool[np.ndarray, " n"]
    training: Training
    mechanism: Mechanism
    epsilon: float
    key: tuple[int | str, ...] | None
    shadow: int = 0
    public: Records | None = None
    start: Path | None = None
    checkpoint: Checkpoint = field(default_factory=_nothing_kept)
    progress: Progress = lambda *_: None

    @property
    def seed(self) -> int | None:
        """A 63-bit seed for learners that are seeded by a number; None for a model to be released."""
        return None if self.key is None else seed_for(*self.key, self.shadow)
