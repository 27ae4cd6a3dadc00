"""Explanation metrics: the similarity of two models' explanations, and the faithfulness, stability and sparsity of one model's."""

from mia_audit.explanation_metrics.catalogue import FULL_MAP, OTHER, REFERENCE, measures

__all__ = ["FULL_MAP", "OTHER", "REFERENCE", "measures"]
