"""The registry of explainers, and their interface. Neither this file nor the import of a member's file imports torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mia_audit.errors import UserError
from mia_audit.explain.model_kinds import Kind, kind_of
from mia_audit.registry import Registry
from mia_audit.sections import Options

if TYPE_CHECKING:
    from jaxtyping import Float
    from torch import Tensor

    from mia_audit.explain.batch import Batch
    from mia_audit.explain.shapley.box import Box, ByQuantity

    OfBox = Callable[[Box, Mapping[str, Any]], ByQuantity]
    Attribute = Callable[[Batch, Mapping[str, Any]], dict[str, Float[Tensor, "B ..."]]]

GRADIENT = "gradient"
"""The family of explainers that read `Batch.gradients` and share the pass that computes the outputs."""

EXPLANATION_SETS = "-explained"
"""Suffix of a data set's name if membership in explanation sets is attacked, not in training sets."""

OWN = "own:"
"""Prefix of the names of explanations that a user's script computes for its own models."""

WITH_MODULES = ("torch-module", "script")
"""Learners whose models are, or may be, torch modules."""


@dataclass(frozen=True)
class Explainer:
    """An explainer: a function of a batch and the options, which returns one tensor of attributions per explained quantity.

    `options` declares the keys of the config's `explainers` section that the explainer reads in addition to `explain`
    and `explained_class`. `label` is its name in words. One job computes all explainers of one `family` in one pass. An
    explainer without a family is computed alone. The attributions of a `complete` explainer sum to f(x) − f(0); the
    error of this sum is stored as a column. `multiplied` attributions are in units of f (like input × gradient), all
    others in units of the gradient of f. `models` and `quantities`, if given, restrict what the explainer explains. An
    explainer that `needs_training_records` is fitted to the model's training records, in `Batch.members`; if it is
    private, `epsilon` is the ε of each explanation with respect to them. An explainer without `needs_torch_module`
    works with models of any kind, or only with those of some `learners`. Its attributions come from the model itself,
    or from `of_box`, which computes them from outputs and records.
    """

    attribute: Attribute
    options: Options = ()
    family: str = ""
    complete: bool = False
    models: tuple[str, ...] = ()
    quantities: tuple[str, ...] = ()
    multiplied: bool = False
    needs_training_records: bool = False
    label: str = ""
    epsilon: float | None = None
    needs_torch_module: bool = True
    learners: tuple[str, ...] = ()
    of_box: OfBox | None = None
    reads: Callable[[Kind], bool] | None = None
    """Whether the explainer can explain built-in models of a kind; None if it can explain all kinds."""
    reads_what: str = ""
    """Description of the models that `reads` accepts."""
    check: Callable[[], None] | None = None
    """Raises UserError if the explainer's name matches a registered pattern but is invalid."""

    def explains(self, model: str, learner: str = "torch-module") -> bool:
        """Return whether the explainer can explain models of this name and this learner."""
        able = WITH_MODULES if self.needs_torch_module else self.learners
        if learner == WITH_MODULES[0] and self.reads and not self.reads(kind_of(model)):
            return False
        return (not self.models or model in self.models) and (not able or learner in able)

    @property
    def alone(self) -> str:
        """Description of the only models that the explainer explains."""
        return self.reads_what or " and ".join(self.models or self.learners or ("torch modules",))


explainers: Registry[Explainer] = Registry("explainer", "mia_audit.explain.methods", "_", eager=True)
"""Explainers by name. All their files are imported, so one file may register several, or all names that match a pattern."""


def explainer(
    name: str = "",
    options: Options = (),
    family: str = "",
    complete: bool = False,
    models: tuple[str, ...] = (),
    quantities: tuple[str, ...] = (),
    multiplied: bool = False,
    needs_training_records: bool = False,
    label: str = "",
    reads: Callable[[Kind], bool] | None = None,
    reads_what: str = "",
) -> Callable[[Attribute], Attribute]:
    """Register the decorated function as an explainer; see `Explainer`."""

    def decorate(attribute: Attribute) -> Attribute:
        member = Explainer(
            attribute,
            options,
            family or name,
            complete,
            models,
            quantities,
            multiplied,
            needs_training_records,
            label or name,
            reads=reads,
            reads_what=reads_what,
        )
        explainers.register(name, attribute)(member)
        return attribute

    return decorate


def explainer_label(name: str) -> str:
    """Return an explainer's label for its name in a column or in the config; an unknown name is returned unchanged."""
    return (explainers[name].label or name) if name in explainers else name.rpartition(".py:")[2]


def needs_module(name: str) -> UserError:
    """Return the error for an explainer that needs a torch module, if the model is not one."""
    return UserError(
        f"explainers.methods: '{name}' explains only torch modules, but this model is not one; leave the explainer out for this model"
    )


def private_epsilon(name: str) -> float | None:
    """Return the ε of each explanation, with respect to the model's training records; None if it is not private."""
    return explainers[name].epsilon if name in explainers else None
