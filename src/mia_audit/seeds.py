"""Reproducible randomness, not for privacy: the same key always gives the same stream, independent of earlier draws.

Randomness for privacy guarantees comes from `mia_audit.privacy.noise`.

The folders of an audit that is repeated with several seeds.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np

from mia_audit.errors import UserError

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


PREFIX = "seed-"


def folder_of_seed(seed: int | str) -> str:
    """Return the folder of one seed's results in the results of an audit with `seeds`."""
    return f"{PREFIX}{seed}"


def folders_of_seeds(results: Path) -> list[Path]:
    """List the folders of seeds in the results of an audit, by number."""
    found = [path for path in results.glob(f"{PREFIX}*") if path.name.removeprefix(PREFIX).isdecimal()]
    return sorted(found, key=lambda path: int(path.name.removeprefix(PREFIX)))


def refuse_other_seeds(results: Path, several: bool) -> None:
    """Raise UserError for results of an audit with one seed, if the config now has `seeds`, or the reverse."""
    repeated = folders_of_seeds(results)
    if several and not repeated and (results / "pools").exists():
        raise UserError(
            f"{results}: holds an audit of one seed, but the config has seeds: move everything in it to"
            f" {results / folder_of_seed('N')} (N: that seed), which keeps its models, or choose another name (audit)"
        )
    if repeated and not several:
        raise UserError(
            f"{results}: holds {', '.join(path.name for path in repeated)}, but the config has no seeds:"
            " write seeds: [N], or choose another name (audit)"
        )
