"""SHAP for models without gradients: `tree_shap` and `linear_shap`, and `kernel_shap` and `permutation_shap` for any model.

Attributions are Shapley values of the class's output (Lundberg and Lee 2017; Lundberg et al. 2020).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from pydantic import PositiveInt

from mia_audit.errors import UserError
from mia_audit.explain.catalogue import Explainer, explainers
from mia_audit.sections import Section

if TYPE_CHECKING:
    from torch import Tensor

    from mia_audit.explain.batch import Batch
    from mia_audit.explain.shapley import Box, ByQuantity


class Evaluations(Section):
    """The keys of SHAP methods that evaluate the model."""

    shap_evaluations: PositiveInt = 2000
    """Largest number of model outputs that are computed to explain one record."""
    shap_background: PositiveInt = 5
    """Number of training records whose values replace missing features."""


def _module(batch: Batch, options: Mapping[str, Any]) -> dict[str, Tensor]:
    raise UserError(
        "explainers.methods: tree_shap, linear_shap, kernel_shap and permutation_shap explain models without gradients; for torch"
        " modules, choose gradient_shap"
    )


def _trees(box: Box, options: Mapping[str, Any]) -> ByQuantity:
    from mia_audit.explain.shapley import tree_shap

    return tree_shap(box)


def _linear(box: Box, options: Mapping[str, Any]) -> ByQuantity:
    from mia_audit.explain.shapley import linear_shap

    return linear_shap(box)


def _kernel(box: Box, options: Mapping[str, Any]) -> ByQuantity:
    from mia_audit.explain.shapley import kernel_shap

    return kernel_shap(box, options["shap_evaluations"], options["shap_background"])


def _permutations(box: Box, options: Mapping[str, Any]) -> ByQuantity:
    from mia_audit.explain.shapley import permutation_shap

    return permutation_shap(box, options["shap_evaluations"], options["shap_background"])


def _register(
    name: str,
    explain: Callable[[Box, Mapping[str, Any]], ByQuantity],
    label: str,
    learners: tuple[str, ...],
    needs_training_records: bool = True,
    options: tuple[type[Section], ...] = (),
) -> None:
    member = Explainer(
        _module,
        options,
        name,
        multiplied=True,
        needs_training_records=needs_training_records,
        label=label,
        needs_torch_module=False,
        learners=learners,
        of_box=explain,
    )
    explainers.register(name, explain)(member)


WITHOUT_GRADIENTS = ("estimator", "script")

_register("tree_shap", _trees, "TreeSHAP", ("estimator", "script"), needs_training_records=False)
_register("linear_shap", _linear, "LinearSHAP", ("estimator", "script"))
_register("kernel_shap", _kernel, "KernelSHAP", WITHOUT_GRADIENTS, options=(Evaluations,))
_register("permutation_shap", _permutations, "permutation SHAP", WITHOUT_GRADIENTS, options=(Evaluations,))
