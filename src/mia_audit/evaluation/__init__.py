"""Evaluation of membership scores, with exact ROC curves and intervals."""

from mia_audit.evaluation.exposure import exposure
from mia_audit.evaluation.metrics import (
    auc,
    balanced_accuracy,
    log_grid,
    mean_log_roc,
    target_metrics,
    tpr_at_fpr,
)

__all__ = [
    "auc",
    "balanced_accuracy",
    "exposure",
    "log_grid",
    "mean_log_roc",
    "target_metrics",
    "tpr_at_fpr",
]
