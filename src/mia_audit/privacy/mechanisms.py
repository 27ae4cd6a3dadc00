"""`dp-sgd`: Poisson sampling, per-record clipping, Gaussian noise on the sum (Abadi et al. 2016; Bu et al. 2023).

With `unit: person`, persons are sampled. Each contributes one clipped vector, the mean gradient of some of their
records.

`none`: plain mini-batch training without protection.

`own`: a guarantee that the user's own code claims. The code receives ε and δ; nothing here enforces them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, Literal, NoReturn

from pydantic import Field

from mia_audit.errors import UserError
from mia_audit.privacy.catalogue import Job, Mechanism, Steps, Terms, Unit, mechanism
from mia_audit.sections import Section, is_unset

if TYPE_CHECKING:
    from torch import Tensor

    from mia_audit.privacy.masks import Masks
    from mia_audit.privacy.noise import Clipping
    from mia_audit.privacy.per_record import People


LEAST_NORM, LARGEST_NORM = 1e-12, 1e12
"""Smallest and largest clipping norm: squares of others, and ratios of two, may vanish in float32."""


class Noise(Section):
    """The keys of every mechanism that adds noise to clipped gradients."""

    accountant: Literal["pld", "prv", "rdp"] = "pld"
    """Accountant that calibrates the noise: privacy loss distributions (`pld`), or Opacus's PRV or RDP."""
    clipping: Literal["automatic", "flat"] = "automatic"
    """Per-record clipping: automatic (Bu et al. 2023) or flat at clip_norm."""
    clip_norm: float = Field(1.0, ge=LEAST_NORM, le=LARGEST_NORM)
    """Clipping norm C of flat clipping."""
    noise_multiplier: float | None = Field(None, gt=0, allow_inf_nan=False, exclude_if=is_unset)
    """Noise multiplier, instead of `epsilon`. The resulting ε is computed, stated and audited."""


