"""The registry of learners, and how an architecture.json names one; nothing here imports torch."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from mia_audit.errors import UserError
from mia_audit.learners.protocol import Compute, Learner
from mia_audit.registry import Registry

LearnerFactory = Callable[[Mapping[str, Any], Compute], Learner]
"""Opens a learner for an architecture; raises UserError, which names a key, where the architecture is not one of its own."""

learners: Registry[LearnerFactory] = Registry("learner", "mia_audit.learners.kinds", "-")


def open_learner(path: Path, compute: Compute) -> tuple[dict[str, Any], Learner]:
    """Read an architecture.json; return it and the learner that it names, which computes as `compute` says.

    A missing or damaged file, an unknown learner and an architecture that the learner refuses are UserErrors that name the file.
    """
    try:
        architecture = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"{path}: no such file; expected what `mia-audit architecture` writes") from None
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: not JSON ({error}); expected what `mia-audit architecture` writes") from None
    if not isinstance(architecture, dict) or "learner" not in architecture:
        raise UserError(f"{path}: the key 'learner' is missing; expected what `mia-audit architecture` writes")
    try:
        return architecture, learners[architecture["learner"]](architecture, compute)
    except UserError as error:
        raise UserError(f"{path}: {error}") from None
