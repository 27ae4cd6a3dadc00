"""The interface to models: what learners and trained models provide, and the requests that they receive. Nothing here imports torch.

Later stages use only logits, attributions and a folder. Abilities that only some models have are separate protocols,
which a stage checks with `isinstance`: attributions (`ExplainedModel`), their summaries from a single pass
(`SummarisingModel`), and a torch module (`TorchBackedModel`).

The registry of learners, and their look-up by architecture.json. Nothing here imports torch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar, cast, runtime_checkable

from mia_audit.errors import UserError, suggest
from mia_audit.explain.release import FULL, named_release, release_maps
from mia_audit.foreign_json import read_object
from mia_audit.registry import file_digest

if TYPE_CHECKING:
    import numpy as np
    from jaxtyping import Bool, Float, Int, Shaped
    from torch import Tensor, nn

    from mia_audit.models.inputs import Inputs
    from mia_audit.training.task import Records, TrainingTask


@dataclass(frozen=True)
class Compute:
    """Settings of a process: the config's compute.device, the threads, and the number of records held in memory at once."""

    device: str = "cpu"
    threads: int = 1
    micro_batch: int = 256


@dataclass(frozen=True)
class ModelSection:
    """An architecture's section of a config: its name, its model, and how the model is trained and queried (see the key
    tables in config/README.md).
    """

    name: str
    model: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    pretrained: str = "none"
    outputs: str = ""
    votes: int = 0
    code: Mapping[str, str] = field(default_factory=dict)
    """The SHA-256 of every user file that the section names."""


@dataclass(frozen=True)
class TrainedOn:
    """The pool's records, a mask of a shadow model's training records, and the number of that model.

    `persons` has the ids of the records' persons [N], if the unit is the person.
    """

    records: Records
    members: Bool[np.ndarray, " N"]
    shadow: int
    persons: Shaped[np.ndarray, " N"] | None = None


@dataclass(frozen=True)
class ExplanationRequest:
    """A request for attributions.

    `options` is the config's `explainers` section, or a family's part of it: `explain` (quantities), `explained_class`
    (`predicted` or `true`) and the options that the explainers declare. Random draws are keyed by `seed`, the record's
    number and, if given, the number of the `model` (`explain.batch.Batch`). `trained_on` is required by explainers that
    are fitted to a model's training records.
    """

    explainers: Sequence[str]
    options: Mapping[str, Any]
    seed: int
    trained_on: TrainedOn | None = None
    model: int | None = None


class Attribution(NamedTuple):
    """The key of an attribution: the explainer's name, with the form in which its maps are released, and the explained quantity."""

    explainer: str
    quantity: str


def released(
    attributions: Mapping[Attribution, Float[np.ndarray, "n ..."]], request: ExplanationRequest, records: Sequence[int]
) -> dict[Attribution, Float[np.ndarray, "n ..."]]:
    """Return attributions in every form in which they are released (`options["release"]`), under names that say so."""
    own = () if request.model is None else (request.model,)
    return {
        Attribution(named_release(explainer, release), quantity): release_maps(
            maps, release, (request.seed, "released map", *own, explainer, quantity), records
        )
        for (explainer, quantity), maps in attributions.items()
        for release in request.options.get("release", [FULL])
    }


@dataclass(frozen=True)
class Summaries:
    """Scalars per record: summaries of attributions and, if requested, `predicted` (int32), `loss` and `confidence` (float32).

    `explanations` has float32 [n] by attribution and name of the summary; `vector` is float16 [n, m].
    """

    outputs: Mapping[str, np.ndarray]
    explanations: Mapping[tuple[Attribution, str], Float[np.ndarray, "n ..."]]


class TrainedModel(Protocol):
    """A trained model, which can be queried on records."""

    def logits(self, records: Records) -> Float[np.ndarray, "n C"]:
        """Return the logits of any number of records; logarithms of probabilities count as logits."""

    def save(self, folder: Path) -> None:
        """Write everything that `Learner.load` needs into an existing, empty folder; the same model gives the same bytes."""


@runtime_checkable
class ExplainedModel(Protocol):
    """A model that computes attributions."""

    def attributions(
        self, records: Records, request: ExplanationRequest
    ) -> Mapping[Attribution, Float[np.ndarray, "n ..."]]:
        """Return the attributions of every requested explainer and quantity; UserError for an unsupported explainer."""


@runtime_checkable
class SummarisingModel(Protocol):
    """A model that reduces attributions on its device, which is faster than returning them."""

    def summaries(self, records: Records, request: ExplanationRequest, outputs: bool) -> Summaries:
        """Return the summaries of attributions and, if `outputs` are requested, predicted class, loss and confidence.

        Raises UserError if an output is not finite.
        """


