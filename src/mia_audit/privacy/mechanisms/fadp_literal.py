"""`fadp-literal`: noise by feature importance as the FADP paper publishes it, for reproduction. It guarantees nothing."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Literal, Self

from pydantic import Field, model_validator

from mia_audit.errors import UserError
from mia_audit.privacy.catalogue import Acknowledgement, Job, Mechanism, mechanism
from mia_audit.privacy.mechanisms.dp_sgd import DPSGD, Noise
from mia_audit.privacy.mechanisms.fadp import Factors
from mia_audit.sections import is_unset

if TYPE_CHECKING:
    from torch import Tensor

    from mia_audit.privacy.clipping import Clipping
    from mia_audit.privacy.masks import Masks

SOURCE = "the private batch itself"
NO_GUARANTEE = (
    "the mask that scales the noise is computed from the private batch, so one record changes the noise, and can lower it below"
    " the level that the accountant requires"
)


class LiteralNoise(Noise):
    """The keys of the noise of the paper."""

    clipping: Literal["automatic", "flat", "batch"] = "automatic"  # type: ignore[assignment]  # one more than dp-sgd
    """As in dp-sgd, or `batch`: the mean gradient of a batch is clipped at clip_norm, and noise is added to it (Algorithm 2, equation 1).

    A record may move that gradient by 2 clip_norm.
    """
    calibration: Literal["all-steps", "single-step"] = Field("all-steps", exclude_if=lambda value: value == "all-steps")
    """Steps for which the nominal ε is calibrated: all, as in dp-sgd, or only one, by equation 3: z = √(2 ln(1.25/δ))/ε."""
    base_epsilon: float | None = Field(None, gt=0, allow_inf_nan=False, exclude_if=is_unset)
    """The smaller ε of section V.A.5 (0.1 in the paper, with an `epsilon` of 3).

    It sets the noise of all but the most important channels, before the factors are applied.
    """

    @model_validator(mode="after")
    def _nominal(self) -> Self:
        if self.noise_multiplier and (self.base_epsilon or self.calibration != "all-steps"):
            key = "base_epsilon" if self.base_epsilon else "calibration"
            raise ValueError(
                f"{key}: sets the noise of a nominal ε, but noise_multiplier states the noise; leave one of them out"
            )
        return self


@mechanism("fadp-literal", options=(LiteralNoise, Factors), no_guarantee=NO_GUARANTEE)
class FADPLiteral(DPSGD):
    """dp-sgd whose noise is multiplied by a mask of factors ≤ 1, computed from the private batch of every step (Algorithm 2).

    By default noise is calibrated as for dp-sgd at the nominal ε, per record and over all steps, to isolate the effect
    of the mask. The paper instead clips the batch's gradient (`clipping: batch`) and calibrates one step (`calibration:
    single-step`). Neither gives an ε.
    """

    noise = LiteralNoise

    def __init__(self, section: Mechanism, job: Job) -> None:
        import torch

        from mia_audit.privacy.masks import ChannelNoise

        if not section.read(Acknowledgement).acknowledge_no_guarantee:
            raise UserError(
                f"mechanism 'fadp-literal' guarantees nothing ({NO_GUARANTEE}): set"
                " acknowledge_no_guarantee: true to train with it anyway, or choose 'fadp'"
            )
        super().__init__(section, job)
        self.terms = replace(self.terms, delta=0.0, accountant="none", noise_mask=SOURCE)
        self.factors = section.read(Factors).factors
        self.channels = ChannelNoise(job.model, f"mechanism '{section.mechanism}'")
        self.history: list[tuple[Tensor, float]] = []
        self._batch = section.read(LiteralNoise).clipping == "batch"
        self._rest = self._base(section)
        self._factors = torch.ones(self.channels.count, dtype=torch.float64, device=self.channels.device)

    def _base(self, section: Mechanism) -> float:
        """Return the noise of parameters that no mask scales, relative to the noise of the nominal ε."""
        base = section.read(LiteralNoise).base_epsilon
        if base is None:
            return 1.0
        steps = self.job.training.epochs * self.steps_per_epoch
        return self.calibrated(section, base, self.rate, steps) / self.terms.noise_multiplier

    @classmethod
    def calibrated(cls, section: Mechanism, epsilon: float, rate: float, steps: int) -> float:
        """Calibrate as dp-sgd does, or by the classical bound of one Gaussian mechanism (equation 3), valid for ε < 1 and one step."""
        if section.read(LiteralNoise).calibration == "all-steps":
            return super().calibrated(section, epsilon, rate, steps)
        return math.sqrt(2 * math.log(1.25 / section.delta)) / epsilon

    @classmethod
    def clipping_of(cls, section: Mechanism) -> Clipping:
        """Return dp-sgd's clipping of records, or none if the batch is clipped instead."""
        import torch

        from mia_audit.privacy.clipping import Clipping

        own = section.read(LiteralNoise)
        if own.clipping != "batch":
            return super().clipping_of(section)
        return Clipping(f"batch {own.clip_norm:g}", torch.ones_like, own.clip_norm)

    def batches(self) -> Iterator[Tensor]:
        """Draw as in dp-sgd; only the last mask of an epoch is kept."""
        yield from super().batches()
        self.history.append((self._factors, self._rest))

    def backward(self, inputs: Tensor, labels: Tensor, *persons: Tensor) -> Tensor:
        """Compute the mask from the batch first; an empty batch has none."""
        import torch

        from mia_audit.privacy.masks import banded

        if len(labels):
            importance = self.channels.importance(inputs, labels, self.job.micro_batch)
            high, moderate, low = self.factors
            self._factors = banded(importance, (high, moderate * self._rest, low * self._rest))
        else:
            self._factors = torch.full_like(self._factors, self._rest)
        if not self._batch:
            return super().backward(inputs, labels)
        total, losses = self.clipped_sum(inputs, labels)
        mean = total / max(len(labels), 1)
        mean *= (self.clipped_sum.clipping.sensitivity / mean.norm()).clamp(max=1)
        self.clipped_sum.assign(self._noise.add_noise(mean, self.deviation()))
        return losses

    def deviation(self) -> Tensor:
        """Return z·C·M."""
        return self.channels.spread(self._factors, self._rest).double() * super().deviation()

    def spent(self, steps: int) -> tuple[float, float]:
        """Return inf: no ε is promised, whatever was requested."""
        return math.inf, math.inf

    def state(self) -> dict[str, Tensor]:
        """Return dp-sgd's state and the masks so far."""
        return super().state() | self.channels.state(self.history)

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Continue from the state."""
        super().restore(state)
        self.history = self.channels.restored(state)

    def masks(self) -> Masks:
        """Return the last mask of every epoch."""
        return self.channels.masks(SOURCE, self.history)
