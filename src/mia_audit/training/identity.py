"""What a training is known by; nothing here imports more than the standard library, since planning reads it too."""

import hashlib
import json
from typing import Any


def identity(**parts: Any) -> str:
    """Return the SHA-256 of all that a training depends on, which must be JSON: a checkpoint is only used under its identity."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()
