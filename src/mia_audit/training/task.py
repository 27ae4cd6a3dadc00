"""The task of training one model, given to a learner. Nothing here imports torch.

training.parquet: the course of a model's training, the ε spent, and the model's accuracy. Nothing here imports torch.

Loss and confidence from logits, in float64 by NumPy, for models that are not torch modules.

The identity of a training run. This file imports only the standard library, because planning uses it too.

Checkpoints of training that may be killed: the state after the last epoch, kept until the model is trained.
"""

from __future__ import annotations

import hashlib
import json
import math
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Self, runtime_checkable

import numpy as np
import pyarrow as pa
from safetensors import SafetensorError, safe_open

from mia_audit.pools.persons import Persons
from mia_audit.privacy.catalogue import Terms
from mia_audit.seeds import seed_for
from mia_audit.storage import atomic_write

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int, Num
    from torch import Tensor

    from mia_audit.pools.store import StoredRecords
    from mia_audit.privacy.catalogue import Mechanism
    from mia_audit.training.section import Training

TEMPERATURES = "loss_temperatures"
"""The option that lists the temperatures of additional losses, for signals of outputs."""


def tempered(temperatures: Sequence[float]) -> list[str]:
    """Return the names of the losses at temperatures, for which the logits are divided by the temperature."""
    return [f"loss_t{temperature:g}" for temperature in temperatures]


def losses_at(options: Mapping[str, Any]) -> dict[str, float]:
    """Return the temperatures in a family's options, by the names of their losses."""
    temperatures = options.get(TEMPERATURES, ())
    return dict(zip(tempered(temperatures), temperatures, strict=True))


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


if TYPE_CHECKING:
    State = dict[str, Tensor]


STATE = "epoch.safetensors"
"""The state's file in a checkpoint's folder."""


class Checkpoint:
    """The checkpoint of one model's training, in its own folder: the state after the last saved epoch.

    States are written atomically, with their digest, and at most once in `seconds`. A checkpoint that is damaged or has
    another identity is not used: training then starts from the beginning, and the model has the same bytes. Without a
    folder nothing is kept. A worker whose orchestrator was killed may still be training the same model. It writes the
    same bytes, and removes the folder when it ends.
    """

    def __init__(self, folder: Path | None = None, key: str = "", seconds: float = 0.0) -> None:
        self.folder = folder
        self.key = key
        self.seconds = seconds
        self._written = time.monotonic()

    def resume(self) -> State:
        """Return the state after the last saved epoch; empty if there is none."""
        from mia_audit.models.weights import digest_of

        path = self._file(STATE)
        if path is None or not path.exists():
            return {}
        try:
            with safe_open(path, framework="pt") as file:
                metadata = file.metadata() or {}
                state = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        except (SafetensorError, OSError) as error:
            self._warn_damaged(path, str(error))
            return {}
        if metadata.get("key") != self.key:
            return {}
        if metadata.get("digest") != digest_of(state):
            self._warn_damaged(path, "its digest is not the stored one")
            return {}
        print(f"{path}: resuming training from this checkpoint", file=sys.stderr, flush=True)
        return state

    def offer(self, capture: Callable[[], State]) -> None:
        """Save the state that `capture` returns, unless fewer than `seconds` have passed since the last one was saved."""
        path = self._file(STATE)
        if path is None or time.monotonic() - self._written < self.seconds:
            return
        from safetensors.torch import save_file

        from mia_audit.models.weights import digest_of

        state = {name: value.detach().cpu().contiguous().clone() for name, value in capture().items()}
        with _unless_removed(), atomic_write(path) as partial:
            save_file(state, partial, {"key": self.key, "digest": digest_of(state)})
        self._written = time.monotonic()

    def remove(self) -> None:
        """Remove the folder after the training."""
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)

    def _file(self, name: str) -> Path | None:
        return None if self.folder is None else self.folder / name

    def _warn_damaged(self, path: Path, why: str) -> None:
        print(
            f"warning: {path}: damaged checkpoint ignored ({why}); training starts from the beginning", file=sys.stderr
        )


@contextmanager
def _unless_removed() -> Iterator[None]:
    """Continue without saving if another worker removes the folder meanwhile."""
    try:
        yield
    except FileNotFoundError:
        pass
    except SafetensorError as error:
        if "No such file" not in str(error):
            raise


Progress = Callable[[int, int], None]
"""Called after every step with the step's number of records and the epoch's number (from 1)."""


