"""The identity of a training run. This file imports only the standard library, because planning uses it too."""

import hashlib
import json
from typing import Any


def identity(**parts: Any) -> str:
    """Return the SHA-256 of everything that a training run depends on, given as JSON values. A checkpoint of another identity is not used."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()
