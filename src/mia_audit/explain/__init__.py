"""Explainers: feature attributions of a model's decision, reduced to scalars on the device and never stored in full."""

from mia_audit.explain.catalogue import explainers

__all__ = ["explainers"]