def _nothing_kept() -> Checkpoint:

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


SCHEMA = pa.schema(
    {
        "shadow": pa.int32(),
        "epoch": pa.int32(),
        "loss": pa.float32(),
        "train_accuracy": pa.float32(),
        "test_accuracy": pa.float32(),
        "train_loss": pa.float32(),
        "test_loss": pa.float32(),
        "records": pa.int32(),
        "steps": pa.int32(),
        "epsilon": pa.float64(),
        "epsilon_rdp": pa.float64(),
        "delta": pa.float64(),
        "noise_multiplier": pa.float64(),
        "sampling_rate": pa.float64(),
        "accountant": pa.string(),
        "sampling": pa.string(),
        "clipping": pa.string(),
        "noise_mask": pa.string(),
        "unit": pa.string(),
        "persons": pa.int32(),
        "records_per_person": pa.int32(),
    }
)


@dataclass(frozen=True)
class Epoch:
    """The mean loss over the records drawn in one epoch (NaN if there were none), and the steps taken so far."""

    loss: float
    steps: int


@dataclass(frozen=True)
class TrainingReport:
    """The outcome of a model's training. ε is that of the whole training, by the mechanism's accountant and by RDP.

    Train accuracy and loss are over the `records` training records, test accuracy and loss over the pool's other
    records.
    """

    records: int
    epochs: Sequence[Epoch]
    terms: Terms
    epsilon: float
    epsilon_rdp: float
    train_accuracy: float
    test_accuracy: float
    train_loss: float
    test_loss: float
    persons: int | None = field(default=None, kw_only=True)
    """The number of persons in the training set, if the guarantee is for persons."""


@runtime_checkable
class ReportsTraining(Protocol):
    """A model with a report on its training."""

    @property
    def report(self) -> TrainingReport:
        """The report on the model's training."""


def report_from_logits(logits: Float[np.ndarray, "n C"], task: TrainingTask) -> TrainingReport:
    """Return a report for a model without one. It has one epoch of unknown loss, no steps, and the claimed guarantee, if any."""
    claimed = task.mechanism.kind.claimed
    labels, members = task.records.labels, task.members
    hits, losses = logits.argmax(axis=1) == labels, loss(logits, labels)
    return TrainingReport(
        records=int(members.sum()),
        epochs=[Epoch(math.nan, 0)],
        terms=Terms(
            task.mechanism.delta if claimed else 0.0,
            0.0,
            1.0,
            accountant="claimed" if claimed else "none",
            sampling="unknown",
            clipping="unknown" if claimed else "none",
        ),
        epsilon=task.epsilon if claimed else math.inf,
        epsilon_rdp=math.inf,
        train_accuracy=mean(hits[members]),
        test_accuracy=mean(hits[~members]),
        train_loss=mean(losses[members]),
        test_loss=mean(losses[~members]),
    )


def mean(values: np.ndarray) -> float:
    """Return the mean, such as the share of hits; NaN for an empty array."""
    return float(values.mean()) if values.size else math.nan


def training_table(shadow: int, report: TrainingReport) -> pa.Table:
    """Return the rows of one shadow model, one per epoch; only the last has accuracies and ε."""
    count, terms = len(report.epochs), report.terms
    last: dict[str, Any] = {
        "train_accuracy": report.train_accuracy,
        "test_accuracy": report.test_accuracy,
        "train_loss": report.train_loss,
        "test_loss": report.test_loss,
        "epsilon": report.epsilon,
        "epsilon_rdp": report.epsilon_rdp,
    }
    same: dict[str, Any] = {
        "shadow": shadow,
        "records": report.records,
        "delta": terms.delta,
        "noise_multiplier": terms.noise_multiplier,
        "sampling_rate": terms.sampling_rate,
        "accountant": terms.accountant,
        "sampling": terms.sampling,
        "clipping": terms.clipping,
        "noise_mask": terms.noise_mask,
        "unit": terms.unit,
        "persons": report.persons,
        "records_per_person": terms.records_per_person or None,
    }
    columns: dict[str, list[Any]] = {
        "epoch": list(range(1, count + 1)),
        "loss": [epoch.loss for epoch in report.epochs],
        "steps": [epoch.steps for epoch in report.epochs],
        **{name: [None] * (count - 1) + [value] for name, value in last.items()},
        **{name: [value] * count for name, value in same.items()},
    }
    return pa.table(columns, schema=SCHEMA)
