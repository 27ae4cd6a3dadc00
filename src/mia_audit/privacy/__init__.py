"""Differential privacy: accounting, noise, clipping, per-record gradients and the mechanisms built from them."""
