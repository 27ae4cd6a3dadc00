"""`command`: models in any language. One command line trains them and another queries them, through files."""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from shutil import copy2, copytree
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from mia_audit.errors import UserError, first_line
from mia_audit.learners.answers import UNKNOWN_VOTES, check_order, logits_of
from mia_audit.learners.boxed import boxed_attributions
from mia_audit.learners.catalogue import described, learners
from mia_audit.learners.command_line import check_commands, check_program, filled, run_command
from mia_audit.learners.finished import copy_into
from mia_audit.learners.naming import Outputs
from mia_audit.learners.protocol import Attribution, Compute, ExplanationRequest, ModelSection
from mia_audit.learners.script_task import device_name, own_checkpoints
from mia_audit.storage import atomic_write
from mia_audit.storage.unpacked import NOT_NUMPY
from mia_audit.training.task import Progress, Records, TrainingTask

if TYPE_CHECKING:
    from jaxtyping import Float, Int

MODEL = "model"
"""The file or folder that the command wrote, in the folder of a shadow model."""


class CommandModel:
    """A model stored in a file or folder, and queried by a command."""

    def __init__(self, learner: CommandLearner, path: Path, temporary: TemporaryDirectory[str] | None = None) -> None:
        self._learner = learner
        self._path = path
        self._temporary = temporary  # a folder that is deleted together with the model

    def logits(self, records: Records) -> Float[np.ndarray, "n C"]:
        """Return the logits computed from the file that the command writes for all records."""
        logits = self._asked(records)
        if not self._learner.checked:  # the check runs the command once more, so only a job's first model is checked
            check_order(self._asked, records, logits, f"{self._learner.where}: predict")
            self._learner.checked = True
        return logits

    def attributions(
        self, records: Records, request: ExplanationRequest
    ) -> dict[Attribution, Float[np.ndarray, "n ..."]]:
        """Return the attributions of explainers that need only the outputs; the command runs once per batch of evaluations."""
        return boxed_attributions(self._asked, records, request, request.explainers)

    def _asked(self, records: Records) -> Float[np.ndarray, "n C"]:
        learner, where = self._learner, f"{self._learner.where}: predict"
        with TemporaryDirectory() as folder:
            out = Path(folder, "outputs.npy")
            values = {
                "records": array_file(records.values, Path(folder, "records.npy")),
                "model": self._path.resolve(),
                "out": out,
            }
            learner.run("predict", values | learner.machine())
            if not out.exists():
                raise UserError(f"{where}: the command succeeded, but wrote no file to {{out}}")
            try:
                answer = np.load(out, allow_pickle=False)
            except NOT_NUMPY as error:
                raise UserError(f"{where}: {{out}} is not a NumPy array (.npy): {first_line(error)}") from None
        outputs = cast(Outputs, learner.architecture["outputs"])
        return logits_of(answer, outputs, records, learner.architecture["votes"] or UNKNOWN_VOTES, where)

    def save(self, folder: Path) -> None:
        """Copy the model that the command wrote."""
        if self._path.is_dir():
            copytree(self._path, folder / MODEL)
        else:
            with atomic_write(folder / MODEL) as partial:
                copy2(self._path, partial)


