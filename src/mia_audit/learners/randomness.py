"""What the global generators of Python, NumPy and torch start from while code of the user's own trains a model."""

import random
import secrets
import sys

import numpy as np

WORDS = 624
"""32-bit words of the state of a Mersenne Twister, which all three draw from on a CPU."""


def seed_everything(seed: int | None) -> None:
    """Seed the global generators; those of a package that is not imported are left alone.

    Without a seed all of their state comes from the operating system's entropy, for a model that is released.
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
