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


@dataclass(frozen=True)
class Explainer:
    """A way from a batch and the options to attributions, one tensor per quantity explained.

    `options` names the keys of the config's `explainers` section that it reads beside `explain` and `explained_class`.
    Members of one `family` are computed by one job, in one pass; left out, an explainer is a family of its own.
    A `complete` one promises that its attributions sum to f(x) − f(0): its error is kept as a column. Attributions
    that are `multiplied` are in units of f (as input × gradient is), others in units of its gradient.
    `models` names the only models that it explains, and `quantities` the only quantities; left out, it explains all.
    """

    attribute: Attribute
    options: tuple[str, ...] = ()
    family: str = ""
    complete: bool = False
    models: tuple[str, ...] = ()
    quantities: tuple[str, ...] = ()
    multiplied: bool = False

    def explains(self, model: str) -> bool:
        """Tell whether it explains models of that name."""
        return not self.models or model in self.models


class Explainers(Registry[Explainer]):
    """The registered explainers, and captum's by name."""

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name) or (isinstance(name, str) and CAPTUM.fullmatch(name) is not None)

    def __getitem__(self, name: str) -> Explainer:
        """Return the explainer of that name; an unknown one is a UserError, but captum's names are only checked when it runs."""
        if match := CAPTUM.fullmatch(name):
            from mia_audit.explain.captum import captum_explainer

            return captum_explainer(re.split("[+-]", match["names"]))
        return super().__getitem__(name)


explainers = Explainers("explainer", "mia_audit.explain.methods", "_", eager=True)


def explainer(
    name: str,
    options: tuple[str, ...] = (),
    family: str = "",
    complete: bool = False,
    models: tuple[str, ...] = (),
    quantities: tuple[str, ...] = (),
    multiplied: bool = False,
) -> Callable[[Attribute], Attribute]:
    """Register the decorated function as an explainer."""

    def decorate(attribute: Attribute) -> Attribute:
        explainers.register(name)(
            Explainer(attribute, options, family or name, complete, models, quantities, multiplied)
        )
        return attribute

    return decorate
