"""The registry of explainers, and the section of a config for them. Neither this file nor the import of a member's file imports torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from mia_audit.errors import UserError
from mia_audit.explain.release import FULL, named_release, read_release, release_of
from mia_audit.registry import IN_FILE, Registry
from mia_audit.sections import OpenSection, Options, Precision, known

if TYPE_CHECKING:
    from jaxtyping import Float
    from torch import Tensor, nn

    from mia_audit.explain.batch import Batch
    from mia_audit.explain.shapley import Box, ByQuantity

    OfBox = Callable[[Box, Mapping[str, Any]], ByQuantity]
    Attribute = Callable[[Batch, Mapping[str, Any]], dict[str, Float[Tensor, "B ..."]]]


@dataclass(frozen=True)
class Kind:
    """The records that a model takes, whether it has channels (convolutions or tokens of an image), and whether all layers are plain."""

    takes: tuple[Literal["image", "table"], ...] = ("image",)
    channels: bool = True
    plain: bool = False


KINDS = {
    "mlp": Kind(("table",), channels=False),
    "locally-linear-maps": Kind(("image", "table"), channels=False),
}
"""Built-in models that differ from timm's models, because they take tables or have no channels."""
ANY = Kind(("image", "table"), plain=True)
"""A model in a user's file, which may take any records."""


def kind_of(model: str) -> Kind:
    """Return the kind of the model of that name; an unknown name is treated as that of a timm model."""
    return ANY if IN_FILE.fullmatch(model) else KINDS.get(model, Kind())


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
    applies: Callable[[nn.Module, Tensor], None] | None = None
    """Raises UserError if the explainer does not apply to a module, which is called with a few inputs."""

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


explainers: Registry[Explainer] = Registry("explainer", "mia_audit.explain.methods")
"""Explainers by name. All their files are imported, so one file may register several, or all names that match a pattern."""


def explainer(name: str = "", family: str = "", label: str = "", **traits: Any) -> Callable[[Attribute], Attribute]:
    """Register the decorated function as an explainer; `traits` are further fields of `Explainer`."""

    def decorate(attribute: Attribute) -> Attribute:
        member = Explainer(attribute, family=family or name, label=label or name, **traits)
        explainers.register(name, attribute)(member)
        return attribute

    return decorate


def explainer_label(name: str) -> str:
    """Return an explainer's label for its name in a column or in the config, and its release; an unknown name is returned unchanged."""
    base, release = release_of(name)
    label = (explainers[base].label or base) if base in explainers else base.rpartition(".py:")[2]
    return label if release == FULL else f"{label}, {release.replace(':', ' ')}"


def needs_module(name: str) -> UserError:
    """Return the error for an explainer that needs a torch module, if the model is not one."""
    return UserError(
        f"explainers.methods: '{name}' explains only torch modules, but this model is not one; leave the explainer out for this model"
    )


def intrinsic(name: str) -> bool:
    """Return whether an explanation belongs to one kind of model, like the filters of locally linear maps."""
    base, _ = release_of(name)
    return base in explainers and bool(explainers[base].models)


def private_epsilon(name: str) -> float | None:
    """Return the ε of each explanation, with respect to the model's training records; None if it is not private."""
    base, _ = release_of(name)
    return explainers[base].epsilon if base in explainers else None


class Explainers(OpenSection):
    """Explainers and the explained quantities. The explainers declare further keys."""

    methods: tuple[str, ...] = ("ixg", "saliency", "ig", "gradient_shap")
    """Registered explainers, `captum:CLASS`, `private_local:EPSILON`, or `file.py:function`."""
    explain: tuple[Literal["logit", "probability", "log_probability"], ...] = ("logit",)
    """Quantity explained: the logit of the class (Huang et al. 2024), its softmax probability, or the logarithm of that (Harder et al. 2020)."""
    explained_class: Literal["predicted", "true"] = "predicted"
    """The class whose quantity is explained."""
    precision: Precision | None = None
    """float32 when left out; `tf32` and `bf16` are faster on GPUs; under bf16 the classifier stays in float32."""

    vectors: Annotated[int, Field(ge=0, le=4096)] = 64
    """Largest number of coordinates of an attribution that is stored itself, as a vector, if an attack reads vectors;
    longer ones are pooled over a grid to at most so many. 0 stores none.
    """
    projections: Annotated[int, Field(ge=0, le=4096)] = 8
    """Number of random projections of an attribution that are stored beside its pooled vector."""

    release: Annotated[tuple[str, ...], Field(min_length=1)] = (FULL,)
    """Forms in which maps are shipped, each attacked and measured beside the others, from the same passes: `full`;
    `top-k:SHARE` of the coordinates, the largest (0.1 when left out); `rounded:DIGITS`, significant ones (1);
    `noisy:LEVEL`, Gaussian noise of this standard deviation over the map's root mean square (0.5); `clipped:QUANTILE`,
    values above this quantile of the absolute ones (0.9); `sign`.
    """

    @classmethod
    def members(cls) -> dict[str, Options]:
        """Return the options of every registered explainer, including those that are named by a pattern."""
        return {name: explainers[name].options for name in [*explainers.names(), *explainers.examples()]}

    @field_validator("methods")
    @classmethod
    def _methods(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for name in value:
            if check := explainers[known(explainers, name)].check:
                try:
                    check()
                except UserError as error:
                    raise ValueError(str(error)) from None
        return value

    probes: tuple[Literal["deletion", "insertion", "infidelity", "sensitivity"], ...] = ()
    """Measures that query the model again, as signals of every record for the attack `lrt`; built-in models only. Their keys
    are those of `explanation_metrics`.
    """

    @field_validator("release")
    @classmethod
    def _release(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if len({read_release(name) for name in value}) < len(value):
            raise ValueError(f"{', '.join(value)}: name each release once")
        return value

    @property
    def released(self) -> list[str]:
        """The explainers in all forms in which their maps are shipped."""
        return [named_release(name, release) for name in self.methods for release in self.release]

    @model_validator(mode="after")
    def _options(self) -> Self:
        chosen = tuple(model for name in self.methods for model in explainers[name].options)
        self._resolve(
            "no explainer reads", chosen, tuple(model for models in self.members().values() for model in models)
        )
        return self

    @model_validator(mode="after")
    def _quantities(self) -> Self:
        for name in self.methods:
            explained = explainers[name].quantities
            if explained and not set(explained) & set(self.explain):
                raise ValueError(
                    f"explain: {name} explains only the {explained[0]}; add this quantity, or leave {name} out"
                )
        return self
