"""Explanation metrics: the similarity of two models' explanations, and the faithfulness, stability and sparsity of one model's."""

from mia_audit.explanation_metrics.catalogue import OTHER, REFERENCE, measures

__all__ = ["OTHER", "REFERENCE", "measures"]
