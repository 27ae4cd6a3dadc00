"""`none`: plain mini-batch training, the model that nothing protects."""

import math
from collections.abc import Iterator, Mapping

import torch
import torch.nn.functional as F
from torch import Tensor

from mia_audit.compute.memory import Halving
from mia_audit.config.schema import Mechanism
from mia_audit.training.catalogue import Job, Terms, generator_for, mechanisms


class Unprotected:
    """Shuffled mini-batches, the mean of their gradients."""

    def __init__(self, section: Mechanism, job: Job) -> None:
        self.job = job
        self.steps_per_epoch = math.ceil(job.records / job.training.batch)
        rate = min(1.0, job.training.batch / job.records)
        self.terms = Terms(0.0, 0.0, rate, accountant="none", sampling="shuffled", clipping="none")
        self._draws = generator_for(job, "batches")
        self._at_once = Halving(job.micro_batch)

    def batches(self) -> Iterator[Tensor]:
        """Cut a random order of the training set into batches."""
        yield from torch.split(torch.randperm(self.job.records, generator=self._draws), self.job.training.batch)

    def backward(self, inputs: Tensor, labels: Tensor) -> Tensor:
        """Set `grad` to the gradient of the mean loss, accumulated over micro-batches."""
        return self._at_once(lambda size: self._accumulated(inputs, labels, size))

    def _accumulated(self, inputs: Tensor, labels: Tensor, size: int) -> Tensor:
        self.job.model.zero_grad()
        losses = inputs.new_zeros(())
        for records, truth in zip(torch.split(inputs, size), torch.split(labels, size), strict=True):
            loss = F.cross_entropy(self.job.model(records), truth, reduction="sum")
            (loss / len(labels)).backward()  # type: ignore[no-untyped-call]
            losses += loss.detach()
        return losses

    def state(self) -> dict[str, Tensor]:
        """The stream of the orders."""
        return {"draws": self._draws.get_state()}

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Go on with the orders that come after the state's."""
        self._draws.set_state(state["draws"])

    def spent(self, steps: int) -> tuple[float, float]:
        """Nothing is promised."""
        return math.inf, math.inf

    def masks(self) -> None:
        """There is no noise."""


mechanisms.register("none")(Unprotected)
