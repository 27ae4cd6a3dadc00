"""Reproducible randomness, not for privacy: the same key always gives the same stream, independent of earlier draws.

Randomness for privacy guarantees comes from `mia_audit.privacy.noise`.
"""

from __future__ import annotations

import hashlib

import numpy as np

AUDIT_ONLY = "for audit only: whoever knows the seed can recompute the noise and the batches of training"
"""The notice in every model file of an audit and in its report."""


def seed_for(*key: int | str) -> int:
    """Derive a 63-bit seed from a key such as `(audit_seed, "membership", dataset)`; distinct keys give unrelated seeds.

    Use it only for random numbers that need not be secret: 63 bits can be searched, and torch's generator on the CPU
    reads only 32.
    """
    text = "\x1f".join(f"{type(part).__name__}:{part}" for part in key)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 1


def generator(*key: int | str) -> np.random.Generator:
    """Return a NumPy generator for the key."""
    return np.random.default_rng(seed_for(*key))
