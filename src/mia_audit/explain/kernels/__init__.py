"""Kernels of local explanations."""
