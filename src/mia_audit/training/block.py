"""A block of shadow models: trained one after the other by one job, each saved to a folder of its own. Nothing here imports torch."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from mia_audit.errors import NotFinite, UserError
from mia_audit.runtime.progress import reporter
from mia_audit.storage import atomic_folder, write_table
from mia_audit.storage.diverged import diverged_metadata, diverged_models
from mia_audit.storage.unrepeatable import unrepeatable_metadata
from mia_audit.training.checkpoints import Checkpoint, identity
from mia_audit.training.repeats import Repeats
from mia_audit.training.report import SCHEMA, ReportsTraining, TrainingReport, report_from_logits, training_table
from mia_audit.training.step_times import StepTimer, write_step_times
from mia_audit.training.task import Records, TrainingTask

if TYPE_CHECKING:
    import numpy as np
    from jaxtyping import Bool, Float

    from mia_audit.privacy.catalogue import Mechanism
    from mia_audit.training.section import Training

TABLE = "training.parquet"
"""Describes the training of a block's models, beside their folders; models from elsewhere have none."""


class Trained(Protocol):
    """What is asked of a model after its training."""

    def logits(self, records: Records) -> Float[np.ndarray, "n C"]:
        """Return the logits of records."""

    def save(self, folder: Path) -> None:
        """Write the model into an empty folder."""


@dataclass(frozen=True)
class Block:
    """The shadow models of a block, numbered `shadows`, and what they share.

    `membership` has a column a shadow. `epsilon` is as the config writes it, since keys of random streams contain it.
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
        """The setting as its folder is called."""
        return f"{self.dataset}/{self.architecture}/{self.mechanism_name}-eps{self.epsilon}"

    @property
    def key(self) -> tuple[int | str, ...]:
        """What keys everything random in the training of the setting's models, together with a model's number."""
        return (self.seed, "train", self.dataset, self.architecture, self.mechanism_name, self.epsilon)

    def label(self, shadow: int) -> str:
        """Name a model in messages."""
        return f"shadow {shadow} of {self.shadows[0]}-{self.shadows[-1]}"


@dataclass(frozen=True)
class Checkpoints:
    """Where the block's trainings are kept while it runs, how often, and what they depend on; nothing is kept without a folder."""

    folder: Path | None
    seconds: float
    depends_on: Mapping[str, Any]

    def of(self, shadow: int, members: Bool[np.ndarray, " n"]) -> Checkpoint:
        """Return a model's checkpoint."""
        key = identity(shadow=shadow, members=members.nonzero()[0].tolist(), **self.depends_on)
        return Checkpoint(self._folder(shadow), key, self.seconds)

    def remove(self, shadows: range) -> None:
        """Remove the checkpoints of a block that has ended."""
        for shadow in shadows:
            if folder := self._folder(shadow):
                shutil.rmtree(folder, ignore_errors=True)

    def _folder(self, shadow: int) -> Path | None:
        return self.folder / f"shadow-{shadow}" if self.folder else None


def train_block(
    train: Callable[[TrainingTask], Trained],
    block: Block,
    out: Path,
    checkpoints: Checkpoints,
    keep_going: bool,
    step_times: Path | None = None,
    repeats: Path | None = None,
) -> None:
    """Train a block's models and write shadow-{k}/ for each and training.parquet to the folder `out`, all of it or nothing.

    How long their steps took is written to the file `step_times`, and digests of what came of their trainings to the file
    `repeats`; the table's metadata name models that gave something else in an earlier run of the same training.
    Models that an earlier run finished are taken from their checkpoints. With `keep_going`, a model whose training diverges, or
    whose outputs are not finite, is left out and the table's metadata record it; without, it is a UserError that names the model.
    """
    results = Repeats.read(repeats)
    tables: list[pa.Table] = []
    diverged: dict[str, str] = {}
    milliseconds: dict[int, float | None] = {}
    with atomic_folder(out) as folder, reporter() as progress:
        for column, shadow in enumerate(block.shadows):
            members = block.membership[:, column]
            checkpoint = checkpoints.of(shadow, members)
            model_folder = folder / f"shadow-{shadow}"
            model_folder.mkdir()
            if finished := checkpoint.finished(model_folder):
                results.keep(shadow, checkpoint.key)
                tables.append(finished)
                print(f"{block.label(shadow)}: already trained by an earlier run", file=sys.stderr)
                continue
            progress.begin(block.label(shadow), block.training.epochs, int(members.sum()))
            timer = StepTimer(progress.step)
            task = TrainingTask(
                block.records,
                members,
                block.training,
                block.mechanism,
                float(block.epsilon),
                block.key,
                shadow,
                block.public,
                block.start,
                checkpoint,
                timer.step,
            )
            try:
                model = train(task)
                report = report_of(model, task)
            except NotFinite as error:
                if not keep_going:
                    raise UserError(
                        f"shadow {shadow} of {block.setting}: {error}, or leave such models out: compute.keep_going: true"
                    ) from None
                diverged[str(shadow)] = error.reason
                progress.end(f"left out, {diverged[str(shadow)]}")
                model_folder.rmdir()
                continue
            progress.end(summary_line(report))
            milliseconds[shadow] = timer.milliseconds
            model.save(model_folder)
            tables.append(training_table(shadow, report))
            results.add(shadow, checkpoint.key, tables[-1], report.outputs)
            checkpoint.finish(model_folder, tables[-1])
        _warn_of_delta(tables, block.mechanism_name)
        rows = sum(map(len, tables))
        metadata = diverged_metadata(diverged) | unrepeatable_metadata(results.unrepeatable)
        write_table(folder / TABLE, iter(tables or [SCHEMA.empty_table()]), "training", rows, metadata)
    if results.unrepeatable:
        print(f"warning: {block.setting}: {results.sentence}", file=sys.stderr)
    results.write(repeats)
    if step_times:
        write_step_times(step_times, milliseconds)
    checkpoints.remove(block.shadows)


def report_of(model: Trained, task: TrainingTask) -> TrainingReport:
    """Return what a model reports of its training, or what its logits show."""
    return model.report if isinstance(model, ReportsTraining) else report_from_logits(model.logits(task.records), task)


def summary_line(report: TrainingReport) -> str:
    """Return the line that a training's log ends with."""
    return (
        f"train accuracy {report.train_accuracy:.3f}, test accuracy {report.test_accuracy:.3f},"
        f" ε {report.epsilon:.4g} at δ {report.terms.delta:g}"
    )


def _warn_of_delta(tables: list[pa.Table], mechanism: str) -> None:
    for unit in ("persons", "records"):
        sizes = ((table["delta"][0].as_py(), table[unit][0].as_py()) for table in tables if _unit(table) == unit)
        if any(delta * size >= 1 for delta, size in sizes):
            print(f"warning: mechanisms.{mechanism}.delta is not below 1/(training {unit})", file=sys.stderr)


def _unit(table: pa.Table) -> str:
    return "records" if table["persons"][0].as_py() is None else "persons"


def shadow_folders(block: Path) -> dict[int, Path]:
    """Return the folders of a block's models by number, in order.

    A block without any is a UserError that names it, unless its table records that all of them diverged.
    """
    matches = [(re.fullmatch(r"shadow-(\d+)", path.name), path) for path in block.glob("shadow-*") if path.is_dir()]
    folders = {int(match[1]): path for match, path in matches if match}
    if not folders and not ((block / TABLE).exists() and diverged_models(block / TABLE, "training")):
        raise UserError(f"{block}: no folders shadow-{{k}} there; expected the models of a block of shadow models")
    return dict(sorted(folders.items()))
