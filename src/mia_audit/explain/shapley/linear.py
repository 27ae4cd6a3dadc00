"""Shapley values of linear models of independent features (Lundberg and Lee 2017, corollary 1)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mia_audit.errors import UserError
from mia_audit.explain.shapley.box import Box, of_class
from mia_audit.explain.shapley.trees import last_step

if TYPE_CHECKING:
    from mia_audit.explain.shapley.box import ByQuantity


def linear_shap(box: Box) -> ByQuantity:
    """Return w ⊙ (x − mean of the training rows), which explains the logit; UserError for a model that is not linear."""
    estimator, rows, background = last_step(box)
    name = type(estimator).__name__
    weights = getattr(estimator, "coef_", None)
    if weights is None:
        raise UserError(f"explainers.methods: linear_shap explains only linear models, but a {name} has no coef_")
    distances = rows - background.mean(axis=0)
    weights = np.atleast_2d(np.asarray(weights, dtype=np.float64))
    values = distances[:, :, None] * weights.T[None] if len(weights) > 1 else distances * weights[0]
    return {"logit": of_class(values, box, name)}
