"""Kernels of local explanations, one file each."""
