"""Learners: each trains a model on members and computes its outputs. The built-in torch loop is one of them."""

from mia_audit.learners.protocol import estimator

__all__ = ["estimator"]
