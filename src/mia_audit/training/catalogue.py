"""The registry of privacy mechanisms, and what a mechanism does for one model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from mia_audit.registry import Registry

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

    from mia_audit.config.schema import Mechanism, Training


@dataclass(frozen=True)
class Terms:
    """What a mechanism was set up with, as training.parquet states it."""

    delta: float
    noise_multiplier: float
    sampling_rate: float
    accountant: str
    sampling: str
    clipping: str


@dataclass(frozen=True)
class Job:
    """One model to train: its training set's size, its budget (inf without privacy), and the records held in memory at once."""

    model: nn.Module
    records: int
    epsilon: float
    training: Training
    micro_batch: int
    key: tuple[int | str, ...]


class Protection(Protocol):
    """How one model's records are drawn, and how their gradients become the optimizer's."""

    terms: Terms
    steps_per_epoch: int

    def batches(self) -> Iterator[Tensor]:
        """Draw one epoch of batches: indices into the training set, possibly none."""

    def backward(self, inputs: Tensor, labels: Tensor) -> Tensor:
        """Set every trainable parameter's `grad` from a batch; return the sum of the records' losses."""

    def state(self) -> dict[str, Tensor]:
        """Return what the epochs to come depend on (random streams above all), as a resumed training needs it."""

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Go on from a state, as if the epochs before it had been drawn here."""

    def spent(self, steps: int) -> tuple[float, float]:
        """Return ε after that many steps by the mechanism's accountant, and by the RDP accountant."""


class MechanismFactory(Protocol):
    """Sets a mechanism up for one model; raises UserError where model, training or budget do not go together."""

    def __call__(self, section: Mechanism, job: Job) -> Protection: ...


mechanisms: Registry[MechanismFactory] = Registry("mechanism", "mia_audit.training.mechanisms", "-")


def generator_for(job: Job, purpose: str, device: torch.device | str = "cpu") -> torch.Generator:
    """Return the job's stream of random numbers for a purpose ("batches", "noise")."""
    from mia_audit.seeds import torch_generator

    return torch_generator(*job.key, purpose, device=str(device))
