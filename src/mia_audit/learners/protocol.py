"""The interface to models: what learners and trained models provide, and the requests that they receive. Nothing here imports torch.

Stages above see logits, attributions and a folder. What only some models can do is a protocol of its own, which a stage asks
for by `isinstance`: attributions (`ExplainedModel`), summaries of them in the pass that computes them (`SummarisingModel`),
and a torch module (`TorchBackedModel`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

if TYPE_CHECKING:
    import numpy as np
    from jaxtyping import Bool, Float, Int, Shaped
    from torch import Tensor, nn

    from mia_audit.models import Inputs
    from mia_audit.training.task import Records, TrainingTask


@dataclass(frozen=True)
class Compute:
    """How a process computes: the config's compute.device, its threads, and the records held in memory at once."""

    device: str = "cpu"
    threads: int = 1
    batch: int = 256
    minutes: float = 0.0
    """How long a user's code may take to train a model, or to answer once; 0: no limit."""


@dataclass(frozen=True)
class ModelSection:
    """What a config says of an architecture: its name, its model, and what trains and asks it; see the key table of configs."""

    name: str
    model: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    pretrained: str = "none"
    train: str = ""
    predict: str = ""
    outputs: str = ""
    votes: int = 0
    code: Mapping[str, str] = field(default_factory=dict)
    """The SHA-256 of every file of the user's own that the section names."""


@dataclass(frozen=True)
class TrainedOn:
    """The pool's records, which of them trained a model, and the number of that shadow model.

    `persons` are the ids of the records' persons [N] where the unit is the person.
    """

    records: Records
    members: Bool[np.ndarray, " N"]
    shadow: int
    persons: Shaped[np.ndarray, " N"] | None = None


@dataclass(frozen=True)
class ExplanationRequest:
    """Which attributions are asked for.

    `options` are the config's `explainers` section or a family's part of it: `explain` (quantities), `explained_class`
    (`predicted` or `true`) and the options that the explainers declare. Random draws are keyed by `seed`, the number of the
    `model` where it is given (`explain.randomness`), and the record's number. `trained_on` is needed by explainers that are
    fitted to a model's training records.
    """

    explainers: Sequence[str]
    options: Mapping[str, Any]
    seed: int
    trained_on: TrainedOn | None = None
    model: int | None = None


class Attribution(NamedTuple):
    """What identifies an attribution: the explainer's name and the quantity explained."""

    explainer: str
    quantity: str


@dataclass(frozen=True)
class Summaries:
    """Scalars per record: `predicted` int32, `loss` and `confidence` float32 where asked for; and summaries of attributions.

    `explanations` hold float32 [n] by attribution and name of the summary.
    """

    outputs: Mapping[str, np.ndarray]
    explanations: Mapping[tuple[Attribution, str], Float[np.ndarray, " n"]]


class TrainedModel(Protocol):
    """A model that answers records."""

    def logits(self, records: Records) -> Float[np.ndarray, "n C"]:
        """Return the logits of any number of records, or logarithms of probabilities."""

    def save(self, folder: Path) -> None:
        """Write all that `Learner.load` needs into an existing, empty folder; the same model gives the same bytes."""


@runtime_checkable
class ExplainedModel(Protocol):
    """A model with attributions of its own."""

    def attributions(
        self, records: Records, request: ExplanationRequest
    ) -> Mapping[Attribution, Float[np.ndarray, "n ..."]]:
        """Return the attributions of every explainer and quantity asked for; UserError for an explainer it does not know."""


@runtime_checkable
class SummarisingModel(Protocol):
    """A model that reduces attributions where they are computed, quicker than by handing them over."""

    def summaries(self, records: Records, request: ExplanationRequest, outputs: bool) -> Summaries:
        """Return the summaries of attributions and, where `outputs` are asked for, predicted class, loss and confidence.

        Raises UserError where an output is not finite.
        """


@runtime_checkable
class TorchBackedModel(Protocol):
    """A model that is a torch module, for stages and explainers that need one."""

    module: nn.Module
    """In eval mode, with frozen parameters."""

    def inputs(self, records: Records) -> Inputs | Tensor:
        """Return records as the module takes them, on its device."""

    def attributions_at(
        self,
        inputs: Float[Tensor, "n ..."],
        labels: Int[np.ndarray, " n"],
        numbers: Int[np.ndarray, " n"],
        request: ExplanationRequest,
    ) -> Mapping[Attribution, Float[Tensor, "n ..."]]:
        """Return attributions at inputs of the module, on its device; random draws are keyed by the records' numbers."""


@runtime_checkable
class AdoptingLearner(Protocol):
    """A learner that takes over finished models which others stored."""

    def adopt(self, path: Path, folder: Path) -> None:
        """Write the finished model in a file or folder into an existing, empty folder, as `load` opens it.

        Raises UserError, which names the path, where it is no such model.
        """


class LearnerFactory(Protocol):
    """A class of learners."""

    def __call__(self, architecture: Mapping[str, Any], compute: Compute) -> Learner:
        """Open a learner for an architecture.json; UserError, which names a key, where the architecture is not one of its own."""

    def describe(self, section: ModelSection, pool: Mapping[str, Any]) -> dict[str, Any]:
        """Check that a model fits a pool, whose metadata are given, and return its architecture.json.

        It has the keys name, learner, model, classes and input_shape, and all that opening the learner takes. Raises UserError,
        which names the config's key, where the model cannot be built or asked.
        """


class Learner(Protocol):
    """What trains models of one architecture and opens them again."""

    @property
    def environment(self) -> Mapping[str, Any]:
        """What a model's bytes depend on beside its task (versions of libraries, device, threads), as JSON holds it."""

    def train(self, task: TrainingTask) -> TrainedModel:
        """Train a model on the task's members; raises Diverged where its numbers are not finite."""

    def load(self, folder: Path) -> TrainedModel:
        """Open a model that was saved; a missing, damaged or foreign file is a UserError that names it."""
