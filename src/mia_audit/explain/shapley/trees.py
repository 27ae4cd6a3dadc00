"""TreeSHAP: exact Shapley values of trees; for a missing feature both branches are followed, weighted by training records (Lundberg et al. 2020)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from mia_audit.errors import UserError, first_line
from mia_audit.explain.shapley.box import Box, of_class

if TYPE_CHECKING:
    from mia_audit.explain.shapley.box import ByQuantity, Rows

INSTALL = "install it with: pip install 'mia-audit[shap]'"


def tree_shap(box: Box) -> ByQuantity:
    """Return the TreeSHAP values of the rows, by tree paths.

    The explained quantity is the margin of boosted trees (`logit`), and the votes of forests and single trees
    (`probability`). LightGBM and XGBoost use their own implementation, which is faster than the shap library's
    TreeExplainer. Raises UserError for other models.
    """
    estimator, rows, _ = last_step(box, background=False)
    name = type(estimator).__name__
    if hasattr(estimator, "booster_"):
        # LightGBM's own interface uses the estimator's number of threads
        values = _by_class(estimator.predict(rows, pred_contrib=True), rows.shape[1])
        return {"logit": of_class(values, box, name)}
    if hasattr(estimator, "get_booster"):
        import xgboost

        matrix = xgboost.DMatrix(rows, nthread=estimator.n_jobs)
        contributions = estimator.get_booster().predict(matrix, pred_contribs=True)
        values = contributions[:, :, :-1].transpose(0, 2, 1) if contributions.ndim == 3 else contributions[:, :-1]
        return {"logit": of_class(values.astype(np.float64), box, name)}
    quantity = "probability" if hasattr(estimator, "predict_proba") and not _boosted(estimator) else "logit"
    return {quantity: of_class(_explained(estimator, rows, name), box, name)}


def last_step(box: Box, background: bool = True) -> tuple[Any, Rows, Rows]:
    """Return the fitted estimator, the rows and the training rows; for a pipeline, its last step and the inputs of that step."""
    estimator = box.estimator
    if estimator is None:
        raise UserError(
            "explainers.methods: tree_shap and linear_shap explain only estimators, but this model is not one; choose permutation_shap"
        )
    rows, members = box.rows, box.members() if background else box.rows[:0]
    if hasattr(estimator, "steps"):
        before = estimator[:-1]
        rows = _dense(before.transform(rows))
        members = _dense(before.transform(members)) if len(members) else members
        estimator = estimator[-1]
    return estimator, rows, members


def _dense(rows: Any) -> Rows:
    return np.asarray(rows.toarray() if hasattr(rows, "toarray") else rows)


def _by_class(values: Any, features: int) -> np.ndarray:
    """Return LightGBM's contributions, [n, d] or [n, d, C], without the last column of each class, which is the expected value."""
    values = _dense(values).astype(np.float64)
    if values.shape[1] == features + 1:
        return np.asarray(values[:, :-1])
    return np.asarray(values.reshape(len(values), -1, features + 1)[:, :, :-1].transpose(0, 2, 1))


def _boosted(estimator: Any) -> bool:
    return hasattr(estimator, "decision_function")


def _explained(estimator: Any, rows: Rows, name: str) -> np.ndarray:
    try:
        import shap
    except ImportError:
        raise UserError(f"explainers.methods: tree_shap of a {name} needs the shap library; {INSTALL}") from None
    try:
        values = shap.TreeExplainer(estimator).shap_values(rows, check_additivity=False)
    except Exception as error:  # the library raises various errors for unknown models
        raise UserError(
            f"explainers.methods: tree_shap explains only trees, but the shap library does not support a {name}: {first_line(error)}"
        ) from None
    stacked = np.stack(values, axis=2) if isinstance(values, list) else np.asarray(values)
    return stacked.astype(np.float64)
