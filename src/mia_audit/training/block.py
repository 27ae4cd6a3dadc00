"""A block of shadow models: one job trains them one after the other, and saves each as soon as it is trained. Nothing here imports torch."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pyarrow as pa

from mia_audit.errors import NotFinite, UserError, shown
from mia_audit.runtime.progress import reporter
from mia_audit.sections import budget
from mia_audit.storage import atomic_folder
from mia_audit.training.checkpoints import Checkpoint
from mia_audit.training.report import SCHEMA, ReportsTraining, TrainingReport, report_from_logits, training_table
from mia_audit.training.stored import finished, model_folder, model_table, write_diverged, write_training
from mia_audit.training.task import Records, TrainingTask, identity

if TYPE_CHECKING:
    from jaxtyping import Bool, Float

    from mia_audit.privacy.catalogue import Mechanism
    from mia_audit.training.section import Training


ASKED_AGAIN = 8
"""Number of records that the first model answers again after it was stored."""

SAME = 1e-4
"""Largest difference between the answers of a model before and after it was stored, relative to the largest answer."""


class Trained(Protocol):
    """The interface to a trained model."""

    def logits(self, records: Records) -> Float[np.ndarray, "n C"]:
        """Return the logits of records."""

    def save(self, folder: Path) -> None:
        """Write the model into an empty folder."""


@dataclass(frozen=True)
class Block:
    """The shadow models of a block, numbered `shadows`, and the data and terms that they share.

    `membership` has one column per shadow. `epsilon` is the text in the config, because keys of random streams contain
    this text.
    """

    seed: int
    dataset: str
    architecture: str
    mechanism_name: str
    epsilon: str
    shadows: range
    membership: Bool[np.ndarray, "n k"]
    records: Records
    training: Training
    mechanism: Mechanism
    public: Records | None = None
    start: Path | None = None

    @property
    def setting(self) -> str:
        """The name of the setting's folder."""
        return f"{self.dataset}/{self.architecture}/{self.mechanism_name}-eps{self.epsilon}"

    @property
    def key(self) -> tuple[int | str, ...]:
        """The key that, together with a model's number, determines all randomness in its training."""
        return (self.seed, "train", self.dataset, self.architecture, self.mechanism_name, self.epsilon)

    def label(self, shadow: int) -> str:
        """Name a model in messages."""
        return f"shadow {shadow} of {self.shadows[0]}-{self.shadows[-1]}"


@dataclass(frozen=True)
class Checkpoints:
    """Folder and frequency of the block's checkpoints while it runs; without a folder there are none.

    `environment` has everything on which an epoch depends and which the finished model's key does not cover. So
    training does not resume with other versions of packages.
    """

    folder: Path | None
    seconds: float
    environment: Mapping[str, Any]

    def of(self, shadow: int, key: str) -> Checkpoint:
        """Return the checkpoint of the model that is trained under a key."""
        folder = self.folder / f"shadow-{shadow}" if self.folder else None
        return Checkpoint(folder, identity(key=key, environment=dict(self.environment)), self.seconds)


