"""Shapley values for models without gradients: exact for trees and linear models, otherwise from a stated number of evaluations."""

from mia_audit.explain.shapley.box import Box
from mia_audit.explain.shapley.coalitions import kernel_shap, permutation_shap
from mia_audit.explain.shapley.linear import linear_shap
from mia_audit.explain.shapley.trees import tree_shap

__all__ = ["Box", "kernel_shap", "linear_shap", "permutation_shap", "tree_shap"]
