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
    from mia_audit.models import Inputs
    from mia_audit.training.masks import Masks


@dataclass(frozen=True)
class Terms:
    """What a mechanism was set up with, as training.parquet states it."""

    delta: float
    noise_multiplier: float
    sampling_rate: float
    accountant: str
    sampling: str
    clipping: str
    noise_mask: str = "none"
    """What the noise's mask is computed from."""


@dataclass(frozen=True)
class Job:
    """One model to train: its training set's size, its budget (inf without privacy), and the records held in memory at once."""

    model: nn.Module
    records: int
    epsilon: float
    training: Training
    micro_batch: int
    key: tuple[int | str, ...]
    public: tuple[Inputs | Tensor, Tensor] | None = None
    """Inputs and labels of the pool's public records, for mechanisms that read them."""


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

    def masks(self) -> Masks | None:
        """Return the masks of the noise in every epoch; None where it has none."""


class MechanismFactory(Protocol):
    """Sets a mechanism up for one model; raises UserError where model, training or budget do not go together."""

    def __call__(self, section: Mechanism, job: Job) -> Protection: ...


mechanisms: Registry[MechanismFactory] = Registry("mechanism", "mia_audit.training.mechanisms", "-")


@dataclass(frozen=True)
class Traits:
    """What the config and the report have to know of a mechanism without importing it.

    `keys` are those of its section that other mechanisms do not read. `no_guarantee` says, of a mechanism whose settings
    are named by an ε, why that ε is nominal and nothing is promised.
    """

    keys: frozenset[str] = frozenset()
    no_guarantee: str = ""


TRAITS = {
    "fadp": Traits(frozenset({"factors", "importance"})),
    "fadp-literal": Traits(
        frozenset({"factors", "acknowledge_no_guarantee"}),
        "the mask that scales its noise is computed from the private batch, so that one record changes the noise itself,"
        " and scales it below what the accountant asks for",
    ),
}
"""Mechanisms of which there is more to know than of dp-sgd."""

OWN_KEYS: frozenset[str] = frozenset().union(*(known.keys for known in TRAITS.values()))
"""Keys of a mechanism's section that only some mechanisms read."""


def traits(mechanism: str) -> Traits:
    """Return what is to know of a mechanism, by its registered name."""
    return TRAITS.get(mechanism, Traits())


def generator_for(job: Job, purpose: str, device: torch.device | str = "cpu") -> torch.Generator:
    """Return the job's stream of random numbers for a purpose ("batches", "noise")."""
    from mia_audit.seeds import torch_generator

    return torch_generator(*job.key, purpose, device=str(device))