@mechanism("dp-sgd", options=(Noise, Unit))
class DPSGD:
    """The noisy clipped sum of a Poisson batch, divided by the expected batch size.

    The noise multiplier z is calibrated to the budget for this training set's sampling rate q = B/n and all steps. The
    noise on the sum has standard deviation z times the sensitivity of the clipped sum. Where the unit is the person, n
    and B count persons.
    """

    noise: ClassVar[type[Noise]] = Noise
    """The section's keys for the noise, including those that a derived mechanism adds."""

    def __init__(self, section: Mechanism, job: Job) -> None:
        from mia_audit.privacy.accounting import steps_per_epoch
        from mia_audit.privacy.noise import Stream
        from mia_audit.privacy.per_record import ClippedSum

        check_private(job, section.mechanism, section.read(self.noise).noise_multiplier)
        self.job = job
        self.delta = section.delta
        self.people = sampled_people(section, job)
        units = len(self.people) if self.people else job.records
        self.steps_per_epoch = steps_per_epoch(units, job.training.batch)
        self.terms = self.foresee(section, job.epsilon, job.training, units)[0]
        self.rate = self.terms.sampling_rate
        way = job.training.per_record or "auto"
        self.clipped_sum = ClippedSum(job.model, self.clipping_of(section), job.micro_batch, way, job.known)
        self._draws = Stream(job.key, "batches")
        self._noise = Stream(job.key, "noise", job.summands)
        self._records = Stream(job.key, "records of persons")

    @classmethod
    def foresee(cls, section: Mechanism, epsilon: float, training: Steps, units: int) -> tuple[Terms, int]:
        """Calibrate the noise, unless the section states it; return the terms and the number of steps for `units` records (persons)."""
        from mia_audit.privacy.accounting import steps_per_epoch

        own, whose = section.read(cls.noise), section.read(Unit)
        rate, steps = training.batch / units, training.epochs * steps_per_epoch(units, training.batch)
        noise_multiplier = own.noise_multiplier or cls.calibrated(section, epsilon, rate, steps)
        clipping = cls.clipping_of(section).name
        terms = Terms(
            delta=section.delta,
            noise_multiplier=noise_multiplier,
            sampling_rate=rate,
            accountant=own.accountant,
            sampling="poisson",
            clipping=clipping,
        )
        if section.by_person:
            terms = replace(terms, unit="person", records_per_person=whose.records_per_person)
        return terms, steps

    @classmethod
    def calibrated(cls, section: Mechanism, epsilon: float, rate: float, steps: int) -> float:
        """Return the noise multiplier that spends at most ε over all steps."""
        from mia_audit.privacy.accounting import noise_multiplier_for

        return noise_multiplier_for(epsilon, rate, steps, section.delta, section.read(cls.noise).accountant)

    @classmethod
    def clipping_of(cls, section: Mechanism) -> Clipping:
        """Return the clipping of a record's (person's) gradient."""
        from mia_audit.privacy.noise import CLIPPINGS

        own = section.read(cls.noise)
        return CLIPPINGS[own.clipping](own.clip_norm)

    def batches(self) -> Iterator[Tensor]:
        """Draw every record, or person, independently at rate q, for every step."""
        for _ in range(self.steps_per_epoch):
            if self.people:
                drawn = self._draws.uniform(len(self.people)) < self.rate
                yield self.people.records(drawn, self._records)
            else:
                drawn = self._draws.uniform(self.job.records) < self.rate
                yield drawn.nonzero().squeeze(1)

    def backward(self, inputs: Tensor, labels: Tensor, *persons: Tensor) -> Tensor:
        """Set `grad` to (Σ clipped gradients + noise) / B, where B is the expected batch size; an empty batch gives only noise."""
        total, losses = self.clipped_sum(inputs, labels, *persons)
        noisy = self._noise.add_noise(total, self.deviation())
        self.released(noisy)
        self.clipped_sum.assign(noisy / self.job.training.batch)
        return losses

    def deviation(self) -> float | Tensor:
        """Return the standard deviation of the noise of a step, z times the sensitivity: one number, or one per parameter."""
        return self.terms.noise_multiplier * self.clipped_sum.clipping.sensitivity

    def released(self, noisy: Tensor) -> None:
        """Receive the noisy sum of a step, for computations that cost no privacy."""

    def masks(self) -> Masks | None:
        """Return None: the noise is the same for all parameters."""
        return None

    def state(self) -> dict[str, Tensor]:
        """Return the counters of the batches and of the noise; checkpoints never contain the key."""
        import torch

        streams = {"draws": self._draws, "noise": self._noise} | ({"records": self._records} if self.people else {})
        return {name: torch.tensor(stream.counter) for name, stream in streams.items()}

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Continue the batches and the noise from the saved state."""
        self._draws.counter, self._noise.counter = int(state["draws"]), int(state["noise"])
        if self.people:
            self._records.counter = int(state["records"])

    def spent(self, steps: int) -> tuple[float, float]:
        """Return ε at δ for the steps taken, by the configured accountant and by RDP."""
        from mia_audit.privacy.accounting import epsilon_spent

        terms = self.terms
        own, rdp = (
            epsilon_spent(terms.noise_multiplier, self.rate, steps, self.delta, accountant)
            for accountant in (terms.accountant, "rdp")
        )
        return own, rdp


def sampled_people(section: Mechanism, job: Job) -> People | None:
    """Return the persons to sample if the guarantee is for persons, else None. Raises UserError if persons are needed but not known."""
    from mia_audit.privacy.per_record import People

    unit = section.read(Unit)
    if unit.unit != "person":
        return None
    if job.persons is None:
        raise UserError(
            f"mechanism '{section.mechanism}' with unit: person needs the person of every record: name its column in datasets.*.person"
        )
    return People(job.persons.cpu(), unit.records_per_person)


def check_private(job: Job, mechanism: str, stated: float | None) -> None:
    """Raise UserError for models without per-record gradients, training outside the accountant's assumptions, and undetermined noise."""
    from mia_audit.models.architecture import batch_norm_layers

    layers = batch_norm_layers(job.model)
    if layers:
        raise UserError(
            f"layer '{layers[0]}' ({len(layers)} in all) is a BatchNorm, which mixes the records of a batch and cannot be"
            f" trained under {mechanism}: choose a model with LayerNorm or GroupNorm"
        )
    if job.epsilon == float("inf") and stated is None:
        raise UserError(f"mechanism '{mechanism}' needs a finite budget: list mechanisms.*.epsilon, such as [8, 2]")


