"""Randomness keyed by what it is for: the same key gives the same stream on every run, whatever ran before it."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import torch


def seed_for(*key: int | str) -> int:
    """Derive a 63-bit seed from a key such as `(audit_seed, "membership", dataset)`; distinct keys give unrelated seeds."""
    text = "\x1f".join(f"{type(part).__name__}:{part}" for part in key)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 1


def generator(*key: int | str) -> np.random.Generator:
    """Return a NumPy generator for the key."""
    return np.random.default_rng(seed_for(*key))


def torch_generator(*key: int | str, device: str = "cpu") -> torch.Generator:
    """Return a torch generator for the key, on the device."""
    import torch

    return torch.Generator(device=device).manual_seed(seed_for(*key))
