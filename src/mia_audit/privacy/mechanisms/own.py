"""`own`: a guarantee that the user's own code claims. The code receives ε and δ; nothing here enforces them."""

from __future__ import annotations

from typing import NoReturn

from mia_audit.errors import UserError
from mia_audit.privacy.catalogue import Job, Mechanism, mechanism


@mechanism("own", per_record=False, steps=False, claimed=True)
def own(section: Mechanism, job: Job) -> NoReturn:
    """Raise UserError: the built-in loop cannot use a guarantee of the user's code."""
    raise UserError(
        f"mechanism '{section.mechanism}' is for models that your own code trains: choose dp-sgd for this model"
    )
