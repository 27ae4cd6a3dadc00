"""Explanation metrics: how similar two models' explanations are, and how faithful, stable and sparse those of one model are."""

from mia_audit.explanation_metrics.catalogue import OTHER, REFERENCE, measures

__all__ = ["OTHER", "REFERENCE", "measures"]
