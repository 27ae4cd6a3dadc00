"""`none`: plain mini-batch training without protection."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from mia_audit.privacy.catalogue import Job, Mechanism, Steps, Terms, mechanism

if TYPE_CHECKING:
    from torch import Tensor


@mechanism("none", private=False, per_record=False, steps=False)
class Unprotected:
    """Plain training on shuffled mini-batches with the mean gradient of each."""

    def __init__(self, section: Mechanism, job: Job) -> None:
        from mia_audit.privacy.noise import Stream
        from mia_audit.runtime.memory import AdaptiveBatchSize

        self.job = job
        self.terms, steps = self.foresee(section, job.epsilon, job.training, job.records)
        self.steps_per_epoch = steps // job.training.epochs
        self._draws = Stream(job.key, "batches")
        self._at_once = AdaptiveBatchSize(job.micro_batch)

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
        """Set `grad` to the gradient of the mean loss, accumulated over micro-batches."""
        return self._at_once(lambda size: self._accumulated(inputs, labels, size))

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
