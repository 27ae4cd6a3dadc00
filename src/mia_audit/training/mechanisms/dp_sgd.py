"""`dp-sgd`: Poisson sampling, per-record clipping, Gaussian noise on the sum (Abadi et al. 2016; Bu et al. 2023)."""

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from mia_audit.config.schema import Mechanism
from mia_audit.errors import UserError
from mia_audit.models import batch_norm_layers
from mia_audit.training.accounting import epsilon_spent, noise_multiplier_for, steps_per_epoch
from mia_audit.training.catalogue import Job, Terms, generator_for, mechanisms
from mia_audit.training.clipping import CLIPPINGS
from mia_audit.training.masks import Masks
from mia_audit.training.per_record import ClippedSum


class DPSGD:
    """The noisy clipped sum of a Poisson batch, divided by the expected batch size.

    The noise multiplier z is calibrated to the budget for this training set's sampling rate q = B/n and all steps; the
    noise on the sum has standard deviation z times the sensitivity of the clipped sum.
    """

    def __init__(self, section: Mechanism, job: Job) -> None:
        check_private(job, section.mechanism)
        self.job = job
        self.delta = section.delta
        self.steps_per_epoch = steps_per_epoch(job.records, job.training.batch)
        self.rate = job.training.batch / job.records
        steps = job.training.epochs * self.steps_per_epoch
        noise_multiplier = noise_multiplier_for(job.epsilon, self.rate, steps, self.delta, section.accountant)
        clipping = CLIPPINGS[section.clipping](section.clip_norm)
        self.terms = Terms(self.delta, noise_multiplier, self.rate, section.accountant, "poisson", clipping.name)
        self.clipped_sum = ClippedSum(job.model, clipping, job.micro_batch)
        self._draws = generator_for(job, "batches")
        self._noise = generator_for(job, "noise", next(job.model.parameters()).device)

    def batches(self) -> Iterator[Tensor]:
        """Draw every record independently at rate q, for every step."""
        for _ in range(self.steps_per_epoch):
            drawn = torch.rand(self.job.records, generator=self._draws, dtype=torch.float64) < self.rate
            yield drawn.nonzero().squeeze(1)

    def backward(self, inputs: Tensor, labels: Tensor) -> Tensor:
        """Set `grad` to (Σ clipped gradients + noise) / B, B being the expected batch size; an empty batch is noise alone."""
        total, losses = self.clipped_sum(inputs, labels)
        noisy = total + self.noise(total)
        self.released(noisy)
        self.clipped_sum.assign(noisy / self.job.training.batch)
        return losses

    def noise(self, total: Tensor) -> Tensor:
        """Draw the noise of one step, of standard deviation z times the sensitivity."""
        deviation = self.terms.noise_multiplier * self.clipped_sum.clipping.sensitivity
        return deviation * torch.randn(total.shape, generator=self._noise, dtype=total.dtype, device=total.device)

    def released(self, noisy: Tensor) -> None:
        """Be told the noisy sum of a step: whatever is made of it costs no privacy."""

    def masks(self) -> Masks | None:
        """Noise is the same everywhere."""
        return None

    def state(self) -> dict[str, Tensor]:
        """The streams of the draws and of the noise: noise that was added once is never drawn again."""
        return {"draws": self._draws.get_state(), "noise": self._noise.get_state()}

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Go on with the draws and the noise that come after the state's."""
        self._draws.set_state(state["draws"])
        self._noise.set_state(state["noise"])

    def spent(self, steps: int) -> tuple[float, float]:
        """ε at δ of the steps really taken."""
        terms = self.terms
        own, rdp = (
            epsilon_spent(terms.noise_multiplier, self.rate, steps, self.delta, accountant)
            for accountant in (terms.accountant, "rdp")
        )
        return own, rdp


def check_private(job: Job, mechanism: str) -> None:
    """Refuse what per-record gradients or the accountant's assumptions do not hold for."""
    layers = batch_norm_layers(job.model)
    if layers:
        raise UserError(
            f"layer '{layers[0]}' ({len(layers)} in all) is a BatchNorm, which mixes the records of a batch and cannot be"
            f" trained under {mechanism}: choose a model with LayerNorm or GroupNorm"
        )
    if job.epsilon == float("inf"):
        raise UserError(f"mechanism '{mechanism}' needs a finite budget: list mechanisms.*.epsilon, such as [8, 2]")


mechanisms.register("dp-sgd")(DPSGD)
