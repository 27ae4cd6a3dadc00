"""Tiny private training runs: the real loop and the real mechanism, on a few records."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from mia_audit.privacy import noise, per_record
from mia_audit.privacy.catalogue import Job, Mechanism, PerRecord, Protection
from mia_audit.privacy.per_record import ClippedSum, Lengths
from mia_audit.runtime.device import computing
from mia_audit.sections import Precision
from mia_audit.training.checkpoints import Checkpoint
from mia_audit.training.loop import fit
from mia_audit.training.section import Training

from .play import Pair

FEATURES, LONG, HUGE = 2, 1000.0, 1e160


@dataclass
class Seen:
    """A protection that stores the noisy gradients of every step. The guarantee covers these in addition to the weights."""

    protection: Protection
    model: nn.Module
    present: int
    gradients: list[Tensor] = field(default_factory=list)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.protection, name)

    def batches(self) -> Iterator[Tensor]:
        """Draw batches from all records that could be present, and drop those that are absent."""
        for batch in self.protection.batches():
            yield batch[batch < self.present]

    def backward(self, inputs: Tensor, labels: Tensor, *persons: Tensor) -> Tensor:
        losses = self.protection.backward(inputs, labels, *persons)
        parts = [value.grad.flatten() for value in self.model.parameters() if value.grad is not None]
        self.gradients.append(torch.cat(parts).detach().clone())
        return losses


class Killed(BaseException):
    """Represents the signal that ends a training run."""


class KilledOnce(Checkpoint):
    """A checkpoint in memory. Training is killed while the first state is written."""

    def __init__(self) -> None:
        super().__init__()
        self._state: dict[str, Tensor] = {}

    def resume(self) -> dict[str, Tensor]:
        """Return the state that was kept."""
        return {name: value.clone() for name, value in self._state.items()}

    def offer(self, capture: Callable[[], dict[str, Tensor]]) -> None:
        """Keep the first state, and raise `Killed`."""
        if not self._state:
            self._state = {name: value.clone() for name, value in capture().items()}
            raise Killed


def once(call: Callable[..., Any]) -> Callable[..., Any]:
    """Return what the first call returned, whatever is asked later."""
    found: list[Any] = []

    def known(*given: Any) -> Any:
        found[:] = found or [call(*given)]
        return found[0]

    return known


@contextmanager
def one_decision() -> Iterator[None]:
    """Check a model once for all trainings: what they decide depends on the model alone, and takes most of their time."""
    with pytest.MonkeyPatch.context() as patch:
        for owner, name in ((per_record, "check_state"), (per_record, "checked_pass"), (ClippedSum, "_try_vmap")):
            patch.setattr(owner, name, once(getattr(owner, name)))
        lengths: dict[Any, Lengths] = {}

        def known(seen: Any, shape: tuple[int, ...], *given: Any, **more: Any) -> Lengths:
            return lengths.setdefault((seen.args, shape), Lengths(seen, shape, *given, **more))

        patch.setattr(per_record, "Lengths", known)
        yield


@dataclass(frozen=True)
class Scene:
    """A training run to test: a model, sections of the mechanism and of the training, the public number of records, and ε.

    With `killed` the run is killed after its first epoch, and a new protection resumes it from a checkpoint.
    """

    model: Callable[[], nn.Module]
    section: Mapping[str, Any]
    epsilon: float
    records: int = 8
    epochs: int = 1
    batch: int | None = None
    precision: Precision = "float32"
    killed: bool = False
    public: tuple[Tensor, Tensor] | None = None
    way: PerRecord | None = None
    persons: Tensor | None = None

    def train(self, data: Any, randomness: int, **terms: Any) -> Any:
        """Train on records (rows whose last column is the label, or inputs and labels), and return the noisy gradients, the weights and the buffers.

        The key is derived as in an audit: from all terms and the records' content, under the secret.
        """
        epsilon = terms.pop("epsilon", self.epsilon)
        section = Mechanism(**{**self.section, **terms})
        training = Training(
            epochs=self.epochs,
            batch=self.batch or self.records,
            optimizer="sgd",
            precision=self.precision,
            per_record=self.way,
        )
        if isinstance(data, Mapping):
            features, labels = data["inputs"], data["labels"]
        else:
            features, labels = torch.from_numpy(data[:, :-1]).float(), torch.from_numpy(data[:, -1]).long()
        stated = {
            "mechanism": section.model_dump(mode="json"),
            "training": training.model_dump(mode="json"),
            "epsilon": epsilon,
        }
        content = noise.content_digest(features, labels, torch.arange(len(labels)))
        key = noise.training_key((randomness, "game"), stated, content)

        rows_of = self.records if self.persons is None else len(self.persons)

        def protected() -> tuple[Job, Seen]:
            torch.manual_seed(0)  # initial weights are public
            model = self.model()
            job = Job(
                model=model,
                records=rows_of,
                epsilon=epsilon,
                training=training,
                micro_batch=rows_of,
                key=key,
                public=self.public,
                persons=self.persons,
            )
            return job, Seen(section.kind.protect(section, job), model, len(labels))

        seen: list[Tensor] = []
        checkpoint = KilledOnce() if self.killed else Checkpoint()
        job, protection = protected()
        if self.killed:
            with computing(job.model, self.precision), suppress(Killed):
                fit(job, protection, features, labels, checkpoint=checkpoint)
            seen += protection.gradients
            job, protection = protected()
        with computing(job.model, self.precision):
            fit(job, protection, features, labels, checkpoint=checkpoint)
        seen += protection.gradients
        buffers = list(job.model.buffers())
        return {"gradients": seen, "weights": [value.detach() for value in job.model.parameters()], "buffers": buffers}


def linear() -> nn.Module:
    """Return a linear model of two classes, all zero: one record's gradient lies in the weights or in the bias."""
    model = nn.Linear(FEATURES, 2)
    for parameter in model.parameters():
        nn.init.zeros_(parameter)
    return model


def perceptron() -> nn.Module:
    """Return a small perceptron."""
    return nn.Sequential(nn.Linear(FEATURES, 4), nn.ReLU(), nn.Linear(4, 2))


def locally_linear_maps() -> nn.Module:
    """Return locally linear maps, which have their clipped sum in closed form."""
    from mia_audit.models.architectures.locally_linear_maps import LocallyLinearMaps

    return LocallyLinearMaps(FEATURES, 2, maps=2, beta=1.0, projected=None, deviation=1.0)


def rows(records: int, features: int = FEATURES) -> np.ndarray:
    """Return `records` equal records [n, d + 1], whose gradients lie along the last feature, with their label."""
    return np.tile([*[0.0] * (features - 1), 1.0, 0.0], (records, 1))


def canary_pairs(records: int) -> list[Pair]:
    """Return training sets with and without a canary.

    The canaries are a long record, a short one, one of another class, and one that is not a number.
    """
    others = rows(records - 1)
    nan, inf = math.nan, math.inf
    known = {
        "an orthogonal record": [LONG, 0.0, 0.0],
        "a short record": [0.0, 0.0, 0.0],
        "an aligned record": [0.0, LONG, 0.0],
        "an opposite record": [0.0, LONG, 1.0],
        "a huge record": [1e38, -1e38, 1.0],
        "a record beyond float32": [HUGE, 0.0, 1.0],
        "a record of NaN": [nan, nan, 0.0],
        "an infinite record": [inf, -inf, 0.0],
        "a denormal record": [1e-40, 0.0, 0.0],
        "an equal record": [0.0, 1.0, 0.0],
    }
    return [Pair(name, np.vstack([others, canary]), others) for name, canary in known.items()]
