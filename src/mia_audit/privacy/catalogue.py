"""The registry of privacy mechanisms: the declaration of a mechanism, and its interface for training one model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol, Self, TypeVar, runtime_checkable

from pydantic import PositiveInt, field_validator, model_validator

from mia_audit.registry import Registry
from mia_audit.sections import OpenSection, Options, Probability, Section, known

if TYPE_CHECKING:
    from torch import Tensor, nn

    from mia_audit.models.inputs import Inputs
    from mia_audit.privacy.masks import Masks

PerRecord = Literal["vmap", "book-keeping", "auto"]
"""How per-record gradients are computed: see `mia_audit.privacy.per_record.ClippedSum`."""

HELD = {"cpu": 2**27, "cuda": 2**32}
"""Bytes of per-record gradients held at once. On a CPU, more would exceed the caches and take longer."""


@dataclass(frozen=True)
class Terms:
    """The terms with which a mechanism was set up, in the form of training.parquet."""

    delta: float
    noise_multiplier: float
    sampling_rate: float
    accountant: str
    sampling: str
    clipping: str
    noise_mask: str = "none"
    """The source of the noise's mask."""
    unit: str = "record"
    """The unit of the guarantee and of the sampling rate."""
    records_per_person: int = 0
    """Largest number of a person's records in a step, if the unit is the person."""


class Steps(Protocol):
    """The training parameters that a mechanism reads."""

    @property
    def epochs(self) -> int:
        """Expected passes over the training set."""

    @property
    def batch(self) -> int:
        """Expected records per step."""

    @property
    def per_record(self) -> PerRecord | None:
        """How per-record gradients are computed; `auto` if unset."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """One model to train: the size of its training set, its budget (inf without privacy), and the number of records in memory at once."""

    model: nn.Module
    records: int
    epsilon: float
    training: Steps
    micro_batch: int
    key: bytes
    """256 bits from which all randomness of this training run is derived: see `mia_audit.privacy.noise.training_key`."""
    public: tuple[Inputs | Tensor, Tensor] | None = None
    """Inputs and labels of the pool's public records, for mechanisms that read them."""
    persons: Tensor | None = None
    """The person of every record of the training set [n], numbered from 0 in the order of their first records, if the guarantee is for persons."""
    summands: int = 1
    """Number of normal variables summed for each number of the noise; `mia_audit.privacy.noise.RELEASED` for a released model."""
    known: dict[Any, dict[Any, Any]] = field(default_factory=dict)
    """Lengths of passes that were decided for earlier models of the same kind (`mia_audit.privacy.per_record.Lengths`)."""


@runtime_checkable
class Foreseeable(Protocol):
    """A mechanism whose cost is known before a model is set up. The ledger of a data set requires this."""

    def foresee(self, section: Mechanism, epsilon: float, training: Steps, units: int) -> tuple[Terms, int]:
        """Return the terms of training on this number of records (persons), and the number of steps.

        Here the noise multiplier is calibrated for ε, unless the section states it.
        """


class Protection(Protocol):
    """The interface for training one model: it draws batches, and turns their gradients into those for the optimizer."""

    terms: Terms
    steps_per_epoch: int

    def batches(self) -> Iterator[Tensor]:
        """Draw one epoch of batches: indices into the training set, possibly none."""

    def backward(self, inputs: Tensor, labels: Tensor, *persons: Tensor) -> Tensor:
        """Set every trainable parameter's `grad` from a batch; return the sum of the records' losses, which only the auditor may see.

        If the job has persons, `persons` is the person of every record in the batch.
        """

    def state(self) -> dict[str, Tensor]:
        """Return the state from which training resumes: counters of random streams, but no key."""

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Restore a state, as if this object had drawn the epochs before it."""

    def spent(self, steps: int) -> tuple[float, float]:
        """Return ε after that many steps by the mechanism's accountant, and by the RDP accountant."""

    def masks(self) -> Masks | None:
        """Return the masks of the noise in every epoch; None without masks."""


class Mechanism(OpenSection):
    """How training protects its records. The mechanism declares further keys."""

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
        self._resolve(f"'{self.mechanism}' does not read", kind.options)
        return self

    @property
    def kind(self) -> MechanismKind:
        """The mechanism's declaration."""
        return mechanisms[self.mechanism]

    @property
    def by_person(self) -> bool:
        """Whether the guarantee is about persons, with all of their records."""
        return self.read(Unit).unit == "person"


Factory = Callable[[Mechanism, Job], Protection]
"""Sets up a mechanism for one model. Raises UserError if model, training and budget do not fit together."""

FactoryOf = TypeVar("FactoryOf", bound=Factory)


@dataclass(frozen=True)
class MechanismKind:
    """A mechanism: its set-up, the keys that it reads, and its traits.

    A mechanism that is not `private` has no budget. `no_guarantee` is the reason why the ε in the names of its settings
    is only nominal; its section must acknowledge this. `per_record` mechanisms compute a gradient for every record,
    which not every model supports. A mechanism with `steps` acts on the steps of the built-in loop, and so cannot
    protect other learners' models; a mechanism with `claimed` leaves the guarantee to such a learner.
    `reads_public_records` returns whether a section reads the pool's public records.
    """

    protect: Factory
    options: Options = ()
    private: bool = True
    no_guarantee: str = ""
    per_record: bool = True
    reads_public_records: Callable[[Mechanism], bool] = lambda section: False
    steps: bool = True
    claimed: bool = False


mechanisms: Registry[MechanismKind] = Registry("mechanism", "mia_audit.privacy.mechanisms", "mia_audit.privacy.fadp")
"""Mechanisms by name. Their files import torch only inside functions, so that configs can be read without torch."""


class Unit(Section):
    """The keys of mechanisms that protect persons with all of their records."""

    unit: Literal["record", "person"] | None = None
    """The unit of the guarantee; the data set's unit when left out."""
    records_per_person: PositiveInt = 8
    """`unit: person`: largest number of a person's records in a step; they are drawn anew in every step."""


class Acknowledgement(Section):
    """The key of mechanisms that guarantee nothing."""

    acknowledge_no_guarantee: bool = False
    """`true` acknowledges that the mechanism promises no privacy, whatever ε is in the names of its settings."""


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
        kind = MechanismKind(
            protect=protect,
            options=declared,
            private=private,
            no_guarantee=no_guarantee,
            per_record=per_record,
            reads_public_records=reads_public_records,
            steps=steps,
            claimed=claimed,
        )
        mechanisms.register(name, protect)(kind)
        return protect

    return decorate
