"""The built-in torch loop's models: a shadow model, trained under a mechanism and evaluated on its pool, or a model for release.

A model for release is trained without a seed, and nothing is kept that was computed without noise.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor, nn

from mia_audit.errors import UserError
from mia_audit.models.architecture import construct, keyed
from mia_audit.models.inputs import Inputs, Subset
from mia_audit.models.weights import own_weights
from mia_audit.pools.persons import Persons
from mia_audit.privacy.catalogue import Job, Mechanism, Terms, Unit
from mia_audit.privacy.masks import Masks
from mia_audit.privacy.noise import RELEASED, Stream, content_digest, fresh_key, seed_layers, training_key
from mia_audit.registry import code_files, file_digest
from mia_audit.runtime.device import computing
from mia_audit.seeds import seed_for
from mia_audit.storage import write_text
from mia_audit.storage.atomic import sync
from mia_audit.training.checkpoints import Checkpoint
from mia_audit.training.loop import (
    State,
    capture_state,
    fit,
    hits_and_losses,
    optimizer_of,
    restore_state,
    steps_of_epoch,
    training_of,
    under,
)
from mia_audit.training.report import TrainingReport, mean
from mia_audit.training.section import Training
from mia_audit.training.task import Progress
from mia_audit.training.trainable import Features, Movement, choose_part, merge_adapters


@dataclass(frozen=True)
class Recipe:
    """Everything that all shadow models of a setting share.

    `public` has their initial weights, if any, except those that each model draws itself (a classifier's).
    """

    architecture: Mapping[str, Any]
    public: Mapping[str, Tensor] | None
    mechanism: Mechanism
    training: Training
    epsilon: float
    micro_batch: int
    key: tuple[int | str, ...]
    public_records: tuple[Inputs | Tensor, Tensor] | None = None
    """Inputs and labels of the pool's public records, if the mechanism reads them."""
    features: Features = field(default_factory=Features)
    """The classifier's features, which models share if only their classifiers are trained."""
    known: dict[Any, dict[Any, int]] = field(default_factory=dict)
    """What was decided about the first model's passes, for all."""
    start: str = ""
    """What `public` is, the same on every processor (`models.weights.identity_of`)."""


@dataclass(frozen=True)
class Shadow(TrainingReport):
    """A trained model in eval mode, the report on its training, and the masks of its noise, if any.

    `own` has the weights that are stored if only a part was trained: those that differ from the initial ones, or
    adapters.
    """

    model: nn.Module
    masks: Masks | None
    own: Mapping[str, Tensor] | None = None


def train_shadow(
    recipe: Recipe,
    shadow: int,
    inputs: Inputs | Tensor,
    labels: Int[Tensor, " n"],
    members: Bool[np.ndarray, " n"],
    progress: Progress = lambda *_: None,
    checkpoint: Checkpoint | None = None,
    persons: Int[np.ndarray, " n"] | None = None,
) -> Shadow:
    """Train shadow model number `shadow` on its members of the pool [n, …]; test accuracy is that on the other records.

    `persons` has the number of each record's person, for mechanisms whose guarantee is for persons.

    Training resumes from the checkpoint if it holds an epoch. Raises UserError if the batch exceeds the training set or
    the mechanism cannot be applied, and Diverged if a loss or a weight is not finite.
    """
    key = key_of(recipe, shadow)
    model = start(recipe, seed_for(*key, "initial weights")).to(inputs.device)
    training_set, people, trained, batches = _prepared(recipe, model, inputs, members, persons)
    terms = _terms(recipe) | _terms_of_people(recipe.mechanism, people)
    noise_key = training_key(key, terms, content_digest(inputs, labels, training_set))
    job = _job(recipe, trained, len(training_set), people, noise_key)
    protection = recipe.mechanism.kind.protect(recipe.mechanism, job)
    partly = recipe.training.trainable != "all"
    movement = Movement(model) if partly else None
    with computing(trained, recipe.training.precision or "float32"):
        epochs = fit(
            job,
            protection,
            Subset(batches, training_set),
            labels=labels[training_set],
            progress=progress,
            checkpoint=checkpoint,
        )
        if movement is not None:
            movement.check()
        factors = merge_adapters(model)
        evaluated = hits_and_losses(trained, batches, labels, recipe.micro_batch)
        hits, losses = (values.cpu().numpy() for values in evaluated)
    epsilon, epsilon_rdp = protection.spent(epochs[-1].steps)
    return Shadow(
        records=len(training_set),
        persons=None if people is None else len(people),
        epochs=epochs,
        terms=protection.terms,
        epsilon=epsilon,
        epsilon_rdp=epsilon_rdp,
        train_accuracy=mean(hits[members]),
        test_accuracy=mean(hits[~members]),
        train_loss=mean(losses[members]),
        test_loss=mean(losses[~members]),
        model=model,
        masks=protection.masks(),
        own=own_weights(model, recipe.public, factors) if recipe.public and partly else None,
    )


def key_of(recipe: Recipe, shadow: int) -> tuple[int | str, ...]:
    """Return the key of all randomness in one model's training: initial weights, batches, layers and the mechanism's noise."""
    return (*recipe.key, shadow)


def _prepared(
    recipe: Recipe,
    model: nn.Module,
    inputs: Inputs | Tensor,
    members: Bool[np.ndarray, " n"],
    persons: Int[np.ndarray, " n"] | None,
) -> tuple[Int[Tensor, " m"], Persons | None, nn.Module, Inputs | Tensor]:
    """Return the rows of the training set, their persons if these are the unit, the module that training changes, and its inputs.

    Raises UserError if a batch is larger than the training set.
    """
    rows = torch.from_numpy(np.flatnonzero(members)).to(inputs.device)
    by_person = recipe.mechanism.by_person and persons is not None
    people = Persons.numbered(persons[members]) if by_person and persons is not None else None
    units, words = (len(rows), "records") if people is None else (len(people), "persons")
    if recipe.training.batch > units:
        raise UserError(
            f"training.batch: {recipe.training.batch} {words} per step, but the training set has only {units}"
        )
    per_record = recipe.mechanism.kind.per_record
    return rows, people, *recipe.features(model, recipe.training, inputs, recipe.micro_batch, per_record)


def _job(
    recipe: Recipe, trained: nn.Module, records: int, people: Persons | None, key: bytes, summands: int = 1
) -> Job:
    """Return what the mechanism is given."""
    return Job(
        model=trained,
        records=records,
        epsilon=recipe.epsilon,
        training=recipe.training,
        micro_batch=recipe.micro_batch,
        key=key,
        public=recipe.public_records,
        persons=None if people is None else torch.from_numpy(people.of),
        summands=summands,
        known=recipe.known,
    )


def check_mechanism(
    architecture: Mapping[str, Any], mechanism: Mechanism, training: Training, epsilon: float, units: int
) -> tuple[nn.Module, Inputs | Tensor]:
    """Set up a mechanism for this number of records (persons), none of which is read.

    Return the module that training changes, and one input of it. Raises UserError if the mechanism does not fit the
    model, its trained part or the budget.
    """
    blank = torch.zeros(1, *architecture["input_shape"])
    public = (blank, torch.zeros(1, dtype=torch.long)) if mechanism.kind.reads_public_records(mechanism) else None
    recipe = Recipe(
        architecture=architecture,
        public=None,
        mechanism=mechanism,
        training=training,
        epsilon=epsilon,
        micro_batch=1,
        key=(),
        public_records=public,
    )
    model = construct(architecture, seed=0)
    choose_part(model, training)
    trained, inputs = recipe.features(model, training, blank, 1, mechanism.kind.per_record)
    people = Persons.numbered(np.arange(units)) if mechanism.by_person else None
    mechanism.kind.protect(mechanism, _job(recipe, trained, units, people, fresh_key()))
    return trained, inputs


def _terms(recipe: Recipe) -> dict[str, Any]:
    """Return everything except the records that defines a training run: exactly the terms on which the key of its noise depends.

    Config keys that only decide when an audit stops, or how much memory a model needs, are excluded, because they must
    not change batches and noise. So are the bytes of initial weights, whose last bits differ between processors: one
    seed has the same batches and noise on all of them. Random weights follow from the model's key and architecture.
    """
    public = recipe.public_records
    code = {file: file_digest(file) for file in code_files(recipe.mechanism)}
    whose = set(
        Unit.model_fields
    )  # not used if every person has one record, because training is then the same as by records
    return {
        "architecture": keyed(recipe.architecture),
        "start": recipe.start,
        "mechanism": recipe.mechanism.model_dump(mode="json", exclude=whose),
        "training": recipe.training.model_dump(mode="json", exclude={"floor"}),
        "epsilon": repr(recipe.epsilon),
        "public": content_digest(*public, torch.arange(len(public[1]))).hex() if public else "",
    } | ({"code": code} if code else {})


def _terms_of_people(mechanism: Mechanism, people: Persons | None) -> dict[str, Any]:
    """If a person has several records, return the person of every record, and the number of a person's records that a step uses."""
    if people is None or int(people.records.max()) == 1:
        return {}
    of = hashlib.sha256(people.of.astype("<i8").tobytes()).hexdigest()
    return {"persons": {"of": of, "records_per_person": mechanism.read(Unit).records_per_person}}


def start(recipe: Recipe, seed: int) -> nn.Module:
    """Return the initial model: random weights from a seed, replaced by public weights where these exist."""
    model = construct(recipe.architecture, seed)
    if recipe.public is not None:
        model.load_state_dict(
            recipe.public, strict=False
        )  # names and shapes were checked before, when the weights were read
    choose_part(model, recipe.training, seed)
    return model


COUNTERS = ("draws", "noise", "records")
"""Names of a mechanism's stream counters in its state; these are not restored, because another process has other streams."""

EPOCHS, START = "epochs", "start"
"""The keys of a saved state for the number of finished epochs, and for the seed of the initial weights.

The seed is no secret, and only the trained part of a model is saved.
"""

SEED_BITS = 63

BEGUN = "begun"
"""The file with the number of begun epochs beside the state."""


@dataclass(frozen=True)
class Released:
    """A trained model in eval mode, the terms of its training, the number of its steps, and the ε that they spend."""

    model: nn.Module
    terms: Terms
    steps: int
    epsilon: float


class KeptEpochs(Checkpoint):
    """The state after the last epoch of training for release: only weights, the optimizer's moments and public masks.

    These are functions of the noisy sums, so ε covers them all. The state is saved after every epoch, so a kill loses
    at most one epoch. How many epochs were ever begun is counted in several files, beside the state and elsewhere, before
    each of them, so that it is known when an older copy of some of them was put back.
    """

    def __init__(self, folder: Path, key: str, *counters: Path) -> None:
        super().__init__(folder, key, 0.0)
        self.counters = (*counters, folder / BEGUN)
        self._state: State | None = None

    def begin(self) -> None:
        """Count an epoch, on disk before it is run."""
        self.count(max(self.counts, default=0) + 1)

    def count(self, begun: int) -> None:
        """Write the number of epochs that were begun to all files."""
        for counter in self.counters:
            write_text(counter, f"{begun}\n")
            sync(counter, counter.parent)

    @property
    def counts(self) -> list[int]:
        """The numbers of epochs that were ever begun, of which the largest is right; a file that is lost or damaged has none."""
        texts = [path.read_text(encoding="ascii", errors="replace") for path in self.counters if path.exists()]
        return [int(text) for text in texts if text.strip().isdecimal()]

    def resume(self) -> State:
        """Return the state after the last saved epoch, reading the file only once."""
        if self._state is None:
            self._state = super().resume()
        return self._state

    def offer(self, capture: Callable[[], State]) -> None:
        """Keep a state."""
        self._state = None
        super().offer(capture)

    @property
    def epochs(self) -> int | None:
        """The number of epochs after which the state was saved; None if there is no state, or it is damaged."""
        state = self.resume()
        return int(state[f"rest.{EPOCHS}"]) if state else None


def train_released(
    recipe: Recipe,
    inputs: Inputs | Tensor,
    labels: Int[Tensor, " n"],
    members: Bool[np.ndarray, " n"],
    checkpoint: Checkpoint | None = None,
    persons: Int[np.ndarray, " n"] | None = None,
) -> Released:
    """Train on the members of the pool [n, …], with batches, noise and random layers from a key that only this call knows.

    No loss is kept, and no value ends training early. If training was killed, the interrupted epoch is repeated with
    another key, and so with other batches and noise. The caller must account for its steps twice. Raises UserError if
    the batch exceeds the training set or the mechanism cannot be applied.
    """
    checkpoint = checkpoint or Checkpoint()
    state = checkpoint.resume()
    seed = int(state[f"rest.{START}"]) if state else secrets.randbits(SEED_BITS)
    model = start(recipe, seed).to(inputs.device)
    training_set, people, trained, batches = _prepared(recipe, model, inputs, members, persons)
    key = fresh_key()
    job = _job(recipe, trained, len(training_set), people, key, summands=RELEASED)
    protection = recipe.mechanism.kind.protect(recipe.mechanism, job)
    training, optimizer = training_of(job), optimizer_of(job)
    records, truth = Subset(batches, training_set), labels[training_set]
    done = 0

    def captured() -> State:
        kept = {name: value for name, value in protection.state().items() if name not in COUNTERS}
        rest = {f"protection.{name}": value for name, value in kept.items()}
        return capture_state(trained, optimizer, rest | {EPOCHS: torch.tensor(done), START: torch.tensor(seed)})

    with computing(trained, training.precision or "float32"), torch.random.fork_rng():
        trained.train()
        layers = Stream(key, "layers")
        if state:
            rest = restore_state(state, trained, optimizer)
            done = int(rest.pop(EPOCHS))
            rest.pop(START)
            protection.restore(dict.fromkeys(COUNTERS, torch.tensor(0)) | under(rest, "protection"))
        else:
            checkpoint.offer(captured)
        while done < training.epochs:
            checkpoint.begin()
            seed_layers(layers.layer_seed())
            for _ in steps_of_epoch(
                job, protection, records, labels=truth, optimizer=optimizer, steps=done * protection.steps_per_epoch
            ):
                pass
            done += 1
            checkpoint.offer(captured)
        trained.eval()
    merge_adapters(model)
    steps = training.epochs * protection.steps_per_epoch
    return Released(model, protection.terms, steps, epsilon=protection.spent(steps)[0])
