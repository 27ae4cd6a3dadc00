"""Black boxes for local explanations, with values in [−1, 1]: labels, scikit-learn estimators, and the workflow's models."""

from mia_audit.explain.black_boxes.catalogue import black_boxes

__all__ = ["black_boxes"]