@runtime_checkable
class TorchBackedModel(Protocol):
    """A model that is a torch module, for stages and explainers that need one."""

    module: nn.Module
    """The module, in eval mode and with frozen parameters."""

    def inputs(self, records: Records) -> Inputs | Tensor:
        """Return records as inputs of the module, on its device."""

    def attributions_at(
        self,
        inputs: Float[Tensor, "n ..."],
        labels: Int[np.ndarray, " n"],
        numbers: Int[np.ndarray, " n"],
        request: ExplanationRequest,
    ) -> Mapping[Attribution, Float[Tensor, "n ..."]]:
        """Return attributions at inputs of the module, on its device; random draws are keyed by the records' numbers."""


@runtime_checkable
class BuildingLearner(Protocol):
    """A learner that builds torch modules before they are trained."""

    def untrained(self) -> TorchBackedModel | None:
        """Return an untrained model; None if the learner's models are no torch modules."""


class LearnerFactory(Protocol):
    """A kind of learner, from which learners are created."""

    def __call__(self, architecture: Mapping[str, Any], compute: Compute) -> Learner:
        """Create a learner from an architecture.json. Raises UserError, which names a missing key, if the file is for another kind of learner."""

    def describe(self, section: ModelSection, pool: Mapping[str, Any]) -> dict[str, Any]:
        """Check that a model fits a pool with these metadata, and return its architecture.json.

        The keys are name, learner, model, classes and input_shape, and those from which the learner is created. Raises
        UserError, which names the config's key, if the model cannot be built or queried.
        """


class Learner(Protocol):
    """A learner, which trains models of one architecture and opens them again."""

    @property
    def environment(self) -> Mapping[str, Any]:
        """Return everything, except the task, on which a model's bytes depend (versions of libraries, device, threads), as JSON values."""

    def train(self, task: TrainingTask) -> TrainedModel:
        """Train a model on the task's members. Raises Diverged if the model has numbers that are not finite."""

    def load(self, folder: Path) -> TrainedModel:
        """Open a saved model. Raises UserError, which names the file, if it is missing, damaged or of another learner."""

    def adopt(self, path: Path, folder: Path) -> None:
        """Write the finished model in a file or folder into an existing, empty folder, in the form that `load` reads.

        Raises UserError, which names the path, if the model is not one of this learner.
        """


LEARNERS = {
    "torch-module": ("mia_audit.learners.torch_module", "TorchLearner"),
    "estimator": ("mia_audit.learners.estimators", "EstimatorLearner"),
    "script": ("mia_audit.learners.script", "ScriptLearner"),
}
"""Learners by the name in architecture.json: module and class. A module is imported when its learner is needed."""


def learner_named(name: str) -> LearnerFactory:
    """Return the learner of that name; raises UserError if there is none."""
    if name not in LEARNERS:
        raise UserError(f"unknown learner '{name}': {suggest(name, LEARNERS)}")
    module, factory = LEARNERS[name]
    return cast(LearnerFactory, getattr(import_module(module), factory))


def open_learner(path: Path, compute: Compute) -> tuple[dict[str, Any], Learner]:
    """Read an architecture.json, and return it and the learner that it names, set up with `compute`.

    Raises UserError, which names the file, if the file is missing or damaged, the learner is unknown, or the
    architecture does not suit the learner.
    """
    architecture = read_object(path, "a file that `mia-audit architecture` wrote")
    if not isinstance(architecture.get("learner"), str):
        raise UserError(f"{path}: the key 'learner' is missing; expected a file that `mia-audit architecture` wrote")
    code = architecture.get("code", {})
    if not isinstance(code, dict):
        raise UserError(f"{path}: code: expected code files and their digests")
    for file, digest in code.items():
        if digest != file_digest(file):
            raise UserError(f"{file}: changed after {path} was written; start the workflow again")
    try:
        return architecture, learner_named(architecture["learner"])(architecture, compute)
    except UserError as error:
        raise UserError(f"{path}: {error}") from None


def described(learner: str, section: ModelSection, pool: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys that architecture.json has for every learner except the built-in one. The learner adds its own keys."""
    return {
        "name": section.name,
        "learner": learner,
        "model": section.model,
        "arguments": dict(section.parameters),
        "shape": list(pool["shape"]),
        "input_shape": list(pool["shape"]),
        "classes": len(pool["classes"]),
        "outputs": section.outputs,
        "votes": section.votes,
        "code": dict(section.code),
        "reads_public": False,
    }


MakesEstimator = TypeVar("MakesEstimator", bound=Callable[..., Any])


def estimator() -> Callable[[MakesEstimator], MakesEstimator]:
    """Declare as a model the decorated function `make(**parameters)`, which returns an unfitted estimator.

    A config names it as `file.py:function`. `learners.naming` looks for the decorator in the file's text, to
    distinguish the function from a training function.
    """

    return lambda make: make
