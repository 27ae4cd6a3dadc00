"""The random numbers of stochastic explainers: separate for each model, shared by all, or averaged over several requests."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import wraps
from typing import TYPE_CHECKING, Any

from pydantic import Field

from mia_audit.sections import Section
from mia_audit.seeds import seed_for

if TYPE_CHECKING:
    from torch import Tensor

    from mia_audit.explain.batch import Batch

    Attribute = Callable[[Batch, Mapping[str, Any]], dict[str, Tensor]]

PATTERN = r"own|shared|averaged:[1-9][0-9]*"


class Randomness(Section):
    """The key of explainers that draw random numbers."""

    randomness: str = Field("own", pattern=f"^({PATTERN})$")
    """Random draws for a record.

    `own`: separate draws per model. `shared`: the same draws for all models, as if the adversary knew them.
    `averaged:r`: the mean of r requests.
    """


def draw_seeds(seed: int, model: int | None, randomness: str) -> list[int]:
    """Return the seeds of the requests whose attributions are averaged. For a model without a number it is only the audit's seed."""
    if randomness == "shared" or model is None:
        return [seed]
    averaged = re.fullmatch(r"averaged:(\d+)", randomness)
    return [
        seed_for(seed, "explainer of model", model, request) for request in range(int(averaged[1]) if averaged else 1)
    ]


def with_draws(attribute: Attribute) -> Attribute:
    """Wrap an explainer whose draws are keyed by `Batch.seed` and the record, so that its draws follow `randomness`."""

    @wraps(attribute)
    def drawn(batch: Batch, options: Mapping[str, Any]) -> dict[str, Tensor]:
        seeds = draw_seeds(batch.seed, batch.number, options.get("randomness", "own"))
        parts = [attribute(replace(batch, seed=seed), options) for seed in seeds]
        if len(parts) == 1:
            return parts[0]
        return {quantity: sum(part[quantity] for part in parts) / len(parts) for quantity in parts[0]}  # type: ignore[misc]

    return drawn
