"""Interpretability in numbers: how alike the explanations of two models are, and how good those of one model are."""

from mia_audit.interpretability.catalogue import OTHER, REFERENCE, measures

__all__ = ["OTHER", "REFERENCE", "measures"]
