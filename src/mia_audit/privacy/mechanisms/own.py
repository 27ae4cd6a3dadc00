"""`own`: a guarantee that the user's own code claims; ε and δ are passed to it, and nothing here makes them true."""

from __future__ import annotations

from typing import NoReturn

from mia_audit.errors import UserError
from mia_audit.privacy.catalogue import Job, Mechanism, mechanism


@mechanism("own", per_record=False, steps=False, claimed=True)
def own(section: Mechanism, job: Job) -> NoReturn:
    """Raise UserError: the built-in loop has no guarantee of anybody else's."""
    raise UserError(
        f"mechanism '{section.mechanism}' is for models that your own code trains: choose dp-sgd for this one"
    )
