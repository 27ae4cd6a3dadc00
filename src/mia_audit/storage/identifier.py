"""The random id of an audit. Unlike a digest, it reveals nothing about the results."""

import re
import secrets
from pathlib import Path

from mia_audit.errors import UserError
from mia_audit.storage.atomic import create_once

IDENTIFIER = ".audit-id"
"""The file of the id in the results, hidden so that SHA256SUMS of finished results does not change."""


def audit_id(results: Path) -> str:
    """Return the random id of an audit, 32 hexadecimal digits; the id is drawn on first use."""
    path = results / IDENTIFIER
    if not path.exists():
        with create_once(path) as partial:
            partial.write_text(secrets.token_hex(16) + "\n", encoding="ascii")
    try:
        identifier = path.read_bytes()[:64].decode("ascii", "replace").strip()
    except OSError as error:
        raise UserError(f"{path}: {(error.strerror or str(error)).lower()}; expected the audit's random id") from None
    if not re.fullmatch(r"[0-9a-f]{32}", identifier):
        raise UserError(f"{path}: damaged; expected the audit's random id, 32 hexadecimal digits")
    return identifier
