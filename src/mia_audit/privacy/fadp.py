"""`fadp`: dp-sgd with smaller noise on important channels, and with a valid guarantee.

It follows the idea of FADP (noise by feature importance); `fadp-literal` is FADP as published.

`fadp-literal`: noise by feature importance as the FADP paper publishes it, for reproduction. It guarantees nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Literal, Self

from pydantic import Field, model_validator

from mia_audit.errors import UserError
from mia_audit.privacy.catalogue import Acknowledgement, Job, Mechanism, Steps, Terms, Unit, mechanism
from mia_audit.privacy.mechanisms import DPSGD, LARGEST_NORM, LEAST_NORM, Noise
from mia_audit.sections import Section, is_unset

if TYPE_CHECKING:
    from torch import Tensor

    from mia_audit.privacy.masks import Masks
    from mia_audit.privacy.noise import Clipping

SOURCES = {
    "public": "public records",
    "renewed": "public records, by the weights at the start of each epoch",
    "past": "past noisy gradients",
}
Factor = Annotated[float, Field(ge=1e-3, le=1)]
Clip = Annotated[float, Field(ge=LEAST_NORM, le=LARGEST_NORM)]


class GroupNoise(Noise):
    """The keys of mechanisms whose sensitivity may be divided among groups of parameters."""

    group_clips: tuple[Clip, Clip, Clip, Clip] | None = Field(None, exclude_if=is_unset)
    """Clipping norms of separately clipped groups of parameters: channels of high, moderate and low importance, and all other parameters.

    They are multiples of clip_norm (`clipping: flat`).
    """

    @model_validator(mode="after")
    def _flat(self) -> Self:
        if self.group_clips and self.clipping != "flat":
            raise ValueError(
                f"group_clips: these are multiples of clip_norm, but clipping is {self.clipping}: set clipping: flat"
            )
        if self.group_clips and min(self.group_clips) * self.clip_norm < LEAST_NORM:
            raise ValueError(f"group_clips: times clip_norm, {self.clip_norm:g}, each must be at least {LEAST_NORM:g}")
        return self


class Factors(Section):
    """The key of mechanisms whose noise depends on the importance of channels."""

    factors: tuple[Factor, Factor, Factor] = (0.6, 0.8, 1.0)
    """Factors of the noise on channels of high, moderate and low importance."""


class Importance(Section):
    """The source of the importance of channels."""

    importance: Literal["public", "renewed", "past"] = "public"
    """Grad-CAM's channel weights on the public records, computed once (`public`) or at the start of every epoch
    (`renewed`); or the previous epoch's noisy gradients (`past`).
    """


def reads_public_records(section: Mechanism) -> bool:
    """Return whether importance is computed from the pool's public records."""
    return section.read(Importance).importance != "past"