def train_block(
    train: Callable[[TrainingTask], Trained],
    block: Block,
    models: Path,
    keys: Mapping[int, str],
    checkpoints: Checkpoints,
    keep_going: bool,
    floor: float = 0.0,
    read_back: Callable[[Path], Trained] | None = None,
) -> None:
    """Train a block's models and write shadow-{k}/ and shadow-{k}.parquet for each to the folder `models`.

    The first model that is trained here is opened again by `read_back`, if given, and must answer as it did before it
    was stored; otherwise a UserError shows the difference, and the model is not kept.

    `keys` holds every model's key, the digest of everything that the model depends on; an existing model with the same
    key is kept. A model whose training diverges, or whose outputs are not finite, is left out if `keep_going` is set, and
    its table records this. Otherwise a UserError names the model. Also raises UserError if the test accuracy of the
    first model is below `floor`; that model is kept.
    """
    tables: list[pa.Table] = []
    compared = False
    with reporter() as progress:
        for column, shadow in enumerate(block.shadows):
            known = finished(models, shadow, keys[shadow])
            if known is not None and (len(known) or keep_going):
                tables.append(known)
                checkpoints.of(shadow, keys[shadow]).remove()  # that of the epoch that was trained to measure memory
                print(f"{block.label(shadow)}: already trained", file=sys.stderr)
                _check_floor(block, shadow, tables, floor)
                continue
            members = block.membership[:, column]
            checkpoint = checkpoints.of(shadow, keys[shadow])
            progress.begin(block.label(shadow), block.training.epochs, int(members.sum()))
            task = TrainingTask(
                records=block.records,
                members=members,
                training=block.training,
                mechanism=block.mechanism,
                epsilon=budget(block.epsilon),
                key=block.key,
                shadow=shadow,
                public=block.public,
                start=block.start,
                checkpoint=checkpoint,
                progress=progress.step,
            )
            try:
                model = train(task)
                report = report_of(model, task)
            except NotFinite as error:
                if not keep_going:
                    raise UserError(
                        f"shadow {shadow} of {block.setting}: {error}, or set compute.keep_going: true to leave such models out"
                    ) from None
                reason = error.reason
                model_table(models, shadow).unlink(missing_ok=True)
                shutil.rmtree(model_folder(models, shadow), ignore_errors=True)
                write_diverged(models, shadow, keys[shadow], reason)
                progress.end(f"left out, {reason}")
            else:
                progress.end(summary_line(report))
                model_table(models, shadow).unlink(missing_ok=True)  # the existing table may describe another model
                with atomic_folder(model_folder(models, shadow)) as folder:
                    model.save(folder)
                    if read_back is not None and not compared:
                        where = f"shadow {shadow} of {block.setting}"
                        try:
                            opened = read_back(folder)
                        except UserError as error:
                            raise UserError(
                                f"{where}: what was stored cannot be opened: {str(error).replace(f'{folder}/', '')}; a script's"
                                " build(shape, classes) must return a module with the same layers as the trained one"
                            ) from None
                        check_stored(model, opened, block.records, where)
                        compared = True
                tables.append(training_table(shadow, report))
                write_training(models, shadow, keys[shadow], tables[-1])
            checkpoint.remove()
            _check_floor(block, shadow, tables, floor)
    _warn_of_delta([table for table in tables if len(table)], block.mechanism_name)


def check_stored(trained: Trained, opened: Trained, records: Records, where: str) -> None:
    """Raise UserError unless a stored model that was opened again answers a few records as it did when it was trained."""
    few = records[np.linspace(0, len(records) - 1, min(len(records), ASKED_AGAIN)).astype(np.int64)]
    before, after = trained.logits(few), opened.logits(few)
    apart = np.abs(after - before).max(axis=1)
    worst = int(apart.argmax())
    if apart[worst] > SAME * np.abs(before).max() + 1e-6:
        raise UserError(
            f"{where}: read back, the model answers record {few.numbers[worst]} with {shown(after[worst])}, and answered with"
            f" {shown(before[worst])} when it was trained, so something that its answers depend on is not stored: in a torch module, keep"
            " it in parameters or persistent buffers (register_buffer); in any other model, in attributes of the estimator or in"
            " what save(model, folder) writes"
        )


def report_of(model: Trained, task: TrainingTask) -> TrainingReport:
    """Return a model's own report on its training, or one computed from its logits."""
    return model.report if isinstance(model, ReportsTraining) else report_from_logits(model.logits(task.records), task)


def summary_line(report: TrainingReport) -> str:
    """Return the last line of a training log."""
    return (
        f"train accuracy {report.train_accuracy:.3f}, test accuracy {report.test_accuracy:.3f},"
        f" ε {report.epsilon:.4g} at δ {report.terms.delta:g}"
    )


def _check_floor(block: Block, shadow: int, tables: Sequence[pa.Table], floor: float) -> None:
    """Raise UserError if the last table is that of the first model that did not diverge, and this model's accuracy is below the floor."""
    *before, last = tables or [SCHEMA.empty_table()]
    if any(map(len, before)) or not len(last):
        return
    accuracy = last["test_accuracy"][-1].as_py()
    if accuracy is not None and accuracy < floor:
        raise UserError(
            f"shadow {shadow} of {block.setting}: its test accuracy of {accuracy:.3f} is below training.floor: {floor:g}, so no"
            " further model is trained: change how models are trained (epochs, learning rate, model), or lower the floor"
        )


def _warn_of_delta(tables: list[pa.Table], mechanism: str) -> None:
    for unit in ("persons", "records"):
        sizes = ((table["delta"][0].as_py(), table[unit][0].as_py()) for table in tables if _unit(table) == unit)
        if any(delta * size >= 1 for delta, size in sizes):
            print(f"warning: mechanisms.{mechanism}.delta is not below 1/(training {unit})", file=sys.stderr)


def _unit(table: pa.Table) -> str:
    return "records" if table["persons"][0].as_py() is None else "persons"
