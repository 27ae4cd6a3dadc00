"""SHAP for models without gradients: Shapley values of the class's output (Lundberg and Lee 2017; Lundberg et al. 2020)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from pydantic import PositiveInt

from mia_audit.errors import UserError
from mia_audit.explain.catalogue import Explainer, explainers
from mia_audit.explain.shapley import kernel_shap, linear_shap, permutation_shap, tree_shap
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


def _register(name: str, explain: Callable[[Box, Mapping[str, Any]], ByQuantity], label: str, **traits: Any) -> None:
    member = Explainer(
        _module,
        family=name,
        multiplied=True,
        label=label,
        needs_torch_module=False,
        learners=("estimator", "script"),
        of_box=explain,
        **traits,
    )
    explainers.register(name, explain)(member)


def _evaluating(explain: Callable[[Box, int, int], ByQuantity]) -> Callable[[Box, Mapping[str, Any]], ByQuantity]:
    return lambda box, options: explain(box, options["shap_evaluations"], options["shap_background"])


FITTED: dict[str, Any] = {"needs_training_records": True, "options": (Evaluations,)}
_register("tree_shap", lambda box, _: tree_shap(box), "TreeSHAP")
_register("linear_shap", lambda box, _: linear_shap(box), "LinearSHAP", needs_training_records=True)
_register("kernel_shap", _evaluating(kernel_shap), "KernelSHAP", **FITTED)
_register("permutation_shap", _evaluating(permutation_shap), "permutation SHAP", **FITTED)
