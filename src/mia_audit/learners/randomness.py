"""Seed the global generators of Python, NumPy and torch while the user's own code trains a model."""

import random
import secrets
import sys

import numpy as np

WORDS = 624
"""Number of 32-bit words in the state of a Mersenne Twister, the CPU generator of all three packages."""


def seed_everything(seed: int | None) -> None:
    """Seed the global generators of all packages that are imported.

    Without a seed, as for a released model, their whole state comes from the operating system's entropy.
    """
    if seed is None:
        random.seed(secrets.token_bytes(4 * WORDS))
        np.random.seed(np.frombuffer(secrets.token_bytes(4 * WORDS), np.uint32))  # noqa: NPY002
        if "torch" in sys.modules:
            from mia_audit.privacy.noise import seed_layers

            seed_layers(secrets.token_bytes(4 * WORDS))
        return
    random.seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002 - for scripts that draw from it
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(seed)
