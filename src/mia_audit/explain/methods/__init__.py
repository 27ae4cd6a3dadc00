"""Explainers, one file each."""
