"""The registry of explainers, and what an explainer is; nothing here or in a member's file imports torch."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mia_audit.registry import Registry

if TYPE_CHECKING:
    from jaxtyping import Float
    from torch import Tensor

    from mia_audit.explain.batch import Batch

    Attribute = Callable[[Batch, Mapping[str, Any]], dict[str, Float[Tensor, "B ..."]]]

GRADIENT = "gradient"
"""The family whose members share the pass that gives the outputs: they read `Batch.gradients`."""

CAPTUM = re.compile(r"captum:(?P<names>\w+(?:[+-]\w+)*)")
"""Any method of captum by its class, or several that wrap one another: `captum:NoiseTunnel+Saliency`.

Columns write - for +, which joins the names of signals that are read together; either is understood.
"""


PRIVATE_LOCAL = re.compile(r"private_local:(?P<epsilon>\d+(?:\.\d+)?)")
"""Private local linear explanations by the ε of each: `private_local:0.5`."""


@dataclass(frozen=True)
class Explainer:
    """A way from a batch and the options to attributions, one tensor per quantity explained.

    `options` names the keys of the config's `explainers` section that it reads beside `explain` and `explained_class`.
    Members of one `family` are computed by one job, in one pass; left out, an explainer is a family of its own.
    A `complete` one promises that its attributions sum to f(x) − f(0): its error is kept as a column. Attributions
    that are `multiplied` are in units of f (as input × gradient is), others in units of its gradient.
    `models` names the only models that it explains, and `quantities` the only quantities; left out, it explains all.
    One `of_members` is fitted to the records that the model was trained on: it reads `Batch.members`.
    """

    attribute: Attribute
    options: tuple[str, ...] = ()
    family: str = ""
    complete: bool = False
    models: tuple[str, ...] = ()
    quantities: tuple[str, ...] = ()
    multiplied: bool = False
    of_members: bool = False

    def explains(self, model: str) -> bool:
        """Tell whether it explains models of that name."""
        return not self.models or model in self.models


class Explainers(Registry[Explainer]):
    """The registered explainers, captum's by name and private ones by their ε."""

    def __contains__(self, name: object) -> bool:
        by_pattern = isinstance(name, str) and (CAPTUM.fullmatch(name) or _private_epsilon(name))
        return super().__contains__(name) or bool(by_pattern)

    def __getitem__(self, name: str) -> Explainer:
        """Return the explainer of that name; an unknown one is a UserError, but captum's names are only checked when it runs."""
        if match := CAPTUM.fullmatch(name):
            from mia_audit.explain.captum import captum_explainer

            return captum_explainer(re.split("[+-]", match["names"]))
        if epsilon := _private_epsilon(name):
            from mia_audit.explain.methods.local_linear import private_local

            return private_local(epsilon)
        return super().__getitem__(name)


def _private_epsilon(name: str) -> float:
    match = PRIVATE_LOCAL.fullmatch(name)
    return float(match["epsilon"]) if match else 0.0


explainers = Explainers("explainer", "mia_audit.explain.methods", "_", eager=True)


def explainer(
    name: str,
    options: tuple[str, ...] = (),
    family: str = "",
    complete: bool = False,
    models: tuple[str, ...] = (),
    quantities: tuple[str, ...] = (),
    multiplied: bool = False,
    of_members: bool = False,
) -> Callable[[Attribute], Attribute]:
    """Register the decorated function as an explainer."""

    def decorate(attribute: Attribute) -> Attribute:
        explainers.register(name)(
            Explainer(attribute, options, family or name, complete, models, quantities, multiplied, of_members)
        )
        return attribute

    return decorate