class CommandLearner:
    """Trains models with one command and queries them with another."""

    def __init__(self, architecture: Mapping[str, Any], compute: Compute) -> None:
        missing = [key for key in ("train", "predict", "outputs", "votes", "classes") if key not in architecture]
        if missing:
            raise UserError(f"the key '{missing[0]}' is missing; expected the architecture of a command")
        check_commands(architecture["train"], architecture["predict"], architecture["outputs"])
        self.architecture = architecture
        self.where = f"architectures.{architecture.get('name', '')}"
        self.checked = False
        self._compute = compute
        self.environment = {"device": compute.device, "threads": compute.threads}

    @classmethod
    def describe(cls, section: ModelSection, pool: Mapping[str, Any]) -> dict[str, Any]:
        """Check that the commands' programs exist, and return the architecture.json."""
        for key, command in (("train", section.train), ("predict", section.predict)):
            check_program(f"architectures.{section.name}.{key}", command)
        commands = {"train": section.train, "predict": section.predict}
        metadata = described("command", section, pool)
        return metadata | commands | {"reads_public": "{public}" in section.train or "{public_labels}" in section.train}

    def train(self, task: TrainingTask) -> CommandModel:
        """Run the train command, and check that it wrote a model."""
        temporary = TemporaryDirectory()
        folder = Path(temporary.name)
        files = {
            "records": array_file(task.records.values, folder / "records.npy"),
            "labels": array_file(np.asarray(task.records.labels, dtype=np.int64), folder / "labels.npy"),
            "members": array_file(np.flatnonzero(task.members).astype(np.int64), folder / "members.npy"),
        }
        if "{persons}" in self.architecture["train"]:
            files["persons"] = array_file(person_numbers(task.records), folder / "persons.npy")
        if self.architecture.get("reads_public"):
            public = task.public if task.public is not None else task.records[:0]
            files["public"] = array_file(public.values, folder / "public.npy")
            files["public_labels"] = array_file(np.asarray(public.labels, dtype=np.int64), folder / "public_labels.npy")
        model = folder / MODEL
        private = math.isfinite(task.epsilon)
        values = {
            "epsilon": repr(task.epsilon) if private else "inf",
            "delta": repr(task.mechanism.delta) if private else "0",
            "seed": "none" if task.seed is None else task.seed % 2**31,
            "checkpoints": own_checkpoints(task, folder).resolve(),
            "model": model,
            "out": model,
            "progress": folder / "progress",
        }
        with followed(folder / "progress", task.progress):
            self.run("train", values | files | self.machine())
        if not model.exists():
            raise UserError(
                f"{self.where}: train: the command succeeded, but wrote neither a file nor a folder to {{model}}"
            )
        return CommandModel(self, model, temporary)

    def load(self, folder: Path) -> CommandModel:
        """Open the model that the command wrote."""
        if not (folder / MODEL).exists():
            raise UserError(f"{folder / MODEL}: no such file; expected the output of the train command of {self.where}")
        return CommandModel(self, folder / MODEL)

    def adopt(self, path: Path, folder: Path) -> None:
        """Copy the output of a train command."""
        if path.is_dir():
            (folder / MODEL).mkdir()
            copy_into(folder / MODEL, path)
        else:
            copy_into(folder, path, MODEL)

    def machine(self) -> dict[str, object]:
        """Return the placeholders that both commands share, with their values."""
        return {
            "device": device_name(self._compute.device),
            "threads": self._compute.threads,
            "classes": self.architecture["classes"],
        }

    def run(self, key: str, values: Mapping[str, object]) -> None:
        """Run one of the two commands."""
        threads = {"OMP_NUM_THREADS": str(self._compute.threads)}
        words = filled(self.architecture[key], values)
        run_command(words, f"{self.where}: {key}", self._compute.minutes, {**os.environ, **threads})


def person_numbers(records: Records) -> Int[np.ndarray, " n"]:
    """Return the number of every record's person, from 0; if the pool has no persons, every record has its own number."""
    if records.persons is None:
        return np.arange(len(records), dtype=np.int64)
    return np.unique(records.persons, return_inverse=True)[1].astype(np.int64)


@contextmanager
def followed(path: Path, progress: Progress, seconds: float = 0.5) -> Iterator[None]:
    """Report progress from the lines `RECORDS EPOCH` that a command appends to a file, while the command runs and once after its end."""
    ended = threading.Event()
    done = 0

    def read() -> None:
        nonlocal done
        lines = path.read_text(errors="replace").splitlines(keepends=True) if path.exists() else []
        for line in (line for line in lines[done:] if line.endswith("\n")):
            done += 1
            words = line.split()
            if len(words) == 2 and all(word.isdigit() for word in words):
                progress(int(words[0]), int(words[1]))

    def follow() -> None:
        while not ended.wait(seconds):
            read()

    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        read()


def array_file(values: np.ndarray, path: Path) -> Path:
    """Return a .npy file with an array: the array's own file if the array is a complete memory map, otherwise a new one."""
    name = getattr(values, "filename", None)
    if name and np.load(name, mmap_mode="r").shape == values.shape:
        return Path(name).resolve()
    np.save(path, values)
    return path


learners.register("command")(CommandLearner)
