"""The section of a config for explanations."""

from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator

from mia_audit.errors import UserError
from mia_audit.explain.catalogue import explainers
from mia_audit.sections import OpenSection, Options, Precision, known


class Explainers(OpenSection):
    """Explainers and the explained quantities. The explainers declare further keys."""

    methods: tuple[str, ...] = ("ixg", "saliency", "ig", "gradient_shap")
    """Registered explainers, `captum:CLASS`, `private_local:EPSILON`, or `file.py:function`."""
    explain: tuple[Literal["logit", "probability"], ...] = ("logit",)
    """Quantity explained: the logit of the class (Huang et al. 2024) or its softmax probability."""
    explained_class: Literal["predicted", "true"] = "predicted"
    """The class whose quantity is explained."""
    precision: Precision | None = None
    """float32 when left out; `tf32` and `bf16` are faster on GPUs; under bf16 the classifier stays in float32."""

    loss_temperatures: tuple[Annotated[float, Field(gt=0, le=1000)], ...] = ()
    """Temperatures T of the softmax, for which the signal `loss_tT` is computed from the logits in addition to `loss`; RMIA's paper uses 2."""

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