@mechanism("none", private=False, per_record=False, steps=False)
class PlainTraining:
    """Plain training on shuffled mini-batches with the mean gradient of each."""

    def __init__(self, section: Mechanism, job: Job) -> None:
        from mia_audit.models.architecture import batch_norm_layers
        from mia_audit.privacy.noise import Stream
        from mia_audit.runtime.device import AdaptiveBatchSize

        self.job = job
        self.terms, steps = self.foresee(section, job.epsilon, job.training, job.records)
        self.steps_per_epoch = steps // job.training.epochs
        self._draws = Stream(job.key, "batches")
        mixed = batch_norm_layers(job.model)
        self._at_once = (
            AdaptiveBatchSize(job.training.batch, "BatchNorm") if mixed else AdaptiveBatchSize(job.micro_batch)
        )

    @classmethod
    def foresee(cls, section: Mechanism, epsilon: float, training: Steps, units: int) -> tuple[Terms, int]:
        """Return the terms of training without noise, and the number of steps."""
        rate = min(1.0, training.batch / units)
        terms = Terms(0.0, 0.0, rate, accountant="none", sampling="shuffled", clipping="none")
        return terms, training.epochs * math.ceil(units / training.batch)

    def batches(self) -> Iterator[Tensor]:
        """Cut a random order of the training set into batches."""
        import torch

        yield from torch.split(self._draws.uniform(self.job.records).argsort(), self.job.training.batch)

    def backward(self, inputs: Tensor, labels: Tensor, *persons: Tensor) -> Tensor:
        """Set `grad` to the gradient of the mean loss, accumulated over micro-batches unless BatchNorm mixes the batch's records."""
        from mia_audit.models.architecture import LONE, lone_record_message

        try:
            return self._at_once(lambda size: self._accumulated(inputs, labels, size))
        except ValueError as error:
            if LONE not in str(error):
                raise
            raise UserError(lone_record_message(self.job.records)) from None

    def _accumulated(self, inputs: Tensor, labels: Tensor, size: int) -> Tensor:
        import torch
        import torch.nn.functional as F

        self.job.model.zero_grad()
        losses = inputs.new_zeros(())
        for records, truth in zip(torch.split(inputs, size), torch.split(labels, size), strict=True):
            loss = F.cross_entropy(self.job.model(records), truth, reduction="sum")
            (loss / len(labels)).backward()  # type: ignore[no-untyped-call]
            losses += loss.detach()
        return losses

    def state(self) -> dict[str, Tensor]:
        """Return the number of orders drawn so far."""
        import torch

        return {"draws": torch.tensor(self._draws.counter)}

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Continue with the orders after those of the state."""
        self._draws.counter = int(state["draws"])

    def spent(self, steps: int) -> tuple[float, float]:
        """Return inf, because nothing is promised."""
        return math.inf, math.inf

    def masks(self) -> None:
        """Return None, because there is no noise."""


@mechanism("own", per_record=False, steps=False, claimed=True)
def own(section: Mechanism, job: Job) -> NoReturn:
    """Raise UserError: the built-in loop cannot use a guarantee of the user's code."""
    raise UserError(
        f"mechanism '{section.mechanism}' is for models that your own code trains: choose dp-sgd for this model"
    )
