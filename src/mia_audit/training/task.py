"""The task of training one model, given to a learner. Nothing here imports torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from mia_audit.pools.persons import Persons
from mia_audit.seeds import seed_for

if TYPE_CHECKING:
    from jaxtyping import Bool, Int, Num

    from mia_audit.pools.store import StoredRecords
    from mia_audit.privacy.catalogue import Mechanism
    from mia_audit.training.checkpoints import Checkpoint
    from mia_audit.training.section import Training

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
    def of(cls, stored: StoredRecords) -> Self:
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


@dataclass(frozen=True)
class TrainingTask:
    """One model to train.

    `members` marks the training set, `public` has the pool's public records if the mechanism reads them, and `start` is
    the file of initial weights, if any. With `rounded`, weights are rounded to bfloat16 after the last epoch. All
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
    rounded: bool = False

    @property
    def seed(self) -> int | None:
        """A 63-bit seed for learners that are seeded by a number; None for a model to be released."""
        return None if self.key is None else seed_for(*self.key, self.shadow)