@mechanism("fadp", options=(GroupNoise, Unit, Factors, Importance), reads_public_records=reads_public_records)
class FADP(DPSGD):
    """Scale, clip, noise, unscale: u = D⁻¹g is clipped at C, S = Σu + N(0, z²C²I), and the update is D S / B.

    D holds a factor M per parameter: the factor of its channel's importance band, or 1 if the parameter writes no
    channel, divided by the geometric mean of all factors. The mask never depends on the private records directly, so
    each step is a Gaussian mechanism with multiplier z, as the accountant assumes. The noise of a group is z·C·M.

    D clip(D⁻¹g) is g times the clipping factor of ‖D⁻¹g‖, so the code scales norms and noise, never gradients.

    If every group j has its own clipping norm C_j, the gradient's part in group j is clipped at C_j, and its noise is
    s_j = z·C_j·M_j·√(Σ_h M_h⁻²). The noise multiplier of all groups together, (Σ_j C_j²/s_j²)^(−1/2), is then z again.
    """

    noise = GroupNoise

    def __init__(self, section: Mechanism, job: Job) -> None:
        import torch

        from mia_audit.privacy.masks import ChannelNoise

        super().__init__(section, job)
        importance = section.read(Importance).importance
        self.factors = section.read(Factors).factors
        self.channels = ChannelNoise(job.model, f"mechanism '{section.mechanism}'")
        self.history: list[tuple[Tensor, float]] = []
        self._keeps, self._renews = importance == "past", importance == "renewed"
        self.group_clips = section.read(GroupNoise).group_clips
        self._past: Tensor | None = None
        nothing_yet = torch.zeros(self.channels.count, device=self.channels.device)
        self._set(nothing_yet if self._keeps else self._public_importance())

    @classmethod
    def foresee(cls, section: Mechanism, epsilon: float, training: Steps, units: int) -> tuple[Terms, int]:
        """Calibrate as dp-sgd does. For any mask and groups, a record moves the sum by at most 1/z, in units of the noise's deviation."""
        terms, steps = super().foresee(section, epsilon, training, units)
        clips = section.read(GroupNoise).group_clips
        clipping = f"{terms.clipping} × {'/'.join(f'{clip:g}' for clip in clips)} by group" if clips else terms.clipping
        return replace(terms, noise_mask=SOURCES[section.read(Importance).importance], clipping=clipping), steps

    def _public_importance(self) -> Tensor:
        if self.job.public is None or not len(self.job.public[1]):
            raise UserError(
                "mechanism 'fadp' computes its mask from public records, but there are none: set datasets.*.public to a number of records,"
                " or choose importance: past"
            )
        return self.channels.importance(*self.job.public, self.job.micro_batch)

    def _set(self, importance: Tensor) -> None:
        from mia_audit.privacy.masks import banded

        self.importance = importance
        if self.group_clips:
            self._set_groups(importance, self.group_clips)
            return
        self.mask_of_channels, self.mask_of_rest = self.channels.normalised(banded(importance, self.factors))
        self.mask = self.channels.spread(self.mask_of_channels, self.mask_of_rest)
        self.clipped_sum.scale_norms(1 / self.mask)

    def _set_groups(self, importance: Tensor, clips: tuple[float, float, float, float]) -> None:
        """Clip every group g separately, and scale its noise by C_g/C·M_g·√(Σ_h M_h⁻²), where h runs over the groups that have parameters."""
        import torch

        from mia_audit.privacy.masks import bands
        from mia_audit.privacy.noise import flat

        rest = len(self.factors)
        group_of = self.channels.spread(bands(importance), rest)
        scale = group_of.new_tensor([*self.factors, 1.0]).double()
        known: list[int] = torch.unique(group_of).long().tolist()
        masks = scale.new_tensor(clips) * scale * scale[known].pow(-2).sum().sqrt()
        self.mask_of_channels, self.mask_of_rest = masks[bands(importance)], float(masks[rest])
        self.mask = masks[group_of.long()].float()
        norm = self.clipped_sum.clipping.sensitivity
        self.clipped_sum.clip_groups(
            [((group_of == group).nonzero().squeeze(1), flat(clips[group] * norm)) for group in known]
        )

    def batches(self) -> Iterator[Tensor]:
        """Renew the mask if configured, using only releases of earlier epochs; then draw as in dp-sgd."""
        if self._renews and self.history:
            self._set(self._public_importance())
        if self._past is not None:
            # in scaled coordinates the noise is the same everywhere, so large values come from gradients
            self._set(self.channels.by_channel(self._past))
            self._past = None
        self.history.append((self.mask_of_channels, self.mask_of_rest))
        yield from super().batches()

    def deviation(self) -> Tensor:
        """Return z·C·M."""
        return self.mask.double() * super().deviation()

    def released(self, noisy: Tensor) -> None:
        """Keep the noisy sum, which is already public, for the next epoch's mask."""
        if self._keeps:
            scaled = noisy / self.mask
            self._past = scaled if self._past is None else self._past + scaled

    def state(self) -> dict[str, Tensor]:
        """Return dp-sgd's state, the masks so far, the importance behind the current mask, and the noisy gradients for the next mask."""
        past = {} if self._past is None else {"past": self._past}
        return super().state() | self.channels.state(self.history) | {"importance": self.importance} | past

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Continue from the state, with its mask: a process that resumes a release starts from other initial weights."""
        super().restore(state)
        self.history = self.channels.restored(state)
        if "importance" in state:  # a checkpoint of an earlier version has none
            self._set(state["importance"].to(self.mask.device))
        self._past = state["past"].to(self.mask.device) if "past" in state else None

    def masks(self) -> Masks:
        """Return the mask of every epoch."""
        return self.channels.masks(self.terms.noise_mask, self.history)


SOURCE = "the private batch itself"
NO_GUARANTEE = (
    "the mask that scales the noise is computed from the private batch, so one record changes the noise, and can lower it below"
    " the level that the accountant requires"
)


class LiteralNoise(Noise):
    """The keys of the noise of the paper."""

    clipping: Literal["automatic", "flat", "batch"] = "automatic"  # type: ignore[assignment]  # one more than dp-sgd
    """As in dp-sgd, or `batch`: the part of a batch's mean gradient that writes a feature map is clipped at clip_norm, every map and
    all other parameters together, and noise is added (Algorithm 2, line 10).

    With K maps a record may move that gradient by 2√(K + 1) clip_norm.
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
    of the mask. The paper instead clips every feature map of the batch's gradient (`clipping: batch`) and calibrates one step (`calibration:
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

        from mia_audit.privacy.noise import Clipping

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
        norm = self.clipped_sum.clipping.sensitivity
        rest = float(norm / (mean * self.channels.spread(torch.zeros_like(self._factors))).norm().clamp(min=norm))
        mean *= self.channels.spread(norm / self.channels.by_channel(mean).clamp(min=norm), rest)
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
