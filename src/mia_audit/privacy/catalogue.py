"""The registry of privacy mechanisms: what one declares of itself, and what it does for one model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol, Self, TypeVar, runtime_checkable

from pydantic import PositiveInt, field_validator, model_validator

from mia_audit.registry import Registry
from mia_audit.sections import OpenSection, Options, Probability, Section, known

if TYPE_CHECKING:
    from torch import Tensor, nn

    from mia_audit.models import Inputs
    from mia_audit.privacy.masks import Masks

PerRecord = Literal["vmap", "book-keeping", "auto"]
"""How per-record gradients are computed: see `mia_audit.privacy.per_record.ClippedSum`."""

HELD = {"cpu": 2**27, "cuda": 2**32}
"""Bytes of per-record gradients held at once: on a CPU, more than this leaves the caches and costs time."""


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
    unit: str = "record"
    """Whose data the guarantee is about; the sampling rate is theirs."""
    records_per_person: int = 0
    """Records of a person that contribute to a step at most, where the unit is the person."""


class Steps(Protocol):
    """What a mechanism reads of how a model is trained."""

    @property
    def epochs(self) -> int:
        """Expected passes over the training set."""

    @property
    def batch(self) -> int:
        """Expected records per step."""

    @property
    def per_record(self) -> PerRecord | None:
        """How per-record gradients are computed, `vmap` where it is not said."""


@dataclass(frozen=True)
class Job:
    """One model to train: its training set's size, its budget (inf without privacy), and the records held in memory at once."""

    model: nn.Module
    records: int
    epsilon: float
    training: Steps
    micro_batch: int
    key: bytes
    """256 bits that everything random in this training comes from: see `mia_audit.privacy.noise.training_key`."""
    public: tuple[Inputs | Tensor, Tensor] | None = None
    """Inputs and labels of the pool's public records, for mechanisms that read them."""
    persons: Tensor | None = None
    """The person of every record of the training set [n], numbered from 0 by their first records, where the guarantee is theirs."""
    summands: int = 1
    """Normal numbers that each one of the noise is the sum of; `mia_audit.privacy.noise.RELEASED` for a model that is released."""


@runtime_checkable
class Foreseeable(Protocol):
    """A mechanism whose cost is known before a model is set up, as the ledger of a data set needs it."""

    def foresee(self, section: Mechanism, epsilon: float, training: Steps, units: int) -> tuple[Terms, int]:
        """Return the terms of a training on so many records (persons) and its number of steps."""


class Protection(Protocol):
    """How one model's records are drawn, and how their gradients become the optimizer's."""

    terms: Terms
    steps_per_epoch: int

    def batches(self) -> Iterator[Tensor]:
        """Draw one epoch of batches: indices into the training set, possibly none."""

    def backward(self, inputs: Tensor, labels: Tensor, *persons: Tensor) -> Tensor:
        """Set every trainable parameter's `grad` from a batch; return the sum of the records' losses, for the auditor alone.

        `persons` is given where the job has them: the person of every record of the batch.
        """

    def state(self) -> dict[str, Tensor]:
        """Return what the epochs to come depend on, as a resumed training needs it: of random streams the counters, no key."""

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Go on from a state, as if the epochs before it had been drawn here."""

    def spent(self, steps: int) -> tuple[float, float]:
        """Return ε after that many steps by the mechanism's accountant, and by the RDP accountant."""

    def masks(self) -> Masks | None:
        """Return the masks of the noise in every epoch; None where it has none."""


class Mechanism(OpenSection):
    """How training protects its records; the other keys are those that the mechanism declares."""

    mechanism: str = ""
    """Registered mechanism, or `file.py:function`; its own name when left out."""
    delta: Probability = 1e-5
    """δ of every budget."""

    @classmethod
    def members(cls) -> dict[str, Options]:
        """Return the options of every registered mechanism."""
        return {name: mechanisms[name].options for name in mechanisms.names()}

    @field_validator("mechanism")
    @classmethod
    def _mechanism(cls, value: str) -> str:
        return known(mechanisms, value)

    @model_validator(mode="after")
    def _options(self) -> Self:
        kind = mechanisms[known(mechanisms, self.mechanism)]
        self._resolve(f"'{self.mechanism}'", kind.options)
        return self

    @property
    def kind(self) -> MechanismKind:
        """What the mechanism declares of itself."""
        return mechanisms[self.mechanism]

    @property
    def by_person(self) -> bool:
        """Whether the guarantee is about persons, with all of their records."""
        return self.read(Unit).unit == "person"


Factory = Callable[[Mechanism, Job], Protection]
"""Sets a mechanism up for one model; raises UserError where model, training or budget do not go together."""

FactoryOf = TypeVar("FactoryOf", bound=Factory)


@dataclass(frozen=True)
class MechanismKind:
    """A mechanism: how it is set up, the keys that it reads, and what others have to know of it.

    One that is not `private` has no budget. `no_guarantee` says, of a mechanism whose settings are named by an ε, why
    that ε is nominal and nothing is promised; its section has to acknowledge that. `per_record` mechanisms compute a
    gradient for every record, which not every model has. One that `steps` acts on the steps of the built-in loop, so that it
    protects the models of no other learner; one whose guarantee is `claimed` leaves it to such a learner.
    `reads_public_records` says of a section whether the pool's public records are read.
    """

    protect: Factory
    options: Options = ()
    private: bool = True
    no_guarantee: str = ""
    per_record: bool = True
    reads_public_records: Callable[[Mechanism], bool] = lambda section: False
    steps: bool = True
    claimed: bool = False

    def __call__(self, section: Mechanism, job: Job) -> Protection:
        """Set the mechanism up for one model."""
        return self.protect(section, job)


mechanisms: Registry[MechanismKind] = Registry("mechanism", "mia_audit.privacy.mechanisms", "-")
"""Mechanisms by name; their files import torch where they compute, so that configs are read without it."""


class Unit(Section):
    """The keys of mechanisms that protect persons with all of their records."""

    unit: Literal["record", "person"] | None = None
    """Whose data the guarantee is about; the data set's unit when left out."""
    records_per_person: PositiveInt = 8
    """`unit: person`: records of a person that contribute to a step at most, drawn anew each step."""


class Acknowledgement(Section):
    """The key of mechanisms that guarantee nothing."""

    acknowledge_no_guarantee: bool = False
    """true says that you know that it promises no privacy, whatever its ε is called."""


def mechanism(
    name: str = "",
    options: Options = (),
    private: bool = True,
    no_guarantee: str = "",
    per_record: bool = True,
    reads_public_records: Callable[[Mechanism], bool] = lambda section: False,
    steps: bool = True,
    claimed: bool = False,
) -> Callable[[FactoryOf], FactoryOf]:
    """Register the decorated class, or function, as a mechanism; see `MechanismKind`."""

    def decorate(protect: FactoryOf) -> FactoryOf:
        declared: Options = (*options, Acknowledgement) if no_guarantee else options
        kind = MechanismKind(protect, declared, private, no_guarantee, per_record, reads_public_records, steps, claimed)
        mechanisms.register(name, protect)(kind)
        return protect

    return decorate
