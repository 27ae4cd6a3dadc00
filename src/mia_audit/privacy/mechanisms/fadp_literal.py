"""`fadp-literal`: noise by feature importance as the FADP paper publishes it, for reproduction. It guarantees nothing."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from mia_audit.errors import UserError
from mia_audit.privacy.catalogue import Acknowledgement, Job, Mechanism, mechanism
from mia_audit.privacy.mechanisms.dp_sgd import DPSGD, Noise
from mia_audit.privacy.mechanisms.fadp import Factors

if TYPE_CHECKING:
    from torch import Tensor

    from mia_audit.privacy.masks import Masks

SOURCE = "the private batch itself"
NO_GUARANTEE = (
    "the mask that scales its noise is computed from the private batch, so that one record changes the noise itself,"
    " and scales it below what the accountant asks for"
)


@mechanism("fadp-literal", options=(Noise, Factors), no_guarantee=NO_GUARANTEE)
class FADPLiteral(DPSGD):
    """dp-sgd whose noise is multiplied by a mask of factors ≤ 1, computed from the private batch of every step (Algorithm 2).

    Noise is calibrated as for dp-sgd at the nominal ε, per record and over all steps, where the paper clips the batch's
    gradient and calibrates one step: what remains is what the mask does. No ε follows from it.
    """

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
        self._factors = torch.ones(self.channels.count, dtype=torch.float64, device=self.channels.device)

    def batches(self) -> Iterator[Tensor]:
        """Draw as dp-sgd does; of an epoch's masks the last is kept."""
        yield from super().batches()
        self.history.append((self._factors, 1.0))

    def backward(self, inputs: Tensor, labels: Tensor, *persons: Tensor) -> Tensor:
        """Compute the mask from the batch before anything else; an empty batch has none."""
        import torch

        from mia_audit.privacy.masks import banded

        if len(labels):
            importance = self.channels.importance(inputs, labels, self.job.micro_batch)
            self._factors = banded(importance, self.factors)
        else:
            self._factors = torch.ones_like(self._factors)
        return super().backward(inputs, labels)

    def deviation(self) -> Tensor:
        """Return z·C·M."""
        return self.channels.spread(self._factors).double() * super().deviation()

    def spent(self, steps: int) -> tuple[float, float]:
        """No ε is promised, whatever was asked for."""
        return math.inf, math.inf

    def state(self) -> dict[str, Tensor]:
        """As dp-sgd, and the masks so far."""
        return super().state() | self.channels.state(self.history)

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Go on after the state."""
        super().restore(state)
        self.history = self.channels.restored(state)

    def masks(self) -> Masks:
        """Return the last mask of every epoch."""
        return self.channels.masks(SOURCE, self.history)
